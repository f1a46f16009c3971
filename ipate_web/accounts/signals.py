"""What happens with accounts: receivers of its events, and the mails that tell of it."""

import secrets
from typing import Any

from allauth.account import app_settings
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.account.signals import email_confirmed, password_reset
from allauth.account.signals import user_logged_in as factors_given
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.db.models import Model
from django.db.models.signals import pre_save
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from consent.models import Mail
from consent.services.invitations import ACCOUNT_SET_UP, account_invitations_end, account_join
from consent.services.mail import MailKind, kinds_register, language_note

#: Rows that holders and staff have alike, and whose primary key their owner sees in an address, a key or a file. The
#: database would number them in turn: the numbers of two accounts of staff would tell how many holders made theirs
#: between.
_NUMBERED_AT_RANDOM = (User, EmailAddress, Authenticator, SocialAccount)
#: Ten digits always, as the length of an answer tells something, too; and no more than a column of 32 bits holds.
_SMALLEST, _LARGEST = 10**9, 2**31 - 1
#: What happened to an account, by the name of allauth's template.
CHANGES = {
    "password_changed": _("The password was changed."),
    "password_reset": _("The password was reset with a link in an email."),
    "password_set": _("A password was set."),
    "email_changed": _("Emails now go to another address."),
    "email_confirm": _("An address was confirmed."),
    "email_deleted": _("An address was removed."),
    "totp_activated": _("An authenticator app was set up."),
    "totp_deactivated": _("The authenticator app was removed."),
    "recovery_codes_generated": _("New recovery codes were created."),
    "webauthn_added": _("A key was added."),
    "webauthn_removed": _("A key was removed."),
    "account_connected": _("Your organisation's account was connected."),
    "account_disconnected": _("Your organisation's account was disconnected."),
}


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
                "You are signed in, but the invitation was not added to your account, because it has ended or your "
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


def _unconfirmed(mail: Mail) -> EmailAddress | None:
    return EmailAddress.objects.filter(pk=mail.about, user_id=mail.user_id, verified=False).first()


def _unconfirmed_address(mail: Mail) -> str:
    address = _unconfirmed(mail)
    return address.email if address else ""


def _confirmation(mail: Mail) -> dict[str, Any] | None:
    address = _unconfirmed(mail)
    if address is None:
        return None
    return {"path": reverse("account_confirm_email", args=[EmailConfirmationHMAC.create(address).key])}


def _reader(mail: Mail) -> User:
    """Account of a mail that is about it."""
    assert mail.user_id is not None, "mails about accounts go to accounts"
    return User.objects.get(pk=mail.user_id)


def _password_link(mail: Mail) -> dict[str, Any]:
    user = _reader(mail)
    key = app_settings.PASSWORD_RESET_TOKEN_GENERATOR().make_token(user)
    path = reverse("account_reset_password_from_key", kwargs={"uidb36": user_pk_to_url_str(user), "key": key})
    return {"path": path, "username": user.get_username()}


def _page_language(mail: Mail) -> str:
    """Language of the page on which a mail was asked for: whoever has forgotten their password reads that one."""
    return mail.about


def _given_address(mail: Mail) -> str:
    return _reader(mail).email


def _change(mail: Mail) -> dict[str, Any] | None:
    return {"change": CHANGES[mail.about]} if mail.about in CHANGES else None


def register() -> None:
    """Register these kinds, once, at start-up."""
    kinds_register(
        MailKind("confirm_address", _("an address needs to be confirmed"), _confirmation, _unconfirmed_address),
        MailKind("password_reset", _("a password reset was requested"), _password_link, language=_page_language),
        MailKind("account_made", _("an account was created for you"), _password_link, _given_address, _page_language),
        MailKind("account_changed", _("an account has changed"), _change),
    )
