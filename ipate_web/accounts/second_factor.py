"""Security of staff accounts: a second factor, and sign-out after inactivity."""

from collections.abc import Callable
from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _

from consent.models import Administrator, Membership

#: What is open without it: what is needed to get one, to leave, and to read the page.
_OPEN = ("account_", "mfa_", "set_language", "healthz", "readyz", "metrics", "leave")

NEEDED = "Set up a second factor on the site first."
#: Key of a staff member's session: when their last request came, in seconds since 1970.
_LAST = "last_request"
#: Seconds within which requests count as one, so that not every request writes the session.
_PRECISION = 60


def is_staff_account(user: User) -> bool:
    """Whether the account has a role in a study, administers the installation, or may open Django's admin."""
    return (
        user.is_staff
        or user.is_superuser
        or Membership.objects.filter(user_id=user.pk).exists()
        or Administrator.objects.filter(user_id=user.pk).exists()
    )


def has_second_factor(user: User) -> bool:
    """Whether the account has an authenticator app or a key; recovery codes do not count."""
    factors = Authenticator.objects.filter(user_id=user.pk)
    return factors.exclude(type=Authenticator.Type.RECOVERY_CODES).exists()


def lacks_second_factor(user: object) -> bool:
    """Whether someone has no second factor, and the site asks them for one."""
    if not settings.STAFF_SECOND_FACTOR or not isinstance(user, User):
        return False
    return is_staff_account(user) and not has_second_factor(user)


class SecondFactorMiddleware(MiddlewareMixin):
    """Middleware that redirects staff without a second factor to the page for setting one up, if the site requires one.

    Staff who have one must use it at every sign-in, so all of their sessions are protected by it.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or match.view_name.startswith(_OPEN) or not lacks_second_factor(request.user):
            return None
        if match.app_names[:1] == ["api"]:
            return JsonResponse({"detail": NEEDED}, status=403)
        messages.warning(request, _("This site requires a second factor for staff. Set one up to continue."))
        return redirect("mfa_index")


def idle_staff_signed_out(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that signs staff out after ``STAFF_IDLE_MINUTES`` without a request."""

    def middleware(request: HttpRequest) -> HttpResponse:
        user = request.user
        if isinstance(user, User):
            now, last = timezone.now().timestamp(), request.session.get(_LAST)
            idle = None if last is None else now - last
            if idle is not None and idle > 60 * settings.STAFF_IDLE_MINUTES and is_staff_account(user):
                logout(request)
                messages.info(request, _("You were signed out because you were inactive. Sign in to continue."))
            elif (idle is None or idle > _PRECISION) and not _is_polled(request) and is_staff_account(user):
                request.session[_LAST] = now
        return get_response(request)

    return middleware


def _is_polled(request: HttpRequest) -> bool:
    """Whether an open page polled for news, rather than a person requesting it."""
    return request.method == "GET" and "HX-Request" in request.headers
