"""A run before it runs: proposed, checked, approved, or ended."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from accounting.selectors import Standing
from consent.models import Study
from ipate_web.requests import SignedInRequest
from training.forms.runs import RunForm, initial_for, initial_like
from training.forms.spending import SpendingForm
from training.models import Dataset, Run
from training.pate import PlanError
from training.selectors import runs_visible_to
from training.services import lifecycle
from training.services.planning import run_plan
from training.templatetags.run_words import said
from training.views.pages import render_page, study_page


def plan_or_reason(run: Run) -> dict[str, Any]:
    """``plan`` of ``run`` as of now, group by group with what each may spend; or ``plan_error``, why there is none."""
    try:
        planned = run_plan(run)
    except PlanError as error:
        return {"plan_error": error.args[0]}
    parts: list[list[tuple[Standing, float]]] = [[] for _group in planned.plan.groups]
    for index, standing, allowed in zip(planned.group_of, planned.standings, planned.allowances, strict=True):
        parts[index].append((standing, allowed))
    groups = list(zip(planned.plan.groups, parts, strict=True))
    return {"plan": planned.plan, "plan_groups": groups, "plan_notes": planned.notes}


def _sees_plans(request: SignedInRequest, study: Study) -> bool:
    """A plan tells how large the groups are, and what earlier votes on private data have left of their budgets."""
    return request.user.has_perms(("consent.view_group_sizes", "accounting.view_private_costs"), study)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("training.propose_run")
def run_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Fill in, check the plan, save as a draft."""
    is_staff = request.user.has_perm("consent.view_dashboard", study)
    form = RunForm(
        request.POST or None,
        initial=None if request.method == "POST" else _initial(request, study),
        study=study,
        acting_user=request.user,
        may_simulate=is_staff,
    )
    if form.is_valid() and "change" not in request.POST:
        if "confirmed" in request.POST:
            run = lifecycle.run_propose(study=study, acting_user=request.user, **form.run_fields())
            messages.success(request, _("The run is saved as a draft. It starts once an operator approves it."))
            return redirect("training:run", study.slug, run.pk)
        run = form.proposal()
        context: dict[str, Any] = {"form": form, "run": run}
        if _sees_plans(request, study):
            context |= plan_or_reason(run)
        return render_page(request, study, "training/run_check.html", context)
    missing = [
        kind.label
        for kind in (Dataset.Kind.PRIVATE, Dataset.Kind.PUBLIC)
        if not study.datasets.filter(kind=kind).exists()
    ]  # without them there is nothing to propose
    context = {"form": form, "missing": missing}
    return render_page(request, study, "training/run_new.html", context, status=422 if form.errors else 200)


def _initial(request: SignedInRequest, study: Study) -> dict[str, Any]:
    """The values of the run that the address names, if any, else some that suit the study."""
    like = request.GET.get("like")
    if not like:
        return initial_for(study, request.user)
    try:
        return initial_like(get_object_or_404(runs_visible_to(request.user), study=study, pk=like), request.user)
    except ValidationError:  # no id at all
        return initial_for(study, request.user)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("training.approve_run")
def run_approve(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """What the run would do, how much it may spend, and the yes that reserves it and starts the run."""
    if not _sees_plans(request, study):  # nobody approves what they may not see
        raise PermissionDenied
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if run.status != Run.Status.DRAFT:
        messages.info(request, _("This run is not a draft any more."))
        return redirect("training:run", study.slug, run.pk)
    form = SpendingForm(request.POST if request.method == "POST" else None)
    asked = form.asked() if form.is_valid() else {}
    if form.is_valid() and "look" not in request.POST:
        try:
            lifecycle.run_approve(run=run, acting_user=request.user, **asked)
        except PlanError as error:
            messages.error(request, said(error.args[0]))
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
        else:
            messages.success(request, _("The run is approved. The next free worker starts it."))
        return redirect("training:run", study.slug, run.pk)
    run.spending_share, run.spending_epsilons = asked.get("share", 1.0), asked.get("epsilons", {})
    context = {"form": form, "run": run, **plan_or_reason(run)}
    return render_page(request, study, "training/run_approve.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("training.cancel_run")
def run_cancel(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """What cancelling leaves behind, and the yes that ends the run."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if run.has_ended:
        messages.info(request, _("This run has ended already."))
        return redirect("training:run", study.slug, run.pk)
    if request.method == "POST":
        run = lifecycle.run_cancel(run=run, acting_user=request.user)
        if run.status == Run.Status.CANCELLED:
            messages.success(request, _("The run is cancelled."))
        return redirect("training:run", study.slug, run.pk)
    return render_page(request, study, "training/run_cancel.html", {"run": run})
