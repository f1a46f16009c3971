"""Recruitment page."""

from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from common.requests import SignedInRequest
from consent.exports import FORMATS, export_name
from consent.models import Level, Study
from consent.recruitment import STATES, RecruitmentHistory, recruitment_history, recruitment_overview
from ipate_web.staff.charts import Chart, Series
from ipate_web.staff.views.pages import render_page, streamed_attachment, study_page


def _state_names() -> dict[str, str]:
    return {
        **{level.value: capfirst(str(level.label)) for level in Level},
        "WITHDRAWN": _("Withdrew"),
        "REFUSED": _("Refused"),
        "SUSPENDED": _("Consented, asked anew"),
    }


def _chart(history: RecruitmentHistory, names: dict[str, str]) -> Chart:
    """Chart of the number of holders at each level, day by day."""
    series = [Series(names[level], history.holders[:, place].tolist()) for place, level in enumerate(Level.values)]
    return Chart([day.isoformat() for day in history.days], series, y_label=_("Holders"), scale="category")


@require_safe
@study_page("consent.view_group_sizes")
def recruitment(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the exact numbers of now and their history."""
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
