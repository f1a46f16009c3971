"""Form in which whoever approves a run says which share of every cap it may use."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from accounting.shares import share_free, suggested_share
from consent.models import Study


class ShareForm(forms.Form):
    """A share in per cent. It is held until the run has ended; what was not used publicly is free again then.

    A rehearsal needs none, and its form has no field.
    """

    per_cent = forms.FloatField(
        label=_("Share of every holder's cap, in per cent"),
        min_value=0.1,
        max_value=100,
        widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}),
        help_text=_("All shares add up to at most 100 %. What the run does not use is free again when it ends."),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.study = study
        if study.rehearsal:
            del self.fields["per_cent"]
            return
        per_cent = round(100 * suggested_share(study), 1)
        self.fields["per_cent"].initial = int(per_cent) if per_cent.is_integer() else per_cent

    def clean_per_cent(self) -> float:
        value, free = self.cleaned_data["per_cent"], 100 * share_free(self.study)
        if value > free + 1e-6:
            raise forms.ValidationError(
                _("Only %(free).4g %% is free: the rest is used, or held for other runs.") % {"free": free}
            )
        return value

    def share(self) -> float:
        """The share, above 0 and at most 1."""
        return min(self.cleaned_data.get("per_cent", 100) / 100, 1.0)
