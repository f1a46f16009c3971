"""Receivers of events of accounts: their numbers, links that end, addresses that count, the language of mails."""

import secrets
from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import email_confirmed, password_reset
from allauth.account.signals import user_logged_in as factors_given
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.db.models import Model
from django.db.models.signals import pre_save
from django.http import HttpRequest
from django.utils.translation import gettext

from consent.services.invitations import ACCOUNT_SET_UP, account_invitations_end, account_join
from consent.services.mail import language_note

#: Rows that holders and staff have alike, and whose primary key their owner sees in an address, a key or a file. The
#: database would number them in turn: the numbers of two accounts of staff would tell how many holders made theirs
#: between.
_NUMBERED_AT_RANDOM = (User, EmailAddress, Authenticator, SocialAccount)
#: Ten digits always, as the length of an answer tells something, too; and no more than a column of 32 bits holds.
_SMALLEST, _LARGEST = 10**9, 2**31 - 1


def _number(sender: type[Model], instance: Model, raw: bool = False, **_: Any) -> None:
    """Give a new row a number that tells nothing."""
    if raw or not instance._state.adding or instance.pk is not None:
        return
    number = 0
    while number == 0 or sender._base_manager.filter(pk=number).exists():
        number = _SMALLEST + secrets.randbelow(_LARGEST - _SMALLEST + 1)
    instance.pk = number


def _confirmed(email_address: EmailAddress, **_: Any) -> None:
    account_invitations_end(user=email_address.user)


def _reset(user: User, **_: Any) -> None:
    """The link came by mail to the account's own address, or to the one that an administrator has given."""
    address = EmailAddress.objects.filter(user=user, email__iexact=user.email).first()
    if address is not None and not address.verified and address.set_verified():
        account_invitations_end(user=user)


def _signed_in(user: User, **_: Any) -> None:
    language_note(user)


def _factors_given(request: HttpRequest, user: User, joins: int | None = None, **_: Any) -> None:
    """Connect the account with the holder ``joins`` whose invitation led to this sign-in."""
    if joins is None:
        return
    if account_join(holder_id=joins, user=user):
        messages.success(request, ACCOUNT_SET_UP)
    else:
        messages.error(
            request,
            gettext(
                "You are signed in, but the invitation was not added to your account: it has ended meanwhile, or your "
                "account already decides for other records in this study."
            ),
        )


def connect() -> None:
    """Connect the receivers, once, at start-up."""
    for model in _NUMBERED_AT_RANDOM:
        pre_save.connect(_number, sender=model, dispatch_uid="accounts numbered")
    email_confirmed.connect(_confirmed, dispatch_uid="accounts confirmed")
    password_reset.connect(_reset, dispatch_uid="accounts reset")
    user_logged_in.connect(_signed_in, dispatch_uid="accounts signed in")
    factors_given.connect(_factors_given, dispatch_uid="accounts joined")
