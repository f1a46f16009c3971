"""Pages of a study: creation, overview, settings."""

from collections.abc import Callable
from copy import copy
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounting.exports import budgets_csv
from accounting.head_counts import head_counts
from accounting.shares import share_free
from common.requests import SignedInRequest
from consent import selectors, services
from consent.committee import conditions_in_force
from consent.counts import holders_per_level
from consent.disclosure import SEES_PEOPLE
from consent.facts import facts_missing
from consent.forms import options
from consent.models import Level, Study
from ipate_web.first_run import next_steps
from ipate_web.staff.budgets import budget_overview
from ipate_web.staff.forms.studies import StudyForm
from ipate_web.staff.impact import impact_markdown, impact_pdf
from ipate_web.staff.views.pages import attachment, faults_show, render_page, study_form, study_page
from training.models import Run
from training.run_lists import runs_filter, runs_in_table
from training.selectors import run_totals
from training.selectors import study_budgets as budgets_of

LATEST_RUNS = 5


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def study_new(request: SignedInRequest) -> HttpResponse:
    """Create a study; its creator becomes its operator, in a rehearsal study its data steward, too."""
    if not request.user.has_perm("consent.add_study"):
        raise PermissionDenied
    form = StudyForm(request.POST or None)
    if form.is_valid():
        study = services.study_create(acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("The study is set up. The list below says what comes next."))
        return redirect("staff:study", study.slug)
    return render(request, "staff/study/new.html", {"form": form}, status=422 if form.errors else 200)


@study_form("consent.change_study")
def study_edit(request: SignedInRequest, study: Study) -> HttpResponse:
    """Change a study's settings: all before holders can decide, few afterwards."""
    settled = services.study_fixed(study)
    fixed = ("slug", "rehearsal", *settled)
    form = StudyForm(request.POST or None, instance=copy(study), fixed=fixed)
    if form.is_valid():
        with faults_show(request):  # form or policy came into force while the page was open
            services.study_update(study=study, acting_user=request.user, **form.cleaned_data)
            messages.success(request, _("The changes are saved."))
            return redirect("staff:study", study.slug)
        return redirect("staff:study_edit", study.slug)
    context = {"form": form, "settled": settled}
    return render_page(request, study, "staff/study/edit.html", context)


@require_safe
@study_page("consent.view_dashboard")
def study_impact(request: SignedInRequest, study: Study, kind: str) -> HttpResponse:
    """Summary for the data protection impact assessment, as PDF or Markdown; a rehearsal concerns nobody."""
    makers: dict[str, tuple[Callable[[Study], str | bytes], str]] = {
        "pdf": (impact_pdf, "application/pdf"),
        "md": (impact_markdown, "text/markdown; charset=utf-8"),
    }
    if study.rehearsal or kind not in makers:
        raise Http404
    make, content_type = makers[kind]
    response = HttpResponse(make(study), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{study.slug}-impact.{kind}"'
    return response


@require_safe
@study_page("consent.view_dashboard")
def study(request: SignedInRequest, study: Study) -> HttpResponse:
    """Overview of a study: who takes part, what may still be used, its runs, and what to do next."""
    policy = selectors.policy_in_force(study)
    runs = run_totals(study)
    context: dict[str, Any] = {
        "policy": policy,
        "conditions": conditions_in_force(study),
        "options": options(policy, study.delta)[:3] if policy else [],
        "consent_form": selectors.consent_form_in_force(study),
        "missing": facts_missing(study),
        "datasets": study.datasets.filter(removed_at=None).only("study", "name", "kind", "rows"),
        "latest_runs": _latest_runs(study) if "training.view_run" in request.can else [],
        "runs": runs,
        "steps": [] if runs.finished else next_steps(study, request.can),
        "head_counts": head_counts(study),
        "budgets": None if study.rehearsal else budget_overview(study),
        "share_free": share_free(study),
    }
    if SEES_PEOPLE in request.can and not study.rehearsal:
        context |= _taking_part(study)
    return render_page(request, study, "staff/study/study.html", context)


@require_safe
@study_page("consent.view_dashboard")
def study_budgets(request: SignedInRequest, study: Study) -> HttpResponse:
    """Live part of the overview: what each privacy group has used and has left."""
    context = {"study": study, "can": request.can, "budgets": budget_overview(study)}
    return render(request, f"staff/budgets/{'home' if 'bars' in request.GET else 'live'}.html", context)


@require_safe
@study_page("consent.view_dashboard")
def study_budget_file(request: SignedInRequest, study: Study) -> HttpResponse:
    """The same numbers as a file."""
    pieces = budgets_csv(budgets_of(study))
    return attachment("".join(pieces), f"{study.slug}-budget.csv", "text/csv; charset=utf-8")


def _latest_runs(study: Study) -> list[Run]:
    return list(runs_in_table(runs_filter(study.runs.all()))[:LATEST_RUNS])


def _taking_part(study: Study) -> dict[str, Any]:
    """Exact numbers, for those who handle consents; they must not steer runs."""
    counts = holders_per_level(study)
    taking_part = sum(counts[level] for level in Level.values)
    return {
        "taking_part": taking_part,
        "counts": counts,
        "levels": [(level.label, counts[level]) for level in Level],
    }
