"""Sign-in form."""

from django import forms
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.utils.translation import gettext_lazy as _


class SignInForm(AuthenticationForm):
    """Sign-in form: data holders use their e-mail address, staff their user name."""

    username = UsernameField(label=_("E-mail address or user name"), widget=forms.TextInput(attrs={"autofocus": True}))
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": _(
            "There is no account with this name and this password. Check both; capital and small letters differ."
        ),
    }
