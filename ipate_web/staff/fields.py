"""Fields shared by several staff forms."""

from datetime import date, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.people.circumstances import day_of
from consent.services.committee import ANSWER_DAYS, answer_day
from ipate_web.lists import DayField


def _in_time() -> date:
    return day_of(timezone.now()) + timedelta(days=ANSWER_DAYS)


class AnswerField(DayField):
    """Field for the day by which the ethics committee should answer a proposal; two weeks from now by default."""

    def __init__(self) -> None:
        super().__init__(
            label=_("Answer by"),
            required=False,
            initial=_in_time,
            help_text=_(
                "Everyone in the study can see this. After this day the chair gets an email, but the proposal is "
                "neither approved nor rejected automatically."
            ),
        )

    def clean(self, value: Any) -> date | None:
        """Return the given day, if within the range. Raises ValidationError."""
        day = super().clean(value)
        if day is not None:
            answer_day(day)
        return day


class LinesField(forms.CharField):
    """Field for texts, one per line."""

    def __init__(self, *, rows: int = 3, **kwargs: Any) -> None:
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": rows, "spellcheck": "false"}), **kwargs)

    def clean(self, value: Any) -> list[str]:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


REASON_LENGTH = 500


class ReasonForm(forms.Form):
    """Form for the reason of an act that cannot be undone."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_LENGTH,
        help_text=_("This is stored permanently with your name."),
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class WithdrawalForm(ReasonForm):
    """Form for the reason why a model is withdrawn, shown to everyone who asks for the model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = _("Everyone who downloaded the model or asks for it sees this.")
