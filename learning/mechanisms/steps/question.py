"""Question of a round of private gradient steps: the gradients of a linear model on a representation.

A batch is a chunk of steps. Where nobody fills another shard, one task takes all its steps, each at the weights that
the noisy sums of the step before led to; otherwise a batch is one step, whose shards' sums add up exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.noise import Noise
from learning.mechanisms.base import Arrays, Draws, People, Records, Release, content_digest, named
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import CLIP_STEPS, release_sums, step_contributions
from learning.mechanisms.steps.planner import StepsPlan
from learning.mechanisms.steps.records import owned_records
from learning.outcomes import CROSS_ENTROPY, Target, target_from_arrays
from learning.representations import FittedRepresentation, representation_load

_STATE = "state"


@dataclass(frozen=True, eq=False)
class StepsQuestion:
    """See :class:`learning.mechanisms.base.Question`.

    ``begin`` is the state before the first step, ``index`` the number of the round, and ``caps`` (promises,) those of
    the promises of the run's plan, in μ². ``target`` is what is learned, None of classes.
    """

    plan: StepsPlan
    fitted: FittedRepresentation
    begin: Descent
    index: int
    caps: NDArray[np.float64]
    target: Target | None = None

    grain = 1.0

    @classmethod
    def from_arrays(cls, arrays: Arrays, plan: StepsPlan, **about: Any) -> StepsQuestion:
        """From the file of a round, with what the plan of its run says."""
        fitted = representation_load(arrays["representation"].tobytes())
        target = target_from_arrays(arrays)
        loss = CROSS_ENTROPY if target is None else target.loss
        begin = Descent.begin(plan, arrays["public"], int(arrays["classes"]), loss)
        return cls(plan, fitted, begin, target=target, **about)

    @property
    def size(self) -> int:
        return self.plan.steps

    @property
    def sigma(self) -> float:
        return self.plan.sigma

    @property
    def spread(self) -> float:
        return self.sigma * CLIP_STEPS

    def digest(self) -> str:
        public = {"public": self.begin.points, "classes": np.array(self.begin.parameters.shape[1])}
        arrays = {**self.fitted.state(), **public, **named("begin", self.begin.to_arrays())}
        target = {} if self.target is None else {"target": self.target.to_json()}
        return content_digest(arrays, json.dumps(self.plan.to_json() | target, sort_keys=True))

    def describe(self) -> dict[str, Any]:
        return {
            "name": "sgd",
            "round": self.index + 1,
            "sigma": self.plan.sigma,
            "clip_norm": self.plan.clip_norm,
            "step_size": self.plan.step_size,
            "ridge": self.plan.ridge,
        }

    def part(self, batch: int, start: int, most: int) -> slice:
        del batch
        return slice(start, min(start + most, self.size))

    def state(self, released: Arrays | None) -> Descent:
        if released is None:
            return self.begin
        start = f"{_STATE}."
        arrays = {name.removeprefix(start): array for name, array in released.items() if name.startswith(start)}
        return self.begin.at(arrays)

    def bounds(self, part: slice) -> list[float]:
        weights = self.plan.level_weights(self.caps)
        return ((part.stop - part.start) * weights**2 / self.plan.sigma**2).tolist()

    def contributions(self, people: People, records: Records) -> Contributions:
        """Contributions of people to one step after the other."""
        return Contributions(self.plan, people, records)

    def answer(
        self, part: slice, state: Descent, people: People, records: Callable[[], Records], *, alone: bool, draws: Draws
    ) -> Arrays:
        contributions = self.contributions(people, records())
        if not alone:
            return {"sums": contributions.at(state), "charge": contributions.charges}
        released = []
        for _ in range(part.stop - part.start):
            released.append(release_sums(contributions.at(state), self.plan.sigma, draws.noise))
            state = state.after(released[-1])
        return {"released": np.stack(released), "charge": contributions.charges}

    def release(self, part: slice, state: Descent, answers: Sequence[Arrays], noise: Noise) -> Release:
        if "released" in answers[0]:  # by people who were alone
            sums = answers[0]["released"]
        else:
            total = np.sum([answer["sums"] for answer in answers], axis=0)
            sums = release_sums(total, self.plan.sigma, noise)[None]
        *_, after = states_after(state, sums)
        return Release(
            size=len(sums),
            content={"steps": len(sums), "digest": sums_digest(sums)},
            arrays={"sums": sums, **named(_STATE, after.to_arrays())},
        )


class Contributions:
    """Contributions of people to one step after the other, and their charges, as far as their accounts allow."""

    def __init__(self, plan: StepsPlan, people: People, records: Records) -> None:
        self._records = owned_records(records.x, records.classes, records.owner, people.holders)
        self._accounts, self._spent = people.accounts(), people.spent
        self._plan, self._weights = plan, plan.level_weights(people.caps)

    def at(self, state: Descent) -> NDArray[np.int64]:
        """The unnoised sum (d + 1, C) of the contributions to the step from ``state``, which are charged."""
        sums, _ = step_contributions(
            self._records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=self._accounts,
            sigma=self._plan.sigma,
            level_weights=self._weights,
            loss=state.loss,
        )
        return sums

    @property
    def charges(self) -> NDArray[np.float64]:
        """(H,) what each was charged so far, in μ²: the difference of the accounts, so that what is left agrees."""
        return self._accounts.spent - self._spent


def states_after(state: Descent, sums: NDArray[Any]) -> Iterator[Descent]:
    """The state after each step of a chunk, from its noisy ``sums`` (steps, d + 1, C) alone."""
    for each in sums:
        state = state.after(each)
        yield state


def sums_digest(sums: NDArray[Any]) -> str:
    """SHA-256 of the noisy sums of a chunk, (steps, d + 1, C)."""
    return content_digest({"sums": sums})
