"""Form that filters the changes of a study's configuration."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _


class ChangesFilter(forms.Form):
    """Filter of changes by row, person and time; what is malformed is said, and does not count."""

    use_required_attribute = False

    model = forms.ChoiceField(label=_("What was changed"), required=False)
    by = forms.ChoiceField(label=_("Changed by"), required=False)
    since = forms.DateField(
        label=_("Changed since"), required=False, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    )
    until = forms.DateField(
        label=_("Changed until"), required=False, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    )

    def __init__(self, *args: Any, models: list[tuple[str, str]], people: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].choices = [("", _("all")), *models]  # type: ignore[attr-defined]
        self.fields["by"].choices = [("", _("all")), *((name, name) for name in people)]  # type: ignore[attr-defined]

    def chosen(self) -> dict[str, Any]:
        """Conditions of the filter."""
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}
