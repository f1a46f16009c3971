"""Gradients of every holder, as the engine that asks them needs it.

A batch is a chunk of steps. Where nobody fills another shard, one task takes all its steps, each at the weights that
the noisy sums of the step before led to; otherwise a batch is one step, whose shards' sums add up exactly.
"""

from collections.abc import Iterator

import numpy as np
from django.db import transaction
from django.utils.translation import gettext_noop

from accounting.models import Release
from accounting.privacy import IndividualAccounts
from common.noise import Noise
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import release_sums, step_contributions
from learning.mechanisms.steps.records import owned_records
from training.engine.files import released_tidy
from training.engine.questions import Answer, People, Released
from training.engine.rounds import batch_slice
from training.engine.shards import records_of
from training.methods.steps.opening import round_open
from training.methods.steps.rounds import (
    Chunk,
    Task,
    chunk_save,
    state_before,
    sums_digest,
    task_digest,
    task_load,
)
from training.models import Round, Run


class Gradients:
    """See :class:`training.engine.questions.Questions`."""

    status: str = Run.Status.LEARNING
    #: A step takes less time than a task; only where there are very many people does another worker help.
    shard = 200_000
    release_kind = Release.Kind.STEPS.value
    died = gettext_noop(
        "Workers died again and again over the gradients of the same holders; most likely their memory did not "
        "suffice. Propose the run anew with a representation of fewer numbers, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def taking_part(self, run: Run, people: People) -> People:
        return people

    def round_load(self, asked: Round) -> None:
        task_load(asked)

    def answer(self, asked: Round, people: People, *, alone: bool, cache: str, noise: Noise) -> Answer:
        task, run = task_load(asked), asked.run
        contributions = Contributions(run, task, people, cache)
        state = state_before(task, asked, run.batches.count())
        if not alone:
            return {"sums": contributions.at(state), "charge": contributions.charges}
        part, released = batch_slice(asked), []
        for _ in range(part.stop - part.start):
            released.append(release_sums(contributions.at(state), task.plan.sigma, noise))
            state = state.after(released[-1])
        return {"released": np.stack(released), "charge": contributions.charges}

    def release(self, asked: Round, answers: list[Answer], noise: Noise) -> Released:
        task, run, index = task_load(asked), asked.run, asked.run.batches.count()
        if len(answers) == 1:
            sums = answers[0]["released"]
        else:
            total = np.sum([answer["sums"] for answer in answers], axis=0)
            sums = release_sums(total, task.plan.sigma, noise)[None]
        *_, state = states_after(state_before(task, asked, index), sums)
        artifact = chunk_save(run, index, Chunk(sums, state))
        transaction.on_commit(lambda: released_tidy(run))
        return Released(
            size=len(sums),
            bounds=task.bounds(run, len(sums)),
            artifact=artifact,
            content={
                "mechanism": mechanism(task, asked),
                "steps": len(sums),
                "digest": sums_digest(sums),
                "question": task_digest(task),
            },
        )

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.STEPS

    def spent(self, run: Run) -> list[float | None]:
        return run.spent


class Contributions:
    """Contributions of holders to one step after the other, and their charges, as far as their accounts allow."""

    def __init__(self, run: Run, task: Task, people: People, cache: str = "") -> None:
        coordinates, classes, owners = records_of(run, task.fitted, people.holders, cache)
        places = np.searchsorted(people.holders, owners)
        self._records = owned_records(coordinates, classes, places, people.holders)
        self._accounts = IndividualAccounts(np.maximum(people.limits, 0.0), people.spent)
        self._task, self._people = task, people
        self._weights = task.plan.level_weights(people.caps)

    def at(self, state: Descent) -> np.ndarray:
        """The unnoised sum (d + 1, C) of the contributions to the step from ``state``, which are charged."""
        sums, _ = step_contributions(
            self._records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=self._accounts,
            sigma=self._task.plan.sigma,
            level_weights=self._weights,
        )
        return sums

    @property
    def charges(self) -> np.ndarray:
        """(H,) what each was charged so far, in μ²: the difference of the accounts, so that what is left agrees."""
        return self._accounts.spent - self._people.spent


def states_after(state: Descent, sums: np.ndarray) -> Iterator[Descent]:
    """The state after each step of a chunk, from its noisy ``sums`` (steps, d + 1, C) alone."""
    for each in sums:
        state = state.after(each)
        yield state


def mechanism(task: Task, asked: Round) -> dict:
    """Mechanism of the sums of a round, in public terms."""
    return {
        "name": "sgd",
        "round": asked.index + 1,
        "sigma": task.plan.sigma,
        "clip_norm": task.plan.clip_norm,
        "step_size": task.plan.step_size,
        "momentum": task.plan.momentum,
    }
