"""A study: a new one, the overview, the basics."""

from copy import copy
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounting.selectors import remaining_by_group
from consent import selectors, services
from consent.forms import options
from consent.models import ConsentEvent, EpsilonPolicy, Level, Study
from consent.permissions import study_permissions
from ipate_web.requests import SignedInRequest
from training.forms.studies import StudyForm
from training.models import Dataset, Run
from training.selectors import labels_released, runs_of, runs_visible_to
from training.views.pages import render_page, study_page

LATEST_RUNS = 5


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def study_new(request: SignedInRequest) -> HttpResponse:
    """A new study; who makes it becomes its operator."""
    if not request.user.has_perm("consent.add_study"):
        raise PermissionDenied
    form = StudyForm(request.POST or None)
    if form.is_valid():
        study = services.study_create(acting_user=request.user, **form.cleaned_data)
        messages.success(request, _("The study is set up. The list below says what comes next."))
        return redirect("training:study", study.slug)
    return render(request, "training/study_new.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@study_page("consent.change_study")
def study_edit(request: SignedInRequest, study: Study) -> HttpResponse:
    """Change the basics: all of them before the first decision of a holder, few afterwards."""
    decided = ConsentEvent.objects.filter(study=study).exists()
    fixed = ("slug", *(services.FIXED_BY_CONSENT if decided else ()))
    form = StudyForm(request.POST or None, instance=copy(study), fixed=fixed)
    if form.is_valid():
        try:
            services.study_update(study=study, **form.cleaned_data)
        except ValidationError as error:  # a holder decided while the form was open
            messages.error(request, " ".join(error.messages))
            return redirect("training:study_edit", study.slug)
        messages.success(request, _("The changes are saved."))
        return redirect("training:study", study.slug)
    context = {"form": form, "decided": decided}
    return render_page(request, study, "training/study_edit.html", context, status=422 if form.errors else 200)


@require_safe
@study_page("consent.view_dashboard")
def study(request: SignedInRequest, study: Study) -> HttpResponse:
    """Who takes part, what may still be spent, which runs there are, and what to do next."""
    can = study_permissions(request.user, study)
    counts = selectors.holders_per_level(study)
    taking_part = sum(counts[level] for level in Level.values)
    policy = selectors.policy_in_force(study)
    context: dict[str, Any] = {
        "taking_part": taking_part,
        "counts": counts,
        "levels": [(level.label, counts[level]) for level in Level],
        "delta_limit": 1 / taking_part if taking_part else None,
        "delta_is_large": taking_part and study.delta * taking_part > 0.1,
        "policy": policy,
        "options": options(policy)[:3] if policy else [],
        "consent_form": selectors.consent_form_in_force(study),
        "datasets": study.datasets.all(),
        "latest_runs": runs_visible_to(request.user).filter(study=study)[:LATEST_RUNS],
        "run_count": runs_of(study).count(),
        "released": labels_released(study),
        "steps": next_steps(study, taking_part),
    }
    if "accounting.view_private_costs" in can:
        context["standings"] = remaining_by_group(study)
    return render_page(request, study, "training/study.html", context)


@dataclass(frozen=True)
class Step:
    """One thing that a study needs before its first student."""

    text: str | Promise
    done: bool
    who: str | Promise
    url: str
    action: str | Promise
    permission: str


def next_steps(study: Study, taking_part: int) -> list[Step]:
    """What has to happen, in order, until a first run has finished; empty once one has."""
    if study.runs.filter(status=Run.Status.FINISHED, simulation=False).exists():
        return []
    proposed = EpsilonPolicy.objects.filter(study=study)
    kinds = set(study.datasets.values_list("kind", flat=True))
    operator, committee = gettext_lazy("an operator"), gettext_lazy("the ethics committee")

    def step(
        text: str | Promise, done: bool, who: str | Promise, page: str, action: str | Promise, permission: str
    ) -> Step:
        return Step(text, done, who, reverse(f"training:{page}", args=[study.slug]), action, permission)

    return [
        step(
            gettext_lazy("Publish the form that holders read"),
            selectors.consent_form_in_force(study) is not None,
            operator,
            "consent_form_new",
            gettext_lazy("Write it"),
            "consent.publish_consentform",
        ),
        step(
            gettext_lazy("Propose what the three levels mean"),
            proposed.exists(),
            committee,
            "policy_new",
            gettext_lazy("Propose"),
            "consent.propose_epsilonpolicy",
        ),
        step(
            gettext_lazy("Approve it, as a second person"),
            proposed.filter(approval__isnull=False).exists(),
            committee,
            "policies",
            gettext_lazy("Look at the proposal"),
            "consent.approve_epsilonpolicy",
        ),
        step(
            gettext_lazy("Import private and public data"),
            {Dataset.Kind.PRIVATE, Dataset.Kind.PUBLIC} <= kinds,
            operator,
            "datasets",
            gettext_lazy("See how"),
            "training.import_dataset",
        ),
        step(
            gettext_lazy("Wait for holders to decide"),
            taking_part > 0,
            gettext_lazy("data holders"),
            "members",
            "",
            "",
        ),
        step(
            gettext_lazy("Propose and approve a run"),
            study.runs.filter(simulation=False).exclude(status__in=[Run.Status.DRAFT, Run.Status.CANCELLED]).exists(),
            operator,
            "run_new",
            gettext_lazy("Propose a run"),
            "training.propose_run",
        ),
    ]
