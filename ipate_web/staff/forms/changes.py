"""Form that filters the changes of a study's configuration."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from ipate_web.staff.forms.fields import DayField, FilterForm


class ChangesFilter(FilterForm):
    """Filter of changes by row, person and time."""

    model = forms.ChoiceField(label=_("What was changed"), required=False)
    by = forms.ChoiceField(label=_("Changed by"), required=False)
    since = DayField(label=_("Changed since"), required=False)
    until = DayField(label=_("Changed until"), required=False)

    def __init__(self, *args: Any, models: list[tuple[str, str]], people: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].choices = [("", _("all")), *models]  # type: ignore[attr-defined]
        self.fields["by"].choices = [("", _("all")), *((name, name) for name in people)]  # type: ignore[attr-defined]
