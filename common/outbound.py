"""Requests to URLs that users enter: only to public hosts, over TLS, without following redirects.

The host's name is resolved once, all its addresses are checked, and the connection goes to a checked address, so a DNS
answer that changes between the check and the connection has no effect. The certificate is checked against the name.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Time limits in seconds for each step of a request, and for the whole request even if the server is slow.
STEP, WHOLE = 10.0, 30.0
#: IPv6 ranges that embed IPv4 addresses and could make a private one look public: NAT64, 6to4, Teredo.
_WRAPPED = [ipaddress.ip_network(each) for each in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")]
#: Ranges that are not public although `ipaddress` says that they are global: 6to4 relays (RFC 7526), examples (RFC
#: 9637).
_SPECIAL = [ipaddress.ip_network(each) for each in ("192.88.99.0/24", "3fff::/20")]
#: Only the HTTPS port, because services on other ports may not be meant for the public.
_PORT = 443


class RefusedAddressError(ValueError):
    """Raised if an address may not be requested. ``code`` is the reason, which determines the message."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Response:
    """Status of a response, and its `Retry-After` header."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True)
class _Target:
    """Destination of a request. ``address`` has been checked, and the certificate must be valid for ``host``."""

    host: str
    port: int
    address: str
    path: str


def url_check(url: str) -> None:
    """Check that requests to ``url`` are allowed.

    Raises:
        RefusedAddressError: the URL is not https, contains a password, or refers to an address that is not allowed.
        OSError: the host's name is unknown.
    """
    _target(url)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Response:
    """Post ``body`` to ``url``; return the response, whether or not it reports success. Redirects are not followed.

    Raises:
        RefusedAddressError: see :func:`url_check`.
        OSError, http.client.HTTPException: the server does not answer in time, or does not speak HTTP over TLS.
    """
    target = _target(url)
    connection = _PinnedConnection(target)
    clock = threading.Timer(WHOLE, connection.abort)
    clock.daemon = True
    clock.start()
    try:
        connection.request("POST", target.path, body, dict(headers))
        response = connection.getresponse()
        return Response(response.status, response.getheader("Retry-After"))
    finally:
        clock.cancel()
        connection.close()


def _target(url: str) -> _Target:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError:
        raise RefusedAddressError("malformed") from None
    if parts.scheme != "https":
        raise RefusedAddressError("scheme")
    if not parts.hostname or parts.username is not None or parts.password is not None or parts.fragment:
        raise RefusedAddressError("malformed")
    try:
        infos = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise RefusedAddressError("malformed") from None
    addresses = [str(entry[4][0]) for entry in infos]
    if not addresses or not all(is_allowed(ipaddress.ip_address(each.partition("%")[0])) for each in addresses):
        raise RefusedAddressError("private")
    if port != _PORT and not all(_is_named(ipaddress.ip_address(each.partition("%")[0])) for each in addresses):
        raise RefusedAddressError("port")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(parts.hostname, port, addresses[0], path)


def is_allowed(address: Address) -> bool:
    """Return whether requests may go to ``address``, because it is public or in one of WEBHOOK_NETWORKS."""
    if _is_named(address):
        return True
    address = _unmapped(address)
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    if any(address in network for network in (*_WRAPPED, *_SPECIAL) if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _is_named(address: Address) -> bool:
    """Return whether an address is in a network listed in WEBHOOK_NETWORKS."""
    address = _unmapped(address)
    return any(address in network for network in settings.WEBHOOK_NETWORKS if network.version == address.version)


def _unmapped(address: Address) -> Address:
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


class _PinnedConnection(http.client.HTTPSConnection):
    """HTTPS connection to a checked address, without resolving the host's name again."""

    def __init__(self, target: _Target) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(target.host, target.port, timeout=STEP, context=self._tls)
        self._address = target.address

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), timeout=STEP)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def abort(self) -> None:
        """Abort the connection. A thread that is waiting for the server gets an OSError."""
        if self.sock is not None:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return
