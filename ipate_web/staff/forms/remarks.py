"""Form for a comment on a proposal, or the reason of its rejection."""

from django import forms
from django.utils.translation import gettext_lazy as _


class RemarkForm(forms.Form):
    """Form for a comment or a reason."""

    text = forms.CharField(
        label=_("Comment, or reason for rejecting it"),
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=_("It is kept with the proposal for good, with your name."),
    )
