"""Adapters of django-allauth (messages, emails, permission to sign up, events), and the security of staff accounts."""

import secrets
from collections.abc import Callable
from typing import Any

from allauth.account import app_settings
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.account.signals import email_confirmed, password_reset
from allauth.account.signals import user_logged_in as factors_given
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.signals import user_logged_in
from django.db.models import Model
from django.db.models.signals import pre_save
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from common.keys import Purpose, cipher
from common.requests import client_address
from consent.models import AccountChange, Administrator, Mail, Membership
from consent.services.invitations import ACCOUNT_SET_UP, account_invitations_end, account_join
from consent.services.mail import MailKind, kinds_register, language_note, mails_send

_WRONG = _("The user name or password is wrong. Check both; passwords are case-sensitive.")
_WRONG_CODE = _("This code is wrong or has already been used. Wait for the next one, or use a recovery code.")

#: Messages after an action, by the name of allauth's template; other outcomes are visible on the page.
_DONE = {
    "email_confirmation_sent": _("We have emailed a link to %(email)s. Open it to confirm the address."),
    "email_confirmed": _("%(email)s is confirmed."),
    "email_confirmation_failed": _("%(email)s is confirmed for another account. Use a different address."),
    "email_deleted": _("%(email)s was removed."),
    "primary_email_set": _("Emails now go to this address."),
    "unverified_primary_email": _("Confirm this address first: open the link in the email we sent to it."),
    "cannot_delete_primary_email": _("Your emails go to this address. Choose another address for them first."),
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
    """Adapter for accounts from invitations and administrators; emails are queued, and a worker delivers them."""

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
        """Show a message in the site's wording, if there is one."""
        name = (message_template or "").rpartition("/")[2].removesuffix(".txt")
        if name == "password_changed" and not request.user.is_authenticated:
            return  # After a link in an email, which may open the first visit, the next page explains what to do.
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
    """Adapter that encrypts secrets of authenticator apps and recovery codes with a separate key."""

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
    """Adapter for single sign-on, which signs in to existing accounts but creates none."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def authenticate_by_email(self, sociallogin: Any) -> Any:
        """Return the account with an address that the provider has verified; None if there is none.

        If the address is not confirmed here, only accounts created by an administrator are returned, because an address
        that a holder has entered may belong to someone else.
        """
        account = super().authenticate_by_email(sociallogin)
        if account is None:
            return None
        user, email = account
        confirmed = EmailAddress.objects.filter(user_id=user.pk, email__iexact=email, verified=True)
        given = AccountChange.objects.filter(user_id=user.pk, kind=AccountChange.Kind.CREATED)
        return account if confirmed.exists() or given.exists() else None


# --- Events of accounts -----------------------------------------------------------------------------------------------


#: Models of holders and staff whose primary keys their owners see in a URL, a key or a file. With sequential numbers,
#: two staff accounts' numbers would reveal how many holders created accounts in between.
_NUMBERED_AT_RANDOM = (User, EmailAddress, Authenticator, SocialAccount)
#: Always ten digits, because the length of a response also reveals something, and no more than fits into a 32-bit
#: column.
_SMALLEST, _LARGEST = 10**9, 2**31 - 1
#: Events of an account, by the name of allauth's template.
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
    """Give a new row a random number."""
    if raw or not instance._state.adding or instance.pk is not None:
        return
    number = 0
    while number == 0 or sender._base_manager.filter(pk=number).exists():
        number = _SMALLEST + secrets.randbelow(_LARGEST - _SMALLEST + 1)
    instance.pk = number


def _confirmed(email_address: EmailAddress, **_: Any) -> None:
    account_invitations_end(user=email_address.user)


def _reset(user: User, **_: Any) -> None:
    """Confirm the address, because the link was emailed to it or an administrator entered it."""
    address = EmailAddress.objects.filter(user=user, email__iexact=user.email).first()
    if address is not None and not address.verified and address.set_verified():
        account_invitations_end(user=user)


def _signed_in(user: User, **_: Any) -> None:
    language_note(user)


def _factors_given(request: HttpRequest, user: User, joins: int | None = None, **_: Any) -> None:
    """Link the account to the holder with the id ``joins``, whose invitation led to this sign-in."""
    if joins is None:
        return
    if account_join(holder_id=joins, user=user):
        messages.success(request, ACCOUNT_SET_UP)
    else:
        messages.error(
            request,
            gettext(
                "You are signed in, but we could not add the invitation to your account. Either it is no longer "
                "valid, or your account already decides for other records in this study."
            ),
        )


def connect() -> None:
    """Connect the signal receivers. Called once, at start-up."""
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
    """Return the account that an email is about."""
    assert mail.user_id is not None, "account emails go to accounts"
    return User.objects.get(pk=mail.user_id)


def _password_link(mail: Mail) -> dict[str, Any]:
    user = _reader(mail)
    key = app_settings.PASSWORD_RESET_TOKEN_GENERATOR().make_token(user)
    path = reverse("account_reset_password_from_key", kwargs={"uidb36": user_pk_to_url_str(user), "key": key})
    return {"path": path, "username": user.get_username()}


def _page_language(mail: Mail) -> str:
    """Return the language of the page on which an email was requested, for people who forgot their password."""
    return mail.about


def _given_address(mail: Mail) -> str:
    return _reader(mail).email


def _change(mail: Mail) -> dict[str, Any] | None:
    return {"change": CHANGES[mail.about]} if mail.about in CHANGES else None


def register() -> None:
    """Register these kinds of email. Called once, at start-up."""
    kinds_register(
        MailKind("confirm_address", _("an address needs to be confirmed"), _confirmation, _unconfirmed_address),
        MailKind("password_reset", _("a password reset was requested"), _password_link, language=_page_language),
        MailKind("account_made", _("an account was created for you"), _password_link, _given_address, _page_language),
        MailKind("account_changed", _("an account has changed"), _change),
    )


# --- Security of staff accounts ---------------------------------------------------------------------------------------


#: Pages that are available without a second factor: to set one up, to sign out, and to load the page itself.
_OPEN = ("account_", "mfa_", "set_language", "healthz", "readyz", "metrics", "leave")

NEEDED = "Set up a second factor on the site first."
#: Session key for the time of a staff member's last request, in seconds since 1970.
_LAST = "last_request"
#: Requests within this many seconds are recorded as one, so that the session is not written at every request.
_PRECISION = 60


def is_staff_account(user: User) -> bool:
    """Return whether the account has a role in a study, administers the installation, or may open Django's admin."""
    return (
        user.is_staff
        or user.is_superuser
        or Membership.objects.filter(user_id=user.pk).exists()
        or Administrator.objects.filter(user_id=user.pk).exists()
    )


def has_second_factor(user: User) -> bool:
    """Return whether the account has an authenticator app or a security key; recovery codes do not count."""
    factors = Authenticator.objects.filter(user_id=user.pk)
    return factors.exclude(type=Authenticator.Type.RECOVERY_CODES).exists()


def lacks_second_factor(user: object) -> bool:
    """Return whether a user has no second factor although the site requires one."""
    if not settings.STAFF_SECOND_FACTOR or not isinstance(user, User):
        return False
    return is_staff_account(user) and not has_second_factor(user)


class SecondFactorMiddleware(MiddlewareMixin):
    """Middleware that redirects staff without a second factor to the page for setting one up, if the site requires one.

    Staff with a second factor must use it at every sign-in, so it protects all of their sessions.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or match.view_name.startswith(_OPEN) or not lacks_second_factor(request.user):
            return None
        if match.app_names[:1] == ["api"]:
            return JsonResponse({"detail": NEEDED}, status=403)
        messages.warning(request, gettext("Staff need a second factor on this site. Set one up to continue."))
        return redirect("mfa_index")


def idle_staff_signed_out(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that signs staff out after ``STAFF_IDLE_MINUTES`` without a request."""

    def middleware(request: HttpRequest) -> HttpResponse:
        user = request.user
        if isinstance(user, User):
            now, last = timezone.now().timestamp(), request.session.get(_LAST)
            idle = None if last is None else now - last
            if idle is not None and idle > 60 * settings.STAFF_IDLE_MINUTES and is_staff_account(user):
                logout(request)
                messages.info(request, gettext("You were signed out because you were inactive. Sign in to continue."))
            elif (idle is None or idle > _PRECISION) and not _is_polled(request) and is_staff_account(user):
                request.session[_LAST] = now
        return get_response(request)

    return middleware


def _is_polled(request: HttpRequest) -> bool:
    """Return whether the request was made by an open page that polls for updates, not by a person."""
    return request.method == "GET" and "HX-Request" in request.headers
