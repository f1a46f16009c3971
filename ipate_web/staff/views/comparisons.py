"""Page on which runs are compared."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.models import Study
from ipate_web.staff.comparison import cost_charts, measure_rows, parameter_rows, recall_chart, run_titles, step_charts
from ipate_web.staff.views.pages import render_page, study_page
from training.comparison import MOST, runs_compare
from training.models import Run
from training.selectors import runs_visible_to


@require_safe
@study_page("training.view_run")
def run_compare(request: SignedInRequest, study: Study) -> HttpResponse:
    """Compare the runs that the address names, in their order; it can be kept and shared."""
    ids = list(dict.fromkeys(request.GET.getlist("run")))
    runs = _found(request, study, ids) if len(ids) <= MOST else []
    problem = _problem(len(ids), len(runs))
    context: dict[str, Any] = {"problem": problem, "most": MOST, "is_new": not ids}
    if not problem and len(runs) > 1:
        comparison = runs_compare(runs)
        compared = comparison.runs
        context |= {
            "compared": list(zip(run_titles(compared), compared, strict=True)),
            "tells_classes": any(each.run.classes for each in compared),
            "measures": measure_rows(compared),
            "parameters": parameter_rows(comparison.parameters, runs),
            "charts": [*cost_charts(compared), *step_charts(compared)],
            "recalls": recall_chart(compared),
        }
    return render_page(request, study, "staff/runs/compare.html", context, status=404 if problem else 200)


def _found(request: SignedInRequest, study: Study, texts: list[str]) -> list[Run]:
    """The runs of a study with these ids, in this order; ids that are none, or of no run, are left out."""
    ids = [key for text in texts if (key := _id(text)) is not None]
    visible = runs_visible_to(request.user).filter(study=study)
    datasets = ("private_dataset", "public_dataset", "test_dataset", "labelled_dataset")
    related = (*datasets, "created_by", "student")
    runs = visible.select_related(*related).in_bulk(ids)
    return [runs[pk] for pk in ids if pk in runs]


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _problem(count: int, present: int) -> str:
    """The fault of a choice of runs, with what to do; empty if there is none."""
    if count > MOST:
        message = _("%(wanted)d runs are too many for one page. Choose at most %(most)d.")
        return message % {"wanted": count, "most": MOST}
    if present < count:
        return _("A run of this address is not there, or is none of this study. Choose the runs from the list.")
    return ""
