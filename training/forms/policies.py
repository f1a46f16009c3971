"""The form in which a committee proposes what the levels mean."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from consent.services import epsilon_policy_check


def _epsilon(label: Any) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"})
    return forms.FloatField(label=label, min_value=0, widget=widget)


class PolicyForm(forms.Form):
    """ε by level, and why."""

    high = _epsilon(_("ε at high protection"))
    average = _epsilon(_("ε at average protection"))
    low = _epsilon(_("ε at low protection"))
    reason = forms.CharField(
        label=_("Reason"),
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=_("Why these values fit this study. It is kept with the policy for good."),
    )

    def clean(self) -> dict[str, Any]:
        values = {name: self.cleaned_data[name] for name in ("high", "average", "low") if name in self.cleaned_data}
        if len(values) == 3:
            epsilon_policy_check(**values)
        return self.cleaned_data
