"""Form to create an API token."""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from ipate_web.tokens.models import ApiToken, Scope

#: No token lives for ever: what was forgotten stops working by itself.
LIFETIMES = [("30", _("30 days")), ("90", _("90 days")), ("365", _("one year"))]


class TokenForm(forms.Form):
    """Form for the name and lifetime of a new token of ``user``."""

    name = forms.CharField(
        label=_("Name"),
        max_length=60,
        help_text=_("What will use it, so that you know later which one to revoke: “analysis notebook”."),
    )
    lifetime = forms.ChoiceField(label=_("Valid for"), choices=LIFETIMES, initial="90")
    scopes = forms.MultipleChoiceField(
        label=_("What it is for"),
        choices=Scope.choices,
        initial=[Scope.READ, Scope.PROPOSE, Scope.PREDICT],
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Whatever you choose, it may do nothing that you may not do yourself."),
    )

    def __init__(self, *args: Any, user: AbstractBaseUser | AnonymousUser, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user

    def clean_name(self) -> str:
        name = self.cleaned_data["name"]
        if ApiToken.objects.filter(user_id=self.user.pk, name=name).exists():
            raise ValidationError(_("You have a token with this name. Choose another, or revoke that one first."))
        return name

    def save(self) -> str:
        """Create the token.

        Returns:
            The token itself, which cannot be retrieved later.
        """
        lifetime = timedelta(days=int(self.cleaned_data["lifetime"]))
        _token, secret = ApiToken.objects.create(
            self.user, expiry=lifetime, name=self.cleaned_data["name"], scopes=self.cleaned_data["scopes"]
        )
        return secret
