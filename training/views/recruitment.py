"""How many were asked, how many decided, and how."""

from typing import Any

from django.http import HttpResponse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from consent.models import Level, Study
from consent.recruitment import STATES, Course, recruitment_course, recruitment_overview
from ipate_web.requests import SignedInRequest
from training.views.pages import render_page, study_page


def _state_names() -> dict[str, str]:
    return {
        **{level.value: capfirst(str(level.label)) for level in Level},
        "WITHDRAWN": _("Withdrew"),
        "REFUSED": _("Refused"),
        "SUSPENDED": _("Consented, asked anew"),
    }


def _chart(course: Course, names: dict[str, str]) -> dict[str, Any]:
    return {
        "labels": [day.isoformat() for day in course.days],
        "series": [
            {"name": names[level], "values": course.holders[:, place].tolist()}
            for place, level in enumerate(Level.values)
        ],
        "y": _("Holders"),
    }


@require_safe
@study_page("consent.view_recruitment")
def recruitment(request: SignedInRequest, study: Study) -> HttpResponse:
    """The numbers of today for all who work on the study; exact ones and their course for those who need them."""
    exact = request.user.has_perm("consent.view_group_sizes", study)
    overview, names = recruitment_overview(study, exact=exact), _state_names()
    context: dict[str, Any] = {
        "overview": overview,
        "states": [(names[state], count) for state, count in overview.counts.items()],
    }
    if exact:
        course = recruitment_course(study)
        context |= {"course": course, "state_names": [names[state] for state in STATES], "chart": _chart(course, names)}
    return render_page(request, study, "training/recruitment.html", context)
