"""Limits on tries of codes and on requested mails, in the database, for all processes together."""

from datetime import timedelta

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest

from common.requests import client_address
from common.throttle import Attempt, Counter, attempt_begin, hashed


def code_try(user: AbstractBaseUser) -> Attempt:
    """Record a try of a one-time code of ``user``; it counts as a wrong one until it is forgotten.

    Raises:
        TooManyTriesError: too many were wrong; this one is not looked at.
    """
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    return attempt_begin([Counter(hashed("second factor", str(user.pk)), settings.SIGN_IN_TRIES, window)])


def mail_try(request: HttpRequest, address: str) -> None:
    """Record that a mail to ``address`` is asked for, from a network address.

    Raises:
        TooManyTriesError: too many were asked for.
    """
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    attempt_begin(
        [
            Counter(hashed("mail to", address.lower()), settings.SIGN_IN_TRIES, window),
            Counter(hashed("mail from", client_address(request)), settings.SIGN_IN_TRIES_ADDRESS, window),
        ]
    )
