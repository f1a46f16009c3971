"""Pages to propose, change, check, approve, withdraw and cancel a run."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _

from accounting.shares import share_free, suggested_share
from common.requests import SignedInRequest
from common.slots import NoSlotError, slot
from consent.models import Study
from consent.permissions import members_with_permission
from ipate_web.staff.comparison import change_rows
from ipate_web.staff.forms.runs import RunForm, initial_for, initial_like
from ipate_web.staff.forms.share import ShareForm
from ipate_web.staff.run_charts import plan_charts
from ipate_web.staff.templatetags.run_words import said
from ipate_web.staff.views.pages import faults_in, faults_show, number_sent, render_page, study_form
from learning.mechanisms.protocol import PlanError
from training.models import Dataset, Run
from training.selectors import runs_visible_to
from training.services import drafts
from training.services import runs as run_commands
from training.services.forecasts import forecast


def plan_or_reason(run: Run, user: Any, share: float | None = None) -> dict[str, Any]:
    """``plan`` of ``run`` with ``plan_notes``, what to check, and ``alternatives``; or ``plan_error``.

    ``plan_waits`` where ``user`` has another one computed, or too many are.
    """
    try:
        with slot(user.pk):
            plan = forecast(run, share)
    except NoSlotError:
        return {"plan_waits": True}
    except PlanError as error:
        return {"plan_error": error.args[0]}
    return {
        "plan": plan.plan,
        "plan_notes": plan.notes,
        "plan_charts": plan_charts(plan.plan),
        "alternatives": plan.alternatives,
    }


def second_person(run: Run, can: frozenset[str], user: Any) -> dict[str, Any]:
    """Whether ``user`` may not approve the draft because it ``is_own``, and who may: its ``approvers``.

    ``can`` has the user's permissions in the run's study.
    """
    if run.status != Run.Status.DRAFT or "training.approve_run" not in can:
        return {}
    approvers = members_with_permission(run.study, "training.approve_run").exclude(pk=user.pk)
    return {
        "is_own": run.created_by_id == user.pk,
        "is_orphan": run.created_by_id is None,
        "approvers": ", ".join(str(approver) for approver in approvers),
    }


@study_form("training.propose_run")
def run_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Fill in, check the plan, save as a draft."""
    form = RunForm(
        request.POST or None,
        initial=None if request.method == "POST" else _initial(request, study),
        study=study,
        acting_user=request.user,
    )
    if _is_confirmed(request, form):
        with faults_in(form):
            run = run_commands.run_propose(study=study, acting_user=request.user, **form.run_fields())
            messages.success(request, _("The run is saved as a draft. It starts once an operator approves it."))
            return redirect("staff:run", study.slug, run.pk)
    return _form_or_plan(request, study, form)


def _page_of_own_draft(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """Decorator of views of a draft, for its proposer alone; back to a run that is no draft any more."""

    @study_form("training.propose_run")
    @wraps(view)
    def wrapped(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
        run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
        if run.created_by_id != request.user.pk:
            raise PermissionDenied
        if run.status != Run.Status.DRAFT:
            messages.info(request, _("This run is not a draft any more."))
            return redirect("staff:run", study.slug, run.pk)
        return view(request, study, run)

    return wrapped


@_page_of_own_draft
def run_edit(request: SignedInRequest, study: Study, run: Run) -> HttpResponse:
    """Change an own draft: fill in, check the plan, save."""
    form = RunForm(
        request.POST or None,
        initial=None if request.method == "POST" else initial_like(run) | {"seed": run.seed},
        study=study,
        acting_user=request.user,
    )
    if _is_confirmed(request, form):
        with faults_show(request):
            edited = drafts.run_edit(run=run, acting_user=request.user, **form.run_fields())
            changed = edited.revision != run.revision
            messages.success(request, _("The draft is changed.") if changed else _("Nothing was changed."))
        return redirect("staff:run", study.slug, run.pk)
    return _form_or_plan(request, study, form, edited=run)


@_page_of_own_draft
def run_withdraw(request: SignedInRequest, study: Study, run: Run) -> HttpResponse:
    """Ask whether an own draft is to be withdrawn, and withdraw it."""
    if request.method == "POST":
        with faults_show(request):
            drafts.run_withdraw(run=run, acting_user=request.user)
            messages.success(request, _("The run is withdrawn."))
        return redirect("staff:run", study.slug, run.pk)
    return render_page(request, study, "staff/runs/withdraw.html", {"run": run})


def _is_confirmed(request: SignedInRequest, form: RunForm) -> bool:
    return "confirmed" in request.POST and "change" not in request.POST and form.is_valid()


def _form_or_plan(request: SignedInRequest, study: Study, form: RunForm, edited: Run | None = None) -> HttpResponse:
    """The plan of what was filled in, or the form where that is missing, wrong or to be changed."""
    if form.is_valid() and "change" not in request.POST:
        run = form.proposal()
        context: dict[str, Any] = {"form": form, "run": run, "edited": edited, **plan_or_reason(run, request.user)}
        return render_page(request, study, "staff/runs/check.html", context)
    missing = [
        kind.label
        for kind in (Dataset.Kind.PRIVATE, Dataset.Kind.PUBLIC)
        if not study.datasets.filter(kind=kind, removed_at=None).exists()
    ]  # without them there is nothing to propose
    context = {"form": form, "missing": missing, "edited": edited}
    return render_page(request, study, "staff/runs/new.html", context)


def _initial(request: SignedInRequest, study: Study) -> dict[str, Any]:
    """Initial values: those of the run in the URL, if any, else defaults for the study."""
    like = request.GET.get("like")
    if not like:
        return initial_for(study)
    try:
        return initial_like(get_object_or_404(runs_visible_to(request.user), study=study, pk=like))
    except ValidationError:  # no id at all
        return initial_for(study)


@study_form("training.approve_run")
def run_approve(request: SignedInRequest, study: Study, pk: str) -> HttpResponse:
    """Page with the plan of a run, the share of every cap that it may use, and the yes that starts it."""
    run = get_object_or_404(runs_visible_to(request.user), study=study, pk=pk)
    if run.status != Run.Status.DRAFT:
        messages.info(request, _("This run is not a draft any more."))
        return redirect("staff:run", study.slug, run.pk)
    form = ShareForm(request.POST if request.method == "POST" else None, study=study)
    share = form.share() if form.is_valid() else suggested_share(study)
    if form.is_valid() and "look" not in request.POST:
        revision = number_sent(request.POST, "revision")
        if revision is None and "revision" in request.POST:
            revision = -1  # no number, and so not that of the proposal
        try:
            run_commands.run_approve(run=run, acting_user=request.user, share=share, revision=revision)
        except NoSlotError:
            messages.error(request, _("Other plans are being computed. Nothing was approved: try again in a moment."))
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
        "changes": change_rows(run),
        **plan_or_reason(run, request.user, share),
        **second_person(run, request.can, request.user),
    }
    return render_page(request, study, "staff/runs/approve.html", context)


@study_form("training.cancel_run")
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
