"""A method over sites: the method itself, with the steps of a hub or of a site in place of those of one study."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import Release
from common.sentences import Sentence
from learning.mechanisms.base import PlanError
from training.engine.budgets import PlannedPromise, promises_counted
from training.engine.faults import batch_faults
from training.methods.base import RunMethod, Step, Wrong
from training.methods.engine import EngineMethod
from training.methods.levels import budgets_of
from training.methods.plans import MethodPlan
from training.models import Batch, Run
from training.sites.approvals import plan_told
from training.sites.asking import HubAsking, SiteAsking

_UNSOUND = gettext_noop("The plan of the hub uses more than the share of a run, or has no noise: do not approve it.")


@dataclass(frozen=True)
class SitePlan(MethodPlan):
    """The hub's plan, with the promises and budgets of a site's own people; forecasts are the hub's to make."""

    told: Mapping[str, Any]

    def details(self) -> dict[str, Any]:
        """Whatever the hub has planned, but for whom it rests on."""
        return {name: value for name, value in self.told.items() if name not in _OWN}


#: What a site's plan has of its own people.
_OWN = ("promises", "budgets", "forecasts", "notes")


class JointMethod:
    """See :class:`training.methods.base.RunMethod`; what is not here is the method's own."""

    def __init__(self, method: EngineMethod, *, is_hub: bool) -> None:
        self._method, self._is_hub = method, is_hub
        self.asking = HubAsking(method.questions) if is_hub else SiteAsking(method.questions)
        self.steps: Mapping[str, Step] = {Run.Status.APPROVED: self.asking.open, Run.Status.ASKING: self.asking.step}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def may_go_on(self, run: Run) -> bool:
        return self.asking.may_go_on(run)

    def check(self, run: Run, wrong: Wrong) -> None:
        self._method.check(run, wrong)  # type: ignore[attr-defined]

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> MethodPlan:
        if self._is_hub:
            return self._method.plan(run, share, promises)  # type: ignore[attr-defined]
        promises = promises or promises_counted(run)
        told = plan_told(run.joint)
        if not _is_sound(told):
            raise PlanError(
                gettext_noop(
                    "The plan of the hub uses more than the share of a run, or has no noise: do not approve it."
                )
            )
        notes = tuple(map(Sentence.from_json, told["notes"]))
        return SitePlan(promises, budgets_of(run, promises, share), (), notes, told)

    def content_faults(self, run: Run, batch: Batch, release: Release) -> Iterator[str]:
        if batch.round is None or batch.round.run_id != run.pk:
            yield f"run {run.pk}, batch {batch.index}: is in no round of its run."
            return
        question = self.asking.questions.question(batch.round)
        # At a site people were charged for their answer, before there was a total.
        bounds = self._method.bounds(question, batch) if self._is_hub else None
        yield from batch_faults(question, batch, release, bounds)
        yield from self._method.kept_faults(batch, release, question)

    def replay_faults(self, batch: Batch, release: Release) -> Iterator[str]:
        """None: a batch is a total, which charges nobody of this installation."""
        del batch, release
        yield from ()


class NoJointMethod(JointMethod):
    """A method whose questions cannot be put to sites: proposals are refused."""

    def check(self, run: Run, wrong: Wrong) -> None:
        super().check(run, wrong)
        wrong(
            "method",
            _("This method cannot be carried out over sites. Choose votes of all people, individual steps, or counts."),
        )


def _is_sound(told: Mapping[str, Any]) -> bool:
    """Whether rounds of a hub's plan use parts of a share that never fall and end at 1 at most, with noise in each.

    People are charged for what they contribute, whatever a plan says; but up to which limit, its rounds say.
    """
    try:
        until = [float(each["until"]) for each in told["rounds"]]
        return all(0 < part <= 1 for part in until) and until == sorted(until) and all(_noises(told["rounds"]))
    except (KeyError, TypeError, ValueError):
        return False


def _noises(told: Any) -> Iterator[bool]:
    """Of each σ in a document, whether it is a finite number above 0."""
    if isinstance(told, Mapping):
        for name, value in told.items():
            if name == "sigma":
                yield isinstance(value, int | float) and 0 < value < math.inf
            else:
                yield from _noises(value)
    elif isinstance(told, list):
        for each in told:
            yield from _noises(each)


@lru_cache(maxsize=32)
def joint_method(method: RunMethod, *, is_hub: bool) -> Any:
    """The method as a hub or a site carries it out."""
    is_joint = isinstance(method, EngineMethod) and method.name in _JOINT and Run.Variant.SAMPLE not in method.variants
    return (JointMethod if is_joint else NoJointMethod)(method, is_hub=is_hub)  # type: ignore[arg-type]


#: Methods whose release is a total of sums; of steps those of all people, not of samples.
_JOINT = {Run.Method.NEIGHBOURS, Run.Method.SGD, Run.Method.COUNTS, Run.Method.SYNTHESIS}
