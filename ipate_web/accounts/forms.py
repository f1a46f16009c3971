"""Forms of django-allauth, reworded and adapted to staff accounts, with limits on emails and on wrong codes.

All processes share these limits, because they are counted in the database.
"""

from datetime import timedelta
from typing import Any

from allauth.account.forms import (
    AddEmailForm,
    ChangePasswordForm,
    LoginForm,
    ReauthenticateForm,
    ResetPasswordForm,
    ResetPasswordKeyForm,
    SetPasswordForm,
)
from allauth.account.models import EmailAddress
from allauth.mfa import app_settings
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as CodeReauthenticateForm
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.webauthn.forms import AddWebAuthnForm, EditWebAuthnForm
from django import forms
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from common.requests import client_address
from common.throttle import Attempt, Counter, TooManyTriesError, attempt_begin, keyed_hash
from consent.forms import INVALID_EMAIL, PASSWORD_HELP, PASSWORDS_DIFFER
from consent.models import MailWishes
from consent.services.accounts import username_check
from consent.services.mail import mails_send

_ADDRESS = (_("Email address"), "")
_NEW = (_("New password"), PASSWORD_HELP)
_AGAIN = (_("Repeat the new password"), "")
#: Email preferences of people whom a study asks about their records.
HOLDER_WISHES = ("uses", "results")
#: Email preferences of people with a role in a study.
STAFF_WISHES = ("approvals", "ends", "shares")


def code_try(user: AbstractBaseUser) -> Attempt:
    """Record an attempt to enter a one-time code of ``user``; the attempt is treated as wrong until it is deleted.

    Raises:
        TooManyTriesError: too many attempts were wrong; this one is not checked.
    """
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    return attempt_begin([Counter(keyed_hash("second factor", str(user.pk)), settings.SIGN_IN_TRIES, window)])


def code_use(user: AbstractBaseUser, code: str) -> None:
    """Use up a correct one-time code of ``user``, in any spelling, for the rest of its validity.

    Raises:
        TooManyTriesError: the code was used before, in any process.
    """
    window = timedelta(seconds=app_settings.TOTP_PERIOD * (2 * app_settings.TOTP_TOLERANCE + 1))
    digits = "".join(filter(str.isalnum, code)).lower()  # allauth accepts a code with spaces and punctuation
    attempt_begin([Counter(keyed_hash("one-time code", str(user.pk), digits), 1, window)])


def mail_try(request: HttpRequest, address: str) -> None:
    """Record that an email to ``address`` was requested from a network address.

    Raises:
        TooManyTriesError: too many emails were requested.
    """
    window = timedelta(seconds=settings.SIGN_IN_WAIT)
    attempt_begin(
        [
            Counter(keyed_hash("mail to", address.lower()), settings.SIGN_IN_TRIES, window),
            Counter(keyed_hash("mail from", client_address(request)), settings.SIGN_IN_TRIES_ADDRESS, window),
        ]
    )


