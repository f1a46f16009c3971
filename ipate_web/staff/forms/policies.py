"""Forms to propose and approve an ε policy."""

from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounting.head_counts import head_counts
from consent.models import EpsilonPolicy, Level, Study
from consent.services import epsilon_policy_check
from ipate_web.staff.forms.fields import AnswerField
from training.models import Dataset

LEVEL_FIELDS = ("high", "average", "low")


def _epsilon(label: Any) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"})
    return forms.FloatField(label=label, min_value=0, widget=widget)


class PolicyForm(forms.Form):
    """Form for an ε policy: ε by level, and the reason."""

    high = _epsilon(_("ε at high protection"))
    average = _epsilon(_("ε at average protection"))
    low = _epsilon(_("ε at low protection"))
    reason = forms.CharField(
        label=_("Reason"),
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=_("Why these values fit this study. It is kept with the policy for good."),
    )
    name_reason = forms.CharField(
        label=_("Why the names fit all the same"),
        required=False,
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=EpsilonPolicy._meta.get_field("name_reason").help_text,
    )

    answer_by = AnswerField()

    def clean(self) -> dict[str, Any]:
        values = {name: self.cleaned_data[name] for name in LEVEL_FIELDS if name in self.cleaned_data}
        if len(values) == len(LEVEL_FIELDS):
            epsilon_policy_check(**values)
        return self.cleaned_data

    def policy(self, study: Study) -> EpsilonPolicy | None:
        """Unsaved policy of the given values; None while they are incomplete or invalid."""
        if self.is_bound:
            usable = not {NON_FIELD_ERRORS, *LEVEL_FIELDS} & set(self.errors)
            values = {name: self.cleaned_data.get(name) for name in LEVEL_FIELDS} if usable else {}
        else:
            values = {name: self.initial.get(name) for name in LEVEL_FIELDS}
        if any(values.get(name) is None for name in LEVEL_FIELDS):
            return None
        return EpsilonPolicy(study=study, **values)


class AffordableForm(forms.Form):
    """Form for the forecast of what a policy affords: public points, and how many holders stand at each level."""

    public_dataset = forms.ModelChoiceField(Dataset.objects.none(), label=_("Public dataset"), empty_label=None)
    wanted_labels = forms.IntegerField(
        label=_("Labels wanted"), min_value=1, required=False, help_text=_("Empty: one for every public point.")
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        datasets = study.datasets.filter(kind=Dataset.Kind.PUBLIC, removed_at=None).order_by("-imported_at")
        self.fields["public_dataset"].queryset = datasets  # type: ignore[attr-defined]
        self.has_points = datasets.exists()
        counts = head_counts(study)
        self.has_counts = bool(counts)
        for level in Level:
            self.fields[_holders(level)] = forms.IntegerField(
                label=_("Holders at %(level)s") % {"level": level.label},
                min_value=0,
                initial=sum(count.count for count in counts if count.level == level) if counts else None,
            )

    def holders(self) -> dict[str, int]:
        """Level → number."""
        return {level.value: self.cleaned_data[_holders(level)] for level in Level}


def _holders(level: Level) -> str:
    return f"holders-{level.value}"


class ConditionsForm(forms.Form):
    """Form for the conditions of an approval."""

    conditions = forms.CharField(
        label=_("Conditions of your approval"),
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("Operators read them. They stay on record with your name. Empty: there are none."),
    )


class ApprovalForm(ConditionsForm):
    """Form for the approval of a policy: conditions and effective date."""

    effective_from = forms.DateTimeField(
        label=_("In force from"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=_("Leave it empty for at once."),
    )

    def clean_effective_from(self) -> datetime | None:
        moment = self.cleaned_data["effective_from"]
        if moment and moment < timezone.now():
            raise ValidationError(_("This moment has passed. Give a later one, or none for at once."))
        return moment
