"""Form for head counts that are public anyway."""

from django import forms
from django.utils.text import capfirst

from consent.models import Level
from training.services.head_counts import MOST


class HeadCountForm(forms.Form):
    """Form for the number of holders at each level, from a public source."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        for level in Level:
            self.fields[level.value] = forms.IntegerField(label=capfirst(str(level.label)), min_value=0, max_value=MOST)

    def counts(self) -> dict[str, int]:
        """Level → number."""
        return {level: self.cleaned_data[level] for level in Level.values}
