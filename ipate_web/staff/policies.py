"""Pages for a study's ε policies: list, proposal, approval, and a policy's effects on consents and noise."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from accounting.group_budgets import head_counts, people_promised_more
from common.requests import SignedInRequest
from consent import selectors, services
from consent.forms import options
from consent.models import EpsilonPolicy, EpsilonPolicyApproval, Level, Remark, Study
from consent.services import epsilon_policy_check
from ipate_web.staff.charts import Chart, Series
from ipate_web.staff.committee import remark_form, remark_make
from ipate_web.staff.fields import AnswerField
from ipate_web.staff.pages import faults_in, faults_show, render_page, study_form, study_page
from learning.mechanisms.protocol import PlanError
from training.methods.neighbours import Affordable, affordable
from training.models import Dataset

LEVEL_FIELDS = ("high", "average", "low")
#: Number of points on the curve of expected accuracy against ε. Each point requires a forecast.
_CURVE_STEPS = 5


def _epsilon(label: Any) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"step": "any", "inputmode": "decimal", "data-slider": ""})
    return forms.FloatField(label=label, min_value=0, widget=widget)


class PolicyForm(forms.Form):
    """Form for an ε policy: ε by level, and the reason."""

    high = _epsilon(gettext_lazy("ε at high protection"))
    average = _epsilon(gettext_lazy("ε at average protection"))
    low = _epsilon(gettext_lazy("ε at low protection"))
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy(
            "Why these values are right for this study. This is stored permanently with the policy."
        ),
    )
    name_reason = forms.CharField(
        label=gettext_lazy("Reason for keeping the names"),
        required=False,
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=EpsilonPolicy._meta.get_field("name_reason").help_text,
    )

    answer_by = AnswerField()

    def clean(self) -> dict[str, Any]:
        values = {name: self.cleaned_data[name] for name in LEVEL_FIELDS if name in self.cleaned_data}
        if len(values) == len(LEVEL_FIELDS):
            epsilon_policy_check(**values)
        return self.cleaned_data

    def policy(self, study: Study) -> EpsilonPolicy | None:
        """Return an unsaved policy with the form's values; None while they are incomplete or invalid."""
        if self.is_bound:
            usable = not {NON_FIELD_ERRORS, *LEVEL_FIELDS} & set(self.errors)
            values = {name: self.cleaned_data.get(name) for name in LEVEL_FIELDS} if usable else {}
        else:
            values = {name: self.initial.get(name) for name in LEVEL_FIELDS}
        if any(values.get(name) is None for name in LEVEL_FIELDS):
            return None
        return EpsilonPolicy(study=study, **values)


