"""Mails about accounts. Links that open an account are made when the mail is delivered, and stored nowhere."""

from typing import Any

from allauth.account import app_settings
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.account.utils import user_pk_to_url_str
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from consent.models import Mail
from consent.services.mail import MailKind, kinds_register

#: What happened to an account, by the name of allauth's template.
CHANGES = {
    "password_changed": _("The password was changed."),
    "password_reset": _("The password was set anew with a link in a mail."),
    "password_set": _("A password was set."),
    "email_changed": _("Mails go to another address now."),
    "email_confirm": _("An address was confirmed."),
    "email_deleted": _("An address was removed."),
    "totp_activated": _("An authenticator app was set up."),
    "totp_deactivated": _("The authenticator app was removed."),
    "recovery_codes_generated": _("New recovery codes were made."),
    "webauthn_added": _("A key was added."),
    "webauthn_removed": _("A key was removed."),
    "account_connected": _("An account of your organisation was connected."),
    "account_disconnected": _("An account of your organisation was disconnected."),
}


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
        MailKind("confirm_address", _("an address is to be confirmed"), _confirmation, _unconfirmed_address),
        MailKind("password_reset", _("a new password was asked for"), _password_link, language=_page_language),
        MailKind("account_made", _("an account was made for you"), _password_link, _given_address, _page_language),
        MailKind("account_changed", _("an account has changed"), _change),
    )
