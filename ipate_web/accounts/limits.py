"""Limits on tries of codes and on requested mails, in the database, for all processes together."""

from datetime import timedelta

from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa import app_settings
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest

from common.requests import client_address
from common.throttle import Attempt, Counter, attempt_begin, keyed_hash


def code_try(user: AbstractBaseUser) -> Attempt:
    """Record a try of a one-time code of ``user``; it counts as a wrong one until it is forgotten.

    Raises:
        TooManyTriesError: too many were wrong; this one is not looked at.
    """
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    return attempt_begin([Counter(keyed_hash("second factor", str(user.pk)), settings.SIGN_IN_TRIES, window)])


def code_use(user: AbstractBaseUser, code: str) -> None:
    """Use up a right one-time code of ``user``, however it is typed, for as long as it would be right.

    Raises:
        TooManyTriesError: it was used before, in whatever process.
    """
    window = timedelta(seconds=app_settings.TOTP_PERIOD * (2 * app_settings.TOTP_TOLERANCE + 1))
    attempt_begin([Counter(keyed_hash("one-time code", str(user.pk), normalize_user_code(code)), 1, window)])


def mail_try(request: HttpRequest, address: str) -> None:
    """Record that a mail to ``address`` is asked for, from a network address.

    Raises:
        TooManyTriesError: too many were asked for.
    """
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    attempt_begin(
        [
            Counter(keyed_hash("mail to", address.lower()), settings.SIGN_IN_TRIES, window),
            Counter(keyed_hash("mail from", client_address(request)), settings.SIGN_IN_TRIES_ADDRESS, window),
        ]
    )
