"""Helpers for views: the type of their requests, client addresses, and errors shown in forms."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.forms import BaseForm
from django.http import HttpRequest


class SignedInRequest(HttpRequest):
    """Request of a view behind ``login_required``. Its user is never anonymous.

    Attributes:
        user: the signed-in user.
        can: the user's permissions in the study that the page is about, if any.
    """

    user: User
    can: frozenset[str]


@contextmanager
def faults_in(form: BaseForm) -> Iterator[None]:
    """Show a service's errors next to the fields of ``form`` to which they refer, or else above all fields."""
    try:
        yield
    except ValidationError as error:
        if not hasattr(error, "error_dict"):
            form.add_error(None, error)
            return
        for field, faults in error.message_dict.items():
            form.add_error(field if field in form.fields else None, faults)


def client_address(request: HttpRequest) -> str:
    """Return the network address of the client, for rate limits.

    Behind a proxy (``settings.BEHIND_PROXY``) this is the last entry of ``X-Forwarded-For``, which the proxy adds.
    Otherwise that header is ignored, because anyone can send it. IPv6 addresses are reduced to their /64 network,
    because a single client may have all of its addresses.

    Returns:
        An IPv4 address, an IPv6 network, or the connection's text if it is neither (such as for a local socket).
    """
    address = request.META.get("REMOTE_ADDR", "")
    if settings.BEHIND_PROXY:
        address = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip() or address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ip_network((parsed, 64), strict=False))
    return str(parsed)