class AffordableForm(forms.Form):
    """Form for the forecast of a policy's results: public points, and the number of holders at each level."""

    public_dataset = forms.ModelChoiceField(
        Dataset.objects.none(), label=gettext_lazy("Public dataset"), empty_label=None
    )
    wanted_labels = forms.IntegerField(
        label=gettext_lazy("Number of labels needed"),
        min_value=1,
        required=False,
        help_text=gettext_lazy("Leave empty for one per public point."),
    )

    def __init__(self, *args: Any, study: Study, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        datasets = study.datasets.filter(kind=Dataset.Kind.PUBLIC, removed_at=None).order_by("-imported_at")
        self.fields["public_dataset"].queryset = datasets  # type: ignore[attr-defined]
        self.has_points = datasets.exists()
        counts = head_counts(study)
        self.has_counts = bool(counts)
        for level in Level:
            self.fields[_holders(level)] = forms.IntegerField(
                label=gettext_lazy("Holders at %(level)s") % {"level": level.label},
                min_value=0,
                initial=sum(count.count for count in counts if count.level == level) if counts else None,
            )

    def holders(self) -> dict[str, int]:
        """Return the number of holders by level."""
        return {level.value: self.cleaned_data[_holders(level)] for level in Level}


def _holders(level: Level) -> str:
    return f"holders-{level.value}"


class ConditionsForm(forms.Form):
    """Form for the conditions of an approval."""

    conditions = forms.CharField(
        label=gettext_lazy("Conditions of your approval"),
        required=False,
        max_length=5000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy(
            "Operators will see them, and they are stored with your name. Leave empty if there are none."
        ),
    )


class ApprovalForm(ConditionsForm):
    """Form for the approval of a policy: conditions and effective date."""

    effective_from = forms.DateTimeField(
        label=gettext_lazy("In force from"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=gettext_lazy("Leave empty to start immediately."),
    )

    def clean_effective_from(self) -> datetime | None:
        moment = self.cleaned_data["effective_from"]
        if moment and moment < timezone.now():
            raise ValidationError(
                gettext_lazy("This time is in the past. Enter a later one, or leave it empty to start immediately.")
            )
        return moment


def _comparison(study: Study, proposed: EpsilonPolicy) -> list[dict[str, Any]]:
    """Return the current and proposed ε of each level."""
    current = selectors.policy_in_force(study)
    before = options(current, study.delta)[:3] if current else [None] * 3
    return [
        {"level": new.label, "value": level, "before": old, "after": new}
        for level, old, new in zip(Level.values, before, options(proposed, study.delta)[:3], strict=True)
    ]


def weaker_promises(study: Study, proposed: EpsilonPolicy | None) -> dict[str, Any] | None:
    """Return whether a policy would ask people to accept a weaker promise, and the public number of these people."""
    if proposed is None:
        return None
    asks = any(each.epsilon < proposed.epsilon(each.level) for each in selectors.promises_possible(study))
    return {"asks": asks, "people": people_promised_more(study, proposed) if asks else None}


def _comparison_with_consequences(study: Study, proposed: EpsilonPolicy) -> list[dict[str, Any]]:
    """Return the comparison with the effect on each level's participants (:class:`consent.selectors.Consequence`)."""
    consequences = selectors.policy_consequences(study, proposed)
    return [{**row, "consequence": consequences[row["value"]]} for row in _comparison(study, proposed)]


@require_safe
@study_page("consent.view_dashboard")
def policies(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the policy in force with its odds, open proposals, and all versions."""
    in_force = selectors.policy_in_force(study)
    versions = list(EpsilonPolicy.objects.filter(study=study).select_related("approval"))
    rejected = Remark.objects.filter(study=study, kind=Remark.Kind.REJECTION).values_list("policy_id", flat=True)
    context = {
        "in_force": in_force,
        "options": options(in_force, study.delta)[:3] if in_force else [],
        "versions": versions,
        "waiting": selectors.policies_waiting(study),
        "rejected": set(rejected),
        "replaced": set(selectors.policies_approved(study).filter(is_replaced=True).values_list("pk", flat=True)),
        "now": timezone.now(),
    }
    return render_page(request, study, "staff/policies/policies.html", context)


@study_form("consent.propose_epsilonpolicy")
def policy_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Fill in a policy, check the odds, and propose it."""
    current = selectors.policy_in_force(study)
    initial = {"high": current.high, "average": current.average, "low": current.low} if current else None
    form = PolicyForm(request.POST or None, initial=initial)
    proposed = form.policy(study)
    if form.is_valid() and proposed and "change" not in request.POST:
        if "confirmed" in request.POST:
            with faults_in(form):
                services.epsilon_policy_propose(study=study, acting_user=request.user, **form.cleaned_data)
                messages.success(request, _("Policy proposed. It takes effect when a second person approves it."))
                return redirect("staff:policies", study.slug)
        else:
            context = {
                "form": form,
                "comparison": _comparison_with_consequences(study, proposed),
                "weaker": weaker_promises(study, proposed),
                "affordable": AffordableForm(study=study),
            }
            return render_page(request, study, "staff/policies/check.html", context)
    context = {
        "form": form,
        "comparison": _comparison(study, proposed) if proposed else [],
        "weaker": weaker_promises(study, proposed),
        "affordable": AffordableForm(study=study),
    }
    return render_page(request, study, "staff/policies/new.html", context)


@require_POST
@study_page("consent.propose_epsilonpolicy")
def policy_odds(request: SignedInRequest, study: Study) -> HttpResponse:
    """Return the odds of the form's values, which htmx updates during typing."""
    form = PolicyForm(request.POST)
    proposed = form.policy(study)
    context = {
        "study": study,
        "comparison": _comparison(study, proposed) if proposed else [],
        "weaker": weaker_promises(study, proposed),
        "problems": form.non_field_errors(),
    }
    return render(request, "staff/policies/odds.html", context)


@require_POST
@study_page("consent.propose_epsilonpolicy")
def policy_affordable(request: SignedInRequest, study: Study) -> HttpResponse:
    """Forecast results for the ε in force and in the form. For htmx, return only part of the page."""
    form, policy = AffordableForm(request.POST, study=study), PolicyForm(request.POST)
    proposed, context = policy.policy(study), {"affordable": form, "form": policy, "study": study}
    if form.is_valid() and proposed:
        try:
            context["forecasts"] = _forecasts(study, proposed, form)
            context["chart"] = _accuracy_chart(proposed, form)
        except PlanError as error:
            context["plan_error"] = error.args[0]
    else:
        context["incomplete"] = True
    if "HX-Request" in request.headers:
        return render(request, "staff/policies/affordable.html", context)
    return render_page(request, study, "staff/policies/affordable_page.html", context, status=200)


def _accuracy_chart(proposed: EpsilonPolicy, form: AffordableForm) -> Chart:
    """Return a chart of the expected share of correct labels if everyone had the same ε, with each proposed ε marked.

    A dashed line shows the result for all three levels together.
    """

    def right(epsilons: Mapping[str, float], holders: Mapping[str, int]) -> float | None:
        try:
            value = _affordable(proposed.study, form, epsilons, holders).forecast.labels.value
        except PlanError:
            return None
        return None if value is None else 100 * value

    levels = {level.value: proposed.epsilon(level) for level in Level}
    low, high = min(levels.values()) / 2, max(levels.values()) * 1.5
    between = [low * (high / low) ** (step / _CURVE_STEPS) for step in range(_CURVE_STEPS + 1)]
    epsilons, everyone = sorted({*between, *levels.values()}), sum(form.holders().values())
    curve = [right({Level.HIGH: epsilon}, {Level.HIGH: everyone}) for epsilon in epsilons]
    series = [Series(_("everyone at this ε"), curve)]
    for level, chosen in levels.items():
        mark = [value if epsilon == chosen else None for epsilon, value in zip(epsilons, curve, strict=True)]
        series.append(Series(str(capfirst(Level(level).label)), mark))
    together = right(levels, form.holders())
    series.append(Series(_("the three values together"), [None] * len(epsilons), limit=together))
    y_label = _("expected share of correct labels (%)")
    return Chart(epsilons, series, x_label="ε", y_label=y_label, y_max=100, connected=True)


def _affordable(
    study: Study, form: AffordableForm, epsilons: Mapping[str, float], holders: Mapping[str, int]
) -> Affordable:
    public, wanted = form.cleaned_data["public_dataset"], form.cleaned_data["wanted_labels"]
    return affordable(public, epsilons, holders, delta=study.delta, wanted=wanted)


def _forecasts(study: Study, proposed: EpsilonPolicy, form: AffordableForm) -> list[dict[str, Any]]:
    """Return the forecasts of each policy, starting with the policy in force, if any."""
    current = selectors.policy_in_force(study)
    forecasts = []
    for title, policy in ((_("ε in force"), current), (_("ε proposed"), proposed)):
        if policy is None:
            continue
        epsilons = {level: getattr(policy, level.lower()) for level in Level.values}
        affordable_now = _affordable(study, form, epsilons, form.holders())
        levels = {level.name: level for level in affordable_now.forecast.levels}
        rows = [
            {
                "level": Level(level),
                "epsilon": epsilon,
                "forecast": levels.get(level),
                "left": affordable_now.left.get(level),
            }
            for level, epsilon in epsilons.items()
        ]
        forecasts.append({"title": title, "policy": policy, "affordable": affordable_now, "levels": rows})
    return forecasts


@study_form("consent.approve_epsilonpolicy")
def policy_approve(request: SignedInRequest, study: Study, version: int) -> HttpResponse:
    """Show the consequences of a policy, and approve it as a second person."""
    policy = get_object_or_404(EpsilonPolicy, study=study, version=version)
    remark = remark_form(request)
    if remark_make(request, policy, remark):
        return redirect("staff:policy_approve", study.slug, version)
    form = ApprovalForm(request.POST if request.method == "POST" and not remark.is_bound else None)
    if form.is_valid():
        with faults_show(request):
            services.proposal_approve(proposal=policy, acting_user=request.user, **form.cleaned_data)
            approval = EpsilonPolicyApproval.objects.filter(policy=policy).first()
            if approval is None:
                message = _(
                    "Your approval of version %(version)d is recorded. It takes effect after the last approval."
                )
            elif approval.effective_from > timezone.now():
                message = _("Version %(version)d is approved and applies from the date you entered.")
            else:
                message = _("Version %(version)d is in force.")
            messages.success(request, message % {"version": policy.version})
        return redirect("staff:policies", study.slug)
    context = {
        "form": form,
        "policy": policy,
        "comparison": _comparison_with_consequences(study, policy),
        "weaker": weaker_promises(study, policy),
        "is_own": policy.proposed_by_id == request.user.pk,
        "is_approved": hasattr(policy, "approval"),
        "is_waiting": selectors.is_waiting(policy),
        "remark": remark,
        "remarks": policy.remarks.prefetch_related("made_by"),
        "affordable": AffordableForm(study=study),
    }
    status = 422 if form.errors or remark.errors else 200
    return render_page(request, study, "staff/policies/approve.html", context, status=status)
