"""Form above a list of runs: search, filters, order."""

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.forms.renderers import Jinja2
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from ipate_web.staff.forms.fields import DayField, FilterForm
from training.models import Run
from training.run_lists import NEWEST, SEARCH_LENGTH, SORTS, proposers_of


def _any_of(choices: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [("", _("all")), *((value, capfirst(str(label))) for value, label in choices)]


class RunFilterForm(FilterForm):
    """Search, filters and order of a list of ``runs``, as `runs_filter` takes them."""

    #: It stands on a page that is asked for often, and Jinja renders long lists of choices several times as fast.
    default_renderer = Jinja2()

    search = forms.CharField(label=_("Words of title or purpose"), required=False, max_length=SEARCH_LENGTH)
    status = forms.ChoiceField(label=_("Status"), required=False)
    method = forms.ChoiceField(label=_("Method"), required=False)
    proposer = forms.ChoiceField(label=_("Proposed by"), required=False)
    since = DayField(label=_("Proposed since"), required=False)
    until = DayField(label=_("Proposed until"), required=False)
    sort = forms.ChoiceField(label=_("Order"), required=False)

    def __init__(self, *args: Any, runs: QuerySet[Run], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = {
            "status": _any_of(Run.Status.choices),
            "method": _any_of(Run.Method.choices),
            "proposer": [("", _("all")), *((name, name) for name in proposers_of(runs))],
            "sort": [("" if name == NEWEST else name, label) for name, label in SORTS.items()],
        }
        for name, values in choices.items():
            self.fields[name].choices = values  # type: ignore[attr-defined]

    @property
    def narrows(self) -> bool:
        """Whether some runs may be left out."""
        return bool(self.chosen().keys() - {"sort"})
