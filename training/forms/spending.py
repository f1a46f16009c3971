"""The form in which whoever approves a run says what it may spend."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from consent.models import Level
from training.services.lifecycle import spending_check

EPSILONS = {Level.HIGH: "epsilon_high", Level.AVERAGE: "epsilon_average", Level.LOW: "epsilon_low"}


def _number(label: Any, **options: Any) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"})
    return forms.FloatField(label=label, widget=widget, **options)


class SpendingForm(forms.Form):
    """All that is left (also where nothing is chosen), a share of it, or an ε for each level."""

    spending = forms.ChoiceField(
        label=_("The run may spend"),
        choices=[
            ("all", _("all that is left")),
            ("share", _("a share of what is left")),
            ("epsilons", _("an ε for each level")),
        ],
        initial="all",
        help_text=_(
            "It is reserved from the approval until the vote has ended; then what was not spent is free again."
        ),
    )
    share = _number(
        _("Share in per cent"),
        initial=50,
        min_value=0.1,
        max_value=100,
        help_text=_("About the same share of the labels that all of it would be good for."),
    )
    epsilon_high = _number(_("ε at high protection"), min_value=0)
    epsilon_average = _number(_("ε at average protection"), min_value=0)
    epsilon_low = _number(_("ε at low protection"), min_value=0)

    def clean(self) -> dict[str, Any]:
        if "spending" not in self.data:
            self.cleaned_data["spending"] = "all"
            del self.errors["spending"]
        wanted = {"share": ["share"], "epsilons": list(EPSILONS.values())}.get(
            self.cleaned_data.get("spending", ""), []
        )
        for name in ("share", *EPSILONS.values()):
            if name not in wanted:
                self.errors.pop(name, None)
            elif self.cleaned_data.get(name) == 0:
                self.add_error(name, _("Give a number above 0."))
        values = self.cleaned_data
        if "epsilon_high" in wanted and not self.errors:
            try:
                spending_check(1.0, self.asked()["epsilons"])
            except forms.ValidationError as error:
                self.add_error("epsilon_high", error.messages)
        return values

    def asked(self) -> dict[str, Any]:
        """``share`` and ``epsilons`` of :func:`training.services.lifecycle.run_approve`."""
        values = self.cleaned_data
        if values["spending"] == "share":
            return {"share": values["share"] / 100}
        if values["spending"] == "epsilons":
            return {"epsilons": {level.value: values[name] for level, name in EPSILONS.items()}}
        return {}
