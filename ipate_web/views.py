"""Home page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from consent.models import DataHolder
from consent.permissions import studies_with_permission
from consent.views.visits import visit_of
from training.queue import queue_watchable
from training.waiting import waiting_for


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
    waiting = waiting_for(request.user)
    context = {
        "studies": studies,
        "dashboards": set(dashboards),
        "holds": holds,
        "waiting": [each for each in waiting if not each.is_own],
        "watches_queue": queue_watchable(request.user),
        "proposed": [each for each in waiting if each.is_own],
    }
    return render(request, "home.html", context)
