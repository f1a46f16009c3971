"""Sign-out of staff who have left their browser: a session of theirs ends without requests, a holder's does not."""

from collections.abc import Callable

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from ipate_web.accounts.second_factor import is_staff_account

#: Key of a staff member's session: when their last request came, in seconds since 1970.
_LAST = "last_request"
#: Seconds within which requests count as one, so that not every request writes the session.
_PRECISION = 60


def idle_staff_signed_out(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that signs staff out after ``STAFF_IDLE_MINUTES`` without a request."""

    def middleware(request: HttpRequest) -> HttpResponse:
        user = request.user
        if isinstance(user, User):
            now, last = timezone.now().timestamp(), request.session.get(_LAST)
            idle = None if last is None else now - last
            if idle is not None and idle > 60 * settings.STAFF_IDLE_MINUTES and is_staff_account(user):
                logout(request)
                messages.info(request, _("You were signed out because nothing was done for a while. Sign in to go on."))
            elif (idle is None or idle > _PRECISION) and not _is_polled(request) and is_staff_account(user):
                request.session[_LAST] = now
        return get_response(request)

    return middleware


def _is_polled(request: HttpRequest) -> bool:
    """Whether an open page asked by itself for what is new."""
    return request.method == "GET" and "HX-Request" in request.headers
