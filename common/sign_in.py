"""Sign-in by name and password, with a limit on failed tries.

The limits are those of the settings ``SIGN_IN_*``; docs/threat-model.md explains the choice.
"""

import unicodedata
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.http import HttpRequest

from common.requests import client_address
from common.throttle import Attempt, Counter, attempt_begin, counter_reset, hashed, is_noted, note_set

#: For the person who signed in from an address, other people's failures do not count there for so long afterwards.
KNOWN_FOR = timedelta(days=30)


def _sign_in_begin(name: str, address: str) -> Attempt:
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    counters = [Counter(hashed("sign-in", name, address), settings.SIGN_IN_TRIES, window)]
    if not is_noted(hashed("signed in", name, address)):
        counters += [
            Counter(hashed("sign-in name", name), settings.SIGN_IN_TRIES_NAME, window),
            Counter(hashed("sign-in address", address), settings.SIGN_IN_TRIES_ADDRESS, window),
        ]
    return attempt_begin(counters)


class ThrottledBackend(ModelBackend):
    """Django's own check of name and password, behind the limits; for every form that calls ``authenticate``.

    Failures are counted whether or not there is an account of the name.
    """

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The active user with this name and this password, or None.

        Raises:
            TooManyTriesError: the limit is reached; the password was not looked at.
        """
        if username is None:
            username = kwargs.get(get_user_model().USERNAME_FIELD)
        if username is None or password is None:
            return None
        name = unicodedata.normalize("NFKC", username).casefold()
        address = client_address(request) if request else ""
        attempt = _sign_in_begin(name, address)
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None:
            attempt.forget()
            counter_reset(hashed("sign-in", name, address))
            note_set(hashed("signed in", name, address), KNOWN_FOR)
        return user
