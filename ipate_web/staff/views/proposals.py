"""Pages to propose, check, approve and cancel a run."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_http_methods

from accounting.shares import share_free
from common.requests import SignedInRequest
from consent.models import Study
from consent.permissions import members_with_permission
from ipate_web.staff.forms.runs import RunForm, initial_for, initial_like
from ipate_web.staff.forms.share import ShareForm, share_offered
from ipate_web.staff.templatetags.run_words import said
from ipate_web.staff.views.pages import render_page, study_page
from training.methods.pate import PlanError
from training.models import Dataset, Run
from training.selectors import runs_visible_to
from training.services import runs as run_commands
from training.services.methods import method_of

NO_PROVENANCE = gettext_noop(
    "Nobody has stated where the public points come from. State it on the page of their dataset, for the model card."
)


def plan_or_reason(run: Run, share: float = 1.0) -> dict[str, Any]:
    """``plan`` of ``run`` with what to check about it, ``plan_notes``; or ``plan_error``, why there is none."""
    try:
        planned = method_of(run).plan(run, share)
    except PlanError as error:
        return {"plan_error": error.args[0]}
    notes: list[str] = list(planned.notes)
    if not run.rehearsal and run.public_dataset is not None and not run.public_dataset.provenance:
        notes.append(NO_PROVENANCE)
    return {"plan": planned, "plan_notes": notes}


def second_person(run: Run, user: Any) -> dict[str, Any]:
    """Whether ``user`` may not approve the draft because it ``is_own``, and who may: its ``approvers``."""
    if run.status != Run.Status.DRAFT or not user.has_perm("training.approve_run", run.study):
        return {}
    approvers = members_with_permission(run.study, "training.approve_run").exclude(pk=user.pk)
    return {
        "is_own": run.created_by_id == user.pk,
        "is_orphan": run.created_by_id is None,
        "approvers": ", ".join(str(approver) for approver in approvers),
    }


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("training.propose_run")
def run_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Fill in, check the plan, save as a draft."""
    form = RunForm(
        request.POST or None,
        initial=None if request.method == "POST" else _initial(request, study),
        study=study,
        acting_user=request.user,
    )
    if form.is_valid() and "change" not in request.POST:
        if "confirmed" in request.POST:
            run = run_commands.run_propose(study=study, acting_user=request.user, **form.run_fields())
            messages.success(request, _("The run is saved as a draft. It starts once an operator approves it."))
            return redirect("staff:run", study.slug, run.pk)
        run = form.proposal()
        context: dict[str, Any] = {"form": form, "run": run, **plan_or_reason(run, _share_to_look_at(study))}
        return render_page(request, study, "staff/runs/check.html", context)
    missing = [
        kind.label
        for kind in (Dataset.Kind.PRIVATE, Dataset.Kind.PUBLIC)
        if not study.datasets.filter(kind=kind, removed_at=None).exists()
    ]  # without them there is nothing to propose
    context = {"form": form, "missing": missing}
    return render_page(request, study, "staff/runs/new.html", context, status=422 if form.errors else 200)


def _share_to_look_at(study: Study) -> float:
    """Share that an approver is offered first, see :class:`ipate_web.staff.forms.share.ShareForm`."""
    return max(share_offered(study), 0.01)


def _initial(request: SignedInRequest, study: Study) -> dict[str, Any]:
    """Initial values: those of the run in the URL, if any, else defaults for the study."""
    like = request.GET.get("like")
    if not like:
        return initial_for(study)
    try:
        return initial_like(get_object_or_404(runs_visible_to(request.user), study=study, pk=like))
    except ValidationError:  # no id at all
        return initial_for(study)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("training.approve_run")
def run_approve(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Page with the plan of a run, the share of every cap that it may use, and the yes that starts it."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if run.status != Run.Status.DRAFT:
        messages.info(request, _("This run is not a draft any more."))
        return redirect("staff:run", study.slug, run.pk)
    form = ShareForm(request.POST if request.method == "POST" else None, study=study)
    share = form.share() if form.is_valid() else _share_to_look_at(study)
    if form.is_valid() and "look" not in request.POST:
        try:
            run_commands.run_approve(run=run, acting_user=request.user, share=share)
        except PlanError as error:
            messages.error(request, said(error.args[0]))
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
        else:
            messages.success(request, _("The run is approved. The next free worker starts it."))
        return redirect("staff:run", study.slug, run.pk)
    context = {
        "form": form,
        "run": run,
        "share_free": share_free(study),
        **plan_or_reason(run, share),
        **second_person(run, request.user),
    }
    return render_page(request, study, "staff/runs/approve.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("training.cancel_run")
def run_cancel(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Explain what cancelling leaves in place, and cancel a run."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if run.has_ended:
        messages.info(request, _("This run has ended already."))
        return redirect("staff:run", study.slug, run.pk)
    if request.method == "POST":
        run = run_commands.run_cancel(run=run, acting_user=request.user)
        if run.status == Run.Status.CANCELLED:
            messages.success(request, _("The run is cancelled."))
        return redirect("staff:run", study.slug, run.pk)
    return render_page(request, study, "staff/runs/cancel.html", {"run": run})
