"""Home page, and the pages of the installation itself: logo, privacy notice, accessibility statement, documents.

The software includes a privacy notice and an accessibility statement, which apply if it is unmodified. Installations
can add Markdown files to the folder ``settings.SITE_PAGES``, one per page and language, such as ``privacy.de.md``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from django.views.decorators.http import require_safe
from django.views.static import serve

from accounting.group_budgets import HeadCountTotal, head_count_total
from common import __version__
from consent.models import DataHolder, Membership, Role, Study
from consent.permissions import SEES_PEOPLE, administers, studies_with_permission
from consent.views.visits import visit_of
from consent.wording.rendering import markdown_html
from ipate_web.first_run import first_run
from ipate_web.staff.budgets import BudgetOverview, budget_overview
from ipate_web.waiting import waiting_for
from ipate_web.watching import alarms, backup_last
from training.models import Run
from training.queue import queue_for, queue_watchable
from training.watch import installation_watch, watches


@dataclass(frozen=True)
class Glance:
    """Study on the home page, with ``people`` and ``budgets`` while it is open, for users who may see its overview."""

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
    """Show the home page: a description for visitors; the studies of people who are signed in or have an invitation."""
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
        for study in sorted(studies, key=lambda study: study.is_closed)  # each part is sorted by its title
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
                dashboards, all_of=studies_with_permission(request.user, SEES_PEOPLE).values_list("pk", flat=True)
            )
            if not each.is_fine
        ],
    }
    is_auditor = Membership.objects.filter(user_id=request.user.pk, role=Role.AUDITOR).exists()
    if is_auditor or administers(request.user):
        context["watches"] += [each for each in [installation_watch()] if not each.is_fine]
    if administers(request.user):
        # Findings about studies are shown as separate notes.
        context |= {"last_backup": backup_last(), "alarms": {k: v for k, v in alarms().items() if k != "verification"}}
    return render(request, "home.html", context)


# --- Pages of the installation itself ---------------------------------------------------------------------------------


_LOGOS = {".svg": "image/svg+xml", ".png": "image/png"}


def own_text(name: str) -> tuple[SafeString, str] | None:
    """Return the installation's own text for a page and its language (the reader's or the site's first), or None."""
    for language in (get_language() or "", settings.LANGUAGE_CODE):
        path = Path(settings.SITE_PAGES, f"{name}.{language.split('-')[0]}.md")
        if settings.SITE_PAGES and path.is_file():
            return markdown_html(path.read_text(encoding="utf-8")), language
    return None


def _page(request: HttpRequest, name: str) -> HttpResponse:
    own = own_text(name)
    context = {
        "own": own[0] if own else None,
        "own_language": own[1] if own else None,
        "site_operator": settings.SITE_OPERATOR,
        "site_contact": settings.SITE_CONTACT,
        "backup_days": settings.BACKUP_DAYS,
        "version": __version__,
    }
    return render(request, f"site/{name}.html", context)


@require_safe
def privacy(request: HttpRequest) -> HttpResponse:
    """Show the privacy notice on data about the site's visitors; open to everyone."""
    return _page(request, "privacy")


@require_safe
def accessibility(request: HttpRequest) -> HttpResponse:
    """Show the accessibility statement, with the contact for reporting barriers; open to everyone."""
    return _page(request, "accessibility")


@require_safe
def logo(request: HttpRequest) -> FileResponse:
    """Return the installation's logo; 404 if it has none."""
    if not settings.SITE_LOGO:
        raise Http404
    path = Path(settings.SITE_LOGO)
    response = FileResponse(path.open("rb"), content_type=_LOGOS[path.suffix])
    response["Cache-Control"] = "public, max-age=3600"
    return response


@require_safe
def documents(request: HttpRequest, path: str = "index.html") -> HttpResponseBase:
    """Return a file of the documentation site; 404 if ``make docs`` has not built it."""
    return serve(request, path, document_root=str(settings.DOCUMENTS))
