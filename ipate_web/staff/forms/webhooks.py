"""Form in which an operator names a program that is told what happens in a study."""

from django import forms
from django.utils.translation import gettext_lazy as _

from consent.services.webhooks import EVENTS


class WebhookForm(forms.Form):
    """Form for a new webhook; whether its address is allowed the service says."""

    url = forms.CharField(
        label=_("Web address"),
        max_length=500,
        help_text=_("Begins with https://. Requests are sent there by POST, and are not redirected."),
        widget=forms.URLInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    events = forms.MultipleChoiceField(
        label=_("What to tell it"),
        choices=lambda: [(event, f"{label} ({event})") for event, label in EVENTS.items()],
        initial=lambda: list(EVENTS),
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": _("Choose at least one event.")},
    )
