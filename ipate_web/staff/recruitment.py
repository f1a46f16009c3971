"""Pages about numbers of participants: recruitment over time, and head counts."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from accounting.group_budgets import head_counts as head_counts_of
from accounting.models import Release
from accounting.shares import share_free
from common.requests import SignedInRequest
from consent.models import Level, Study
from consent.people.counts import STATES, RecruitmentHistory, recruitment_history, recruitment_overview
from consent.people.exports import FORMATS, export_name
from ipate_web.staff.charts import Chart, Series
from ipate_web.staff.pages import faults_show, number_sent, render_page, streamed_attachment, study_form, study_page
from training.services.drawings import MOST, SHARE, drawing_last, drawing_plan, head_counts_draw, head_counts_enter


class HeadCountForm(forms.Form):
    """Form for the number of holders at each level, from a public source."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        for level in Level:
            self.fields[level.value] = forms.IntegerField(label=capfirst(str(level.label)), min_value=0, max_value=MOST)

    def counts(self) -> dict[str, int]:
        """Return the number of holders by level."""
        return {level: self.cleaned_data[level] for level in Level.values}


def _state_names() -> dict[str, str]:
    return {
        **{level.value: capfirst(str(level.label)) for level in Level},
        "WITHDRAWN": _("Withdrew"),
        "REFUSED": _("Refused"),
        "SUSPENDED": _("Consented, asked again"),
    }


def _chart(history: RecruitmentHistory, names: dict[str, str]) -> Chart:
    """Return a chart of the number of holders at each level, day by day."""
    series = [Series(names[level], history.holders[:, place].tolist()) for place, level in enumerate(Level.values)]
    return Chart(
        [date_format(day, "SHORT_DATE_FORMAT") for day in history.days], series, y_label=_("Holders"), scale="category"
    )


@require_safe
@study_page("consent.view_group_sizes")
def recruitment(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the current exact numbers and their history."""
    overview, history, names = recruitment_overview(study), recruitment_history(study), _state_names()
    context: dict[str, Any] = {
        "overview": overview,
        "states": [(names[state], count) for state, count in overview.counts.items()],
        "history": history,
        "state_names": [names[state] for state in STATES],
        "chart": _chart(history, names),
    }
    return render_page(request, study, "staff/people/recruitment.html", context)


@require_safe
@study_page("consent.export_consents")
def consents_export(request: SignedInRequest, study: Study, kind: str) -> StreamingHttpResponse:
    """Stream the consent records as a file."""
    return streamed_attachment(study, FORMATS.get(kind), export_name(study, kind))


@study_form("training.approve_run")
def head_counts(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the counts used by plans, and forms for drawing new ones and for public numbers. Not for rehearsals."""
    if study.rehearsal:
        raise Http404
    form = HeadCountForm(request.POST if "enter" in request.POST else None)
    if request.method == "POST":
        with faults_show(request):
            if "draw" in request.POST:
                head_counts_draw(study=study, acting_user=request.user, follows=number_sent(request.POST, "follows"))
                messages.success(request, _("Head counts taken. Plans use them from now on."))
                return redirect("staff:head_counts", study.slug)
            if form.is_valid():
                head_counts_enter(study=study, acting_user=request.user, counts=form.counts())
                messages.success(request, _("Numbers entered. Plans use them from now on."))
                return redirect("staff:head_counts", study.slug)
    context: dict[str, Any] = {
        "form": form,
        "counts": head_counts_of(study),
        "follows": drawing_last(study, Release.Kind.HEAD_COUNTS),
        "share": SHARE,
        "share_free": share_free(study),
    }
    try:
        context["drawing"] = drawing_plan(study)
    except ValidationError as error:
        context["no_drawing"] = " ".join(error.messages)
    return render_page(request, study, "staff/study/head_counts.html", context)
