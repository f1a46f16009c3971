"""Home page."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from accounting.group_budgets import HeadCountTotal, head_count_total
from consent.disclosure import SEES_PEOPLE
from consent.models import DataHolder, Membership, Role, Study
from consent.permissions import administers, studies_with_permission
from consent.views.visits import visit_of
from ipate_web.first_run import first_run
from ipate_web.staff.budgets import BudgetOverview, budget_overview
from ipate_web.waiting import waiting_for
from ipate_web.watching import alarms, backup_last
from training.models import Run
from training.queue import queue_for, queue_watchable
from training.watch import installation_watch, watches


@dataclass(frozen=True)
class Glance:
    """Study on the home page, with ``people`` and ``budgets`` while it is open, for those who see its overview."""

    study: Study
    latest: Run | None
    people: HeadCountTotal | None = None
    budgets: BudgetOverview | None = None


def _glance(study: Study, *, sees_overview: bool) -> Glance:
    latest = study.runs.select_related("student").first()
    if not sees_overview or study.rehearsal or study.is_closed:
        return Glance(study, latest)
    return Glance(study, latest, head_count_total(study), budget_overview(study))


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Home page: a description for visitors, their studies for signed-in users and visits by invitation."""
    visit = visit_of(request)
    if visit is not None and not visit.is_over:
        return redirect("consent:my_studies")
    if not request.user.is_authenticated:
        return render(request, "home.html")
    studies = studies_with_permission(request.user, "training.view_run")
    holds = DataHolder.objects.filter(user_id=request.user.pk).exists()
    if holds and not studies.exists():
        return redirect("consent:my_studies")
    dashboards = studies_with_permission(request.user, "consent.view_dashboard")
    overseen = set(dashboards)
    waiting = waiting_for(request.user)
    glances = [
        _glance(study, sees_overview=study in overseen)
        for study in sorted(studies, key=lambda study: study.is_closed)  # each part by title
    ]
    context: dict[str, Any] = {
        "studies": studies,
        "glances": glances,
        "low": [glance.budgets for glance in glances if glance.budgets is not None and glance.budgets.low],
        "holds": holds,
        "first_run": first_run(request.user),
        "waiting": [each for each in waiting if not each.is_own],
        "queue": queue_for(request.user) if queue_watchable(request.user) else None,
        "proposed": [each for each in waiting if each.is_own],
        "watches": [
            each
            for each in watches(
                dashboards,
                all_of=studies_with_permission(request.user, SEES_PEOPLE).values_list("pk", flat=True),
            )
            if not each.is_fine
        ],
    }
    is_auditor = Membership.objects.filter(user_id=request.user.pk, role=Role.AUDITOR).exists()
    if is_auditor or administers(request.user):
        context["watches"] += [each for each in [installation_watch()] if not each.is_fine]
    if administers(request.user):
        # What is found of studies has notes of its own.
        context |= {"last_backup": backup_last(), "alarms": {k: v for k, v in alarms().items() if k != "verification"}}
    return render(request, "home.html", context)
