"""What is asked of people at the front door."""

from django import forms
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.utils.translation import gettext_lazy as _


class SignInForm(AuthenticationForm):
    """Data holders sign in with their e-mail address, staff with the user name that they were given."""

    username = UsernameField(label=_("E-mail address or user name"), widget=forms.TextInput(attrs={"autofocus": True}))
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": _(
            "There is no account with this name and this password. Check both; capital and small letters differ."
        ),
    }
