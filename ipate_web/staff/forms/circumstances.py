"""Form to record who answers for a holder, or that somebody has died or can no longer decide."""

from django import forms
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from consent.models import Circumstance
from ipate_web.staff.forms.fields import DayField


class CircumstanceForm(forms.Form):
    """Form for one circumstance of one holder."""

    pseudonym = forms.CharField(label=_("Pseudonym"), max_length=200)
    kind = forms.ChoiceField(
        label=_("What is the case"),
        choices=[(kind.value, capfirst(kind.label)) for kind in Circumstance.Kind],
        widget=forms.RadioSelect,
    )
    until = DayField(
        label=_("The person decides from"),
        required=False,
        help_text=_(
            "For a guardian: the day on which the person comes of age. For a proxy: the day on which the proxy ends, "
            "if it does. No birth date is kept."
        ),
    )
    reason = forms.CharField(
        label=_("How you know"),
        max_length=500,
        help_text=_("What you have seen, such as a certificate, and since when it holds. It is kept with your name."),
    )
