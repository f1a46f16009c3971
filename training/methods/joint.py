"""Joint methods, which replace a single study's steps with those of a hub or a site."""

import math
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from common.sentences import Sentence
from learning.mechanisms.protocol import PlanError, Question
from training.alliances.approvals import hub_plan
from training.alliances.asking import HubAsking, SiteAsking
from training.alliances.documents import noise_among, planned_noise_factor
from training.engine.budgets import PlannedPromise, planned_promises
from training.engine.commits import batch_faults
from training.methods.base import EngineMethod, RunMethod, RunStage, Step, Wrong, stage_asking
from training.methods.planning import MethodPlan
from training.models import Batch, JointQuestion, Run

_UNSOUND = gettext_noop("The hub's plan exceeds the run's share or adds no noise. Do not approve it.")
_OVERFLOWS = gettext_noop("With so many people and so little noise, the sums could overflow. Plan for more noise.")
_NOISIER = gettext_noop("The noise in a total across these sites is %(factor).2f times the noise in a single study.")


@dataclass(frozen=True)
class SitePlan(MethodPlan):
    """The hub's plan with the promises and budgets of a site's own people; only the hub makes forecasts."""

    document: Mapping[str, Any]

    def details(self) -> dict[str, Any]:
        """Return the hub's plan without the parts about people, which belong to the site."""
        return {name: value for name, value in self.document.items() if name not in _OWN}


#: Parts of a site's plan that concern its own people.
_OWN = ("promises", "budgets", "forecasts", "notes")


class JointMethod:
    """Method in a joint run. Everything that this class does not define comes from the wrapped method."""

    def __init__(self, method: EngineMethod, *, is_hub: bool) -> None:
        self._method, self._is_hub = method, is_hub
        self.asking = HubAsking(method.questions) if is_hub else SiteAsking(method.questions)
        self.steps: Mapping[str, Step] = {Run.Status.APPROVED: self.asking.open, Run.Status.ASKING: self.asking.step}
        if not is_hub and Run.Status.PREPARING in method.steps:
            self.steps = {**method.steps, **self.steps, Run.Status.APPROVED: self._prepare}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def _prepare(self, run: Run) -> bool:
        """Prepare the people of a site once all participants have approved."""
        return self.asking.is_agreed(run) and self._method.steps[Run.Status.APPROVED](run)

    def can_continue(self, run: Run) -> bool:
        return (self._method if run.status == Run.Status.PREPARING else self.asking).can_continue(run)

    def stages(self, run: Run) -> list[RunStage]:
        """Return the stages. A hub has only the asking stage, because any preparation takes place at the sites."""
        if not self._is_hub:
            return self._method.stages(run)
        planned = sum(self._method.round_sizes(run)) or self._method.size(run)  # type: ignore[attr-defined]
        return [stage_asking(run, run.position / max(planned, 1))]

    def table(self, run: Run) -> Any:
        """Return the released table of a run, which covers the people of all sites."""
        if not self._is_hub:
            run = copy(run)
            run.plan = hub_plan(run.joint)
        return self._method.table(run)  # type: ignore[attr-defined]

    def check(self, run: Run, wrong: Wrong) -> None:
        self._method.check(run, wrong)  # type: ignore[attr-defined]

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> MethodPlan:
        promises = promises or planned_promises(run)
        if self._is_hub:
            return self._hub_plan(run, share, promises)
        document = hub_plan(run.joint)
        if not _is_sound(document):
            raise PlanError(_UNSOUND)
        if sum(each.holders for each in promises) > _most_people(run, document):
            raise PlanError(_OVERFLOWS)
        notes = tuple(map(Sentence.from_json, document["notes"]))
        own, budgets = self._method.joined(run, document, promises, share)
        return SitePlan(own, budgets, (), notes, document)

    def _hub_plan(self, run: Run, share: float, promises: list[PlannedPromise]) -> MethodPlan:
        """Return the plan for a single study, with a forecast that accounts for the noise in totals across sites."""
        plan = self._method.plan(run, share, promises)  # type: ignore[attr-defined]
        factor = planned_noise_factor(run)
        if self._method.forecast_by_people:
            fewer = [replace(each, holders=round(each.holders / factor)) for each in promises]
            heard = self._method.plan(run, share, fewer)  # type: ignore[attr-defined]
            plan = replace(plan, forecasts=heard.forecasts)
        return replace(plan, notes=(*plan.notes, Sentence(_NOISIER, factor=factor)))

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        if batch.round is None or batch.round.run_id != run.pk:
            yield f"run {run.pk}, batch {batch.index}: does not belong to a round of its run."
            return
        question = self.asking.questions.question(batch.round)
        # At a site, people were charged when they answered, before there was a total.
        bounds = self._method.bounds(question, batch) if self._is_hub else None
        yield from batch_faults(question, batch, release, bounds)
        yield from self._method.kept_faults(batch, release, question)
        for joint_question, paid in _answers(batch, release):
            yield from _answer_faults(question, joint_question, paid)

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        """Yield messages about faults in the site's answers to the question of a total, which itself charges no one."""
        assert batch.round is not None, "a batch across sites belongs to a round"
        question = self.asking.questions.question(batch.round)
        for joint_question, paid in _answers(batch, release):
            answered = copy(batch)
            answered.attempt = joint_question.attempt
            yield from self._method.charges_faults(answered, paid, question)


