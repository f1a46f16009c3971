"""Sign-in by user name or email address and password, with a limit on failed attempts.

The settings ``SIGN_IN_*`` define the limits; docs/threat-model.md explains the choice.
"""

import unicodedata
from datetime import timedelta
from typing import Any

from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.utils import filter_users_by_email
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from common.requests import client_address
from common.throttle import Attempt, Counter, attempt_begin, counter_reset, is_noted, keyed_hash, note_set

#: For this long after signing in from an address, a person can sign in from there again despite failed attempts from
#: other addresses or with other names.
KNOWN_FOR = timedelta(days=30)


def _sign_in_begin(name: str, address: str) -> Attempt:
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    counters = [Counter(keyed_hash("sign-in", name, address), settings.SIGN_IN_TRIES, window)]
    if not is_noted(keyed_hash("signed in", name, address)):
        counters += [
            Counter(keyed_hash("sign-in name", name), settings.SIGN_IN_TRIES_NAME, window),
            Counter(keyed_hash("sign-in address", address), settings.SIGN_IN_TRIES_ADDRESS, window),
        ]
    return attempt_begin(counters)


def _counted_name(typed: str) -> str:
    """Return the user name for a user name or email address (or ``typed``), so that both are counted together."""
    # Databases may compare names differently, so names are compared here in the same way as in allauth.
    similar = User.objects.filter(username__iexact=typed)
    users = [user for user in similar if user.get_username().lower() == typed.lower()]
    if len(users) != 1:
        users = filter_users_by_email(typed, prefer_verified=True)
    name = users[0].get_username() if users else typed
    return unicodedata.normalize("NFKC", name).casefold()


class ThrottledBackend(AuthenticationBackend):
    """Authentication backend with rate limits: checks the user name or email address, and the password.

    Failures are counted whether or not an account with the name exists.
    """

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        """Return the active user with this name or email address and this password, or None.

        Raises:
            TooManyTriesError: the limit is reached, so the password was not checked.
        """
        typed = credentials.get("username") or credentials.get("email")
        if not typed or not credentials.get("password"):
            return None
        name = _counted_name(typed)
        address = client_address(request) if request else ""
        attempt = _sign_in_begin(name, address)
        user = super().authenticate(request, **credentials)
        if user is not None:
            attempt.forget()
            counter_reset(keyed_hash("sign-in", name, address))
            note_set(keyed_hash("signed in", name, address), KNOWN_FOR)
        return user
