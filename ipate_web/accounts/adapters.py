"""Adapters by which django-allauth asks the site: words, mails, who may sign up, how secrets are stored."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from common.keys import Purpose, cipher
from common.requests import client_address
from consent.models import AccountChange
from consent.services.mail import mails_send

_WRONG = _("The user name or password is wrong. Check both; passwords are case-sensitive.")
_WRONG_CODE = _("This code is wrong or has already been used. Wait for the next one, or use a recovery code.")

#: What the pages say after something was done, by the name of allauth's template; the rest shows by itself.
_DONE = {
    "email_confirmation_sent": _("We have emailed a link to %(email)s. Open it to confirm the address."),
    "email_confirmed": _("%(email)s is confirmed."),
    "email_confirmation_failed": _("%(email)s is confirmed for another account. Use a different address."),
    "email_deleted": _("%(email)s was removed."),
    "primary_email_set": _("Emails now go to this address."),
    "unverified_primary_email": _("Confirm this address first: open the link in the email we sent to it."),
    "cannot_delete_primary_email": _("This address gets your emails. Choose another one for them first."),
    "password_changed": _("Your password has been changed. Other devices have to sign in again."),
    "password_set": _("Password set."),
    "totp_activated": _("Authenticator app set up."),
    "totp_deactivated": _("Authenticator app removed."),
    "recovery_codes_generated": _("You have new recovery codes. The earlier ones no longer work."),
    "webauthn_added": _("Key added."),
    "webauthn_removed": _("Key removed."),
    "account_connected": _("Your organisation's account is connected."),
    "account_disconnected": _("Your organisation's account is disconnected."),
}


class AccountAdapter(DefaultAccountAdapter):
    """Accounts come from invitations and administrators; mails are put down and delivered by a worker."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "account_inactive": _("This account is not active. Contact the people who run this site."),
        "duplicate_email": _("This account already has this address."),
        "email_password_mismatch": _WRONG,
        "username_password_mismatch": _WRONG,
        "enter_current_password": _("This is not your current password. Type it again."),
        "incorrect_password": _("This is not your password. Type it again."),
        "incorrect_code": _WRONG_CODE,
        "max_email_addresses": _("An account can have at most %d addresses. Remove one first."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_address(request)

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        message_context: dict[str, Any] | None = None,
        extra_tags: str = "",
        message: str | None = None,
    ) -> None:
        """Show a message in the site's words, or none."""
        name = (message_template or "").rpartition("/")[2].removesuffix(".txt")
        if message or name in _DONE:
            text = message or _DONE[name] % (message_context or {})
            messages.add_message(request, level, text, extra_tags=extra_tags)

    def send_confirmation_mail(self, request: HttpRequest, emailconfirmation: Any, signup: bool) -> None:
        address = emailconfirmation.email_address
        mails_send("confirm_address", [address.user_id], about=address.pk)

    def send_notification_mail(
        self,
        template_prefix: str,
        user: AbstractBaseUser,
        context: dict[str, Any] | None = None,
        email: str | None = None,
    ) -> None:
        mails_send("account_changed", [user.pk], about=template_prefix.rpartition("/")[2])

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account_overview")


class SecondFactorAdapter(DefaultMFAAdapter):
    """Secrets of authenticator apps and recovery codes are encrypted with a key of their own."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": _WRONG_CODE,
        "cannot_generate_recovery_codes": _("Set up an authenticator app or a key first."),
    }

    def encrypt(self, text: str) -> str:
        return cipher(Purpose.FACTORS, "second-factor").encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return cipher(Purpose.FACTORS, "second-factor").decrypt(encrypted_text.encode()).decode()


class SignOnAdapter(DefaultSocialAccountAdapter):
    """Single sign-on opens accounts that are there; it makes none."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def authenticate_by_email(self, sociallogin: Any) -> Any:
        """The account with an address that the provider has verified, if it is confirmed here or an administrator's.

        An address that a holder has typed and not confirmed may be someone else's.
        """
        account = super().authenticate_by_email(sociallogin)
        if account is None:
            return None
        user, email = account
        confirmed = EmailAddress.objects.filter(user_id=user.pk, email__iexact=email, verified=True)
        given = AccountChange.objects.filter(user_id=user.pk, kind=AccountChange.Kind.CREATED)
        return account if confirmed.exists() or given.exists() else None