class Worded(forms.BaseForm):
    """Mixin that gives a form's fields the site's labels and help. A label is not repeated inside its field."""

    #: Label and help by field, to be translated.
    words: dict[str, tuple[Any, Any]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (label, help_text) in self.words.items():
            field = self.fields[name]
            field.label, field.help_text = label, help_text
            field.widget.attrs.pop("placeholder", None)
            if isinstance(field, forms.EmailField):
                field.error_messages["invalid"] = INVALID_EMAIL
                field.validators = [forms.EmailField(error_messages={"invalid": INVALID_EMAIL}).validators[0]]


class SamePasswords(Worded):
    """Mixin with the site's error message if two passwords differ."""

    def add_error(self, field: Any, error: Any) -> None:
        super().add_error(field, PASSWORDS_DIFFER if field == "password2" and not self.errors.get(field) else error)


class SignInForm(Worded, LoginForm):
    """Sign-in form: data holders use their email address, staff their user name or address."""

    words = {"login": (_("Email address or user name"), ""), "password": (_("Password"), "")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].widget.attrs |= {"autofocus": True, "autocomplete": "username"}
        # No address is longer, and SQLite cannot search for much longer ones.
        self.fields["login"].validators.append(MaxLengthValidator(320))


class AddressForm(Worded, AddEmailForm):
    """Form for another email address of an account."""

    words = {"email": (_("Another email address"), "")}


class PasswordChangeForm(SamePasswords, ChangePasswordForm):
    """Form for a new password, for people who know their current password."""

    words = {"oldpassword": (_("Current password"), ""), "password1": _NEW, "password2": _AGAIN}


class PasswordSetForm(SamePasswords, SetPasswordForm):
    """Form for the first password of an account with another way of signing in."""

    words = {"password1": _NEW, "password2": _AGAIN}


class PasswordFromMailForm(SamePasswords, ResetPasswordKeyForm):
    """Form for a new password after opening the link in an email."""

    words = {"password1": _NEW, "password2": _AGAIN}


class PasswordResetForm(Worded, ResetPasswordForm):
    """Form to request an email with a password link. The response never reveals whether an account exists.

    Only confirmed addresses get an email, because an address that a holder has mistyped may belong to someone else.
    """

    words = {"email": _ADDRESS}

    def clean_email(self) -> str:
        email = self.cleaned_data["email"].lower()
        confirmed = EmailAddress.objects.filter(email=email, verified=True, user__is_active=True)
        self.users = [address.user for address in confirmed.select_related("user")]
        return email

    def save(self, request: HttpRequest, **kwargs: Any) -> str:
        email = self.cleaned_data["email"]
        mail_try(request, email)
        mails_send("password_reset", [user.pk for user in self.users], about=get_language())
        return email


class PasswordAgainForm(Worded, ReauthenticateForm):
    """Form that asks for the password before an action that affects the account's security."""

    words = {"password": (_("Password"), "")}


class _CountsOnce:
    """Form for a one-time code with a limit on attempts. A correct code can be used only once across all processes."""

    user: User

    def clean_code(self) -> str:
        attempt = code_try(self.user)
        code = super().clean_code()  # type: ignore[misc]
        try:
            code_use(self.user, code)
        except TooManyTriesError:
            raise get_adapter().validation_error("incorrect_code") from None
        attempt.forget()
        return code


class _Code(_CountsOnce, Worded):
    words = {"code": (_("Code"), _("Six digits from your authenticator app, or one of your recovery codes."))}


class CodeForm(_Code, AuthenticateForm):
    """Form for a one-time code at sign-in."""


class CodeAgainForm(_Code, CodeReauthenticateForm):
    """Form that asks for a one-time code before an action that affects the account's security."""


class AppForm(_CountsOnce, Worded, ActivateTOTPForm):
    """Form that proves that an authenticator app was set up."""

    words = {"code": (_("Code"), _("The six digits that the app shows now."))}


class KeyForm(Worded, AddWebAuthnForm):
    """Form for a passkey or security key."""

    words = {
        "name": (_("Key name"), _("Helps you tell your keys apart.")),
        "credential": (_("Key"), ""),
        "passwordless": (
            _("Sign in with only this key, without a password"),
            _("The key then asks for your fingerprint, face or PIN."),
        ),
    }


class KeyNameForm(Worded, EditWebAuthnForm):
    """Form for renaming a key."""

    words = {"name": (_("Key name"), "")}


class PersonForm(forms.ModelForm):
    """Form for a person's name and email preferences."""

    first_name = forms.CharField(label=_("First name"), max_length=150, required=False)
    last_name = forms.CharField(label=_("Last name"), max_length=150, required=False)

    class Meta:
        model = MailWishes
        fields = ["language", *HOLDER_WISHES, *STAFF_WISHES]

    field_order = ["first_name", "last_name", "language", *HOLDER_WISHES, *STAFF_WISHES]

    def __init__(self, *args: Any, user: User, holds: bool, works: bool, **kwargs: Any) -> None:
        kwargs["initial"] = {"first_name": user.first_name, "last_name": user.last_name}
        super().__init__(*args, **kwargs)
        self.user = user
        for name in [*(() if holds else HOLDER_WISHES), *(() if works else STAFF_WISHES)]:
            del self.fields[name]

    def save(self, commit: bool = True) -> MailWishes:
        self.user.first_name = self.cleaned_data["first_name"]
        self.user.last_name = self.cleaned_data["last_name"]
        self.user.save(update_fields=["first_name", "last_name"])
        return super().save(commit)


class StaffAccountForm(forms.Form):
    """Form for a new account of a staff member."""

    username = forms.CharField(
        label=_("User name"),
        max_length=150,
        validators=[*User._meta.get_field("username").validators, username_check],
        help_text=_("Letters, digits and . + - _ only; cannot be changed later."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    first_name = forms.CharField(label=_("First name"), max_length=150)
    last_name = forms.CharField(label=_("Last name"), max_length=150)
    email = forms.EmailField(
        label=_("Email address"),
        max_length=150,
        help_text=_("We'll email a link to this address to choose a password."),
        error_messages={"invalid": INVALID_EMAIL},
    )

    def clean_username(self) -> str:
        username = self.cleaned_data["username"]
        if User.objects.filter(username__iexact=username).exists():
            raise ValidationError(_("An account with this name already exists. Choose another."))
        return username
