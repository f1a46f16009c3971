"""Sign-in by name or address and password, with a limit on failed tries.

The limits are those of the settings ``SIGN_IN_*``; docs/threat-model.md explains the choice.
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

#: How long other people's failures from an address do not count for a person who signed in from it.
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
    """Return the user name for a name or address, so that both count as one; otherwise ``typed`` itself."""
    # A database may compare names in its own way, so they are compared here as allauth does.
    similar = User.objects.filter(username__iexact=typed)
    users = [user for user in similar if user.get_username().lower() == typed.lower()]
    if len(users) != 1:
        users = filter_users_by_email(typed, prefer_verified=True)
    name = users[0].get_username() if users else typed
    return unicodedata.normalize("NFKC", name).casefold()


class ThrottledBackend(AuthenticationBackend):
    """Check of name or address and password, behind the limits; for every form that calls ``authenticate``.

    Failures are counted whether or not an account of the name exists.
    """

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        """Return the active user with this name or address and this password, or None.

        Raises:
            TooManyTriesError: the limit is reached; the password was not checked.
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
