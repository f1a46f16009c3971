"""Form to request one holder's choice."""

from django import forms
from django.utils.translation import gettext_lazy as _


class LevelAccessForm(forms.Form):
    """Form for access to one holder's choice: pseudonym and reason."""

    pseudonym = forms.CharField(label=_("Pseudonym"), max_length=200)
    reason = forms.CharField(
        label=_("Reason"),
        max_length=500,
        help_text=_("Why you have to see it, such as: they called and asked. It is kept with your name for good."),
    )
