"""Receivers of events of accounts: links that end, addresses that count as confirmed, the language of mails."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import email_confirmed, password_reset
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in

from consent.invitations import account_confirmed
from consent.mail import language_note


def _confirmed(email_address: EmailAddress, **_: Any) -> None:
    account_confirmed(user=email_address.user)


def _reset(user: User, **_: Any) -> None:
    """The link came by mail to the account's own address, or to the one that an administrator has given."""
    address = EmailAddress.objects.filter(user=user, email__iexact=user.email).first()
    if address is not None and not address.verified and address.set_verified():
        account_confirmed(user=user)


def _signed_in(user: User, **_: Any) -> None:
    language_note(user)


def connect() -> None:
    """Connect the receivers, once, at start-up."""
    email_confirmed.connect(_confirmed, dispatch_uid="accounts confirmed")
    password_reset.connect(_reset, dispatch_uid="accounts reset")
    user_logged_in.connect(_signed_in, dispatch_uid="accounts signed in")
