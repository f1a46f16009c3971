"""Forms to end things for good: erase a person's records, remove a dataset, close a study, withdraw a model."""

from datetime import date
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from consent.models import Study
from ipate_web.staff.forms.fields import DayField

REASON_LENGTH = 500


class ReasonForm(forms.Form):
    """Form for the reason of an act that cannot be undone."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_LENGTH,
        help_text=_("It is kept with your name for good."),
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class WithdrawalForm(ReasonForm):
    """Form for the reason why a model is withdrawn, which everybody reads who asks for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = _("Everybody who took the model or asks for it reads this.")


class PublicationForm(ReasonForm):
    """Form for the reason to publish what a run would not publish by itself; empty where it would."""

    def __init__(self, *args: Any, doubtful: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = _("The card of the model shows it.")
        if not doubtful:
            del self.fields["reason"]


class ErasureForm(ReasonForm):
    """Form to have the records of one person erased, who asked for it."""

    pseudonym = forms.CharField(label=_("Pseudonym"), max_length=200)
    field_order = ("pseudonym", "reason")


class ClosingForm(ReasonForm):
    """Form to close a study: the reason, and the last day of its private records."""

    erase_after = DayField(
        label=_("Last day of the private records"),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = _("Holders read it. It is kept with your name for good.")
        field = self.fields["erase_after"]
        if study.rehearsal:
            del self.fields["erase_after"]
        elif study.retention_until is not None:
            field.initial = study.retention_until
            field.widget.attrs["max"] = study.retention_until.isoformat()
            field.help_text = _("Holders were told this day. You can choose an earlier one.")
        else:
            field.help_text = _("They are erased on the day after it. A day that is over: at once.")

    @property
    def last_day(self) -> date | None:
        """The day that was chosen; the form is valid."""
        return self.cleaned_data.get("erase_after")
