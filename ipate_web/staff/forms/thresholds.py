"""The form in which the threshold of a published model is chosen."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from training.models import Run


class ThresholdForm(forms.Form):
    """Form for the class that a threshold is of, and for costs or a wanted sensitivity; no class for no threshold."""

    class_name = forms.ChoiceField(label=_("Class"), required=False)
    missed = forms.FloatField(
        label=_("Cost of missing it"), required=False, min_value=0, help_text=_("In any unit, the same for both costs.")
    )
    false_alarm = forms.FloatField(label=_("Cost of saying it falsely"), required=False, min_value=0)
    sensitivity = forms.FloatField(
        label=_("Or: wanted sensitivity"),
        required=False,
        min_value=0.01,
        max_value=1,
        help_text=_("Share of the records of the class that are to be found, such as 0.9."),
    )

    def __init__(self, *args: Any, run: Run, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        none = ("", _("none: the likeliest class is said"))
        self.fields["class_name"].choices = [none, *((name, name) for name in run.classes)]  # type: ignore[attr-defined]