class NoJointMethod(JointMethod):
    """Method that cannot be used in joint runs; proposals of such runs are refused."""

    def check(self, run: Run, wrong: Wrong) -> None:
        super().check(run, wrong)
        wrong(
            "method",
            _(
                "This method cannot be used across sites. Choose votes by every holder, individual gradient "
                "steps, or counts."
            ),
        )


def _answers(batch: Batch, release: Release) -> Iterator[tuple[JointQuestion, Release]]:
    """Yield all questions (even ended ones) that a site answered for a batch, with the release of each answer."""
    questions = JointQuestion.objects.filter(joint__run=batch.run_id).order_by("number")
    state = questions.get(number=release.content["joint"]["number"]).document.state
    sums = Release.objects.filter(run=batch.run_id, kind=Release.Kind.SUMS)
    paid = {each.content["number"]: each for each in sums}
    for each in questions.exclude(answered_at=None):
        if each.document.state == state and each.number in paid:
            yield each, paid[each.number]


def _answer_faults(question: Question, joint_question: JointQuestion, paid: Release) -> Iterator[str]:
    """Yield messages about differences between a question that a site has answered and the register's entry."""
    number, document, content = joint_question.number, joint_question.document, paid.content
    bounds = question.bounds(slice(*document.part))
    assert bounds is not None, "a question to sites is charged by its bounds"
    recorded = (content["question"], content["mechanism"], content["asked"])
    if recorded != (question.digest(), question.describe(), document.digest()):
        yield f"release {paid.sequence}: question {number} to sites is not the one that was charged."
    if paid.charge != max(bounds):
        yield f"release {paid.sequence}: its public charge does not match the cost of question {number} to sites."


def _is_sound(document: Mapping[str, Any]) -> bool:
    """Return whether the share used by a hub's rounds never decreases or exceeds 1, and all rounds add noise.

    People are charged for their contributions, regardless of the plan, but the plan's rounds set the limit.
    """
    try:
        until = [float(each["until"]) for each in document["rounds"]]
        noises = _noises([document["rounds"], document.get("aggregator", {})])
        return all(0 < part <= 1 for part in until) and until == sorted(until) and all(noises)
    except (KeyError, TypeError, ValueError):
        return False


def _most_people(run: Run, document: Mapping[str, Any]) -> float:
    """Return the largest number of people at a site whose sums cannot overflow; see `Lattice.most`."""
    sites, among = len(run.joint.sites), noise_among(run)
    noises = [noise for noise in _noises([document.get("rounds"), document.get("aggregator")]) if noise > 0]
    return 2.0**27 * min(noises, default=0.0) / (sites * math.sqrt(among))


def _noises(document: Any) -> Iterator[float]:
    """Yield every σ in a document, replacing each one that is not a finite number above 0 by 0."""
    if isinstance(document, Mapping):
        for name, value in document.items():
            if name == "sigma":
                yield value if isinstance(value, int | float) and 0 < value < math.inf else 0.0
            else:
                yield from _noises(value)
    elif isinstance(document, list):
        for each in document:
            yield from _noises(each)


@lru_cache(maxsize=32)
def joint_method(method: RunMethod, *, is_hub: bool) -> Any:
    """Return the method wrapped for a hub or a site."""
    is_joint = isinstance(method, EngineMethod) and method.name in _JOINT and Run.Variant.SAMPLE not in method.variants
    return (JointMethod if is_joint else NoJointMethod)(method, is_hub=is_hub)  # type: ignore[arg-type]


#: Methods whose releases are totals of sums, including gradient steps that use all people instead of samples.
_JOINT = {Run.Method.NEIGHBOURS, Run.Method.PATE, Run.Method.SGD, Run.Method.COUNTS, Run.Method.SYNTHESIS}
