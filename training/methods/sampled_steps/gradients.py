"""Steps over samples of the holders, as the engine that asks them needs it.

The first batch takes no step: it charges everybody who takes part for the whole run. Each batch after it is a chunk of
steps, which one task takes; what it releases is the state after the last of them.
"""

from dataclasses import replace

import numpy as np
from django.db import transaction
from django.utils.translation import gettext_noop

from accounting.book import charges_of
from accounting.models import Release
from common.noise import Noise
from learning.mechanisms.sampled_steps.training import SampledSteps, Sampling, SimulationSampling, SystemSampling
from learning.mechanisms.steps.records import OwnedRecords, owned_records
from training.engine.files import released_tidy
from training.engine.questions import Answer, People, Released
from training.engine.records import records_load
from training.engine.rounds import batch_slice, round_under_way
from training.engine.shards import records_of
from training.methods.sampled_steps.opening import round_open
from training.methods.sampled_steps.rounds import (
    CHARGE,
    SampledTask,
    mechanism,
    state_before,
    state_digest,
    state_save,
    task_digest,
    task_load,
)
from training.methods.steps.rounds import content_digest
from training.models import Round, Run


class SampledGradients:
    """See :class:`training.engine.questions.Questions`."""

    status: str = Run.Status.LEARNING
    #: One task takes a chunk: a step reads the records of some hundred holders, however many there are.
    shard = 2**62
    release_kind = Release.Kind.STEPS.value
    died = gettext_noop(
        "Workers died again and again over the same steps; most likely their memory did not suffice. Propose the run "
        "anew with a smaller network, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def taking_part(self, run: Run, people: People) -> People:
        if run.rehearsal:
            return people
        if not run.batches.exists():
            task = task_load(round_under_way(run))
            group = groups_of(run, people.caps)
            due = task.charges[group]
            return people.of((group >= 0) & (people.spent + due <= people.limits))
        holders, caps = charged_caps(run)
        if not len(holders):
            return people.of(np.zeros(len(people.holders), dtype=bool))
        place = np.searchsorted(holders, people.holders).clip(max=len(holders) - 1)
        stays = (holders[place] == people.holders) & (people.caps >= caps[place])
        # A level that was raised counts in the next run: in this one everybody stays in the group they were charged in.
        return replace(people.of(stays), caps=caps[place[stays]])

    def round_load(self, asked: Round) -> None:
        task_load(asked)

    def answer(self, asked: Round, people: People, *, alone: bool, cache: str, noise: Noise) -> Answer:
        task, run, index = task_load(asked), asked.run, asked.run.batches.count()
        group = groups_of(run, people.caps)
        if index == CHARGE:
            return {"charge": task.charges[group]}
        from training.methods.sampled_steps.networks import chunk_run  # PyTorch takes a second to import

        part, records = batch_slice(asked), _records(run, task, people, cache)
        state = chunk_run(
            task,
            state_before(task, asked, index),
            records,
            group,
            steps=part.stop - part.start,
            noise=noise,
            sampling=sampling_of(run),
        )
        return {**state.to_arrays(), "charge": np.zeros(len(people.holders))}

    def release(self, asked: Round, answers: list[Answer], noise: Noise) -> Released:
        task, run, index = task_load(asked), asked.run, asked.run.batches.count()
        content = {"mechanism": mechanism(task), "question": task_digest(task)}
        if index == CHARGE:
            return Released(size=0, bounds=task.charges.tolist(), content=content | charged_content(task))
        (answer,) = answers
        state = SampledSteps.from_arrays(answer)
        artifact = state_save(run, index, state)
        transaction.on_commit(lambda: released_tidy(run))
        part = batch_slice(asked)
        return Released(
            size=part.stop - part.start,
            bounds=[0.0] * len(task.charges),
            artifact=artifact,
            content=content | {"steps": part.stop - part.start, "digest": state_digest(state)},
            charged=False,
        )

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.STEPS

    def spent(self, run: Run) -> list[float | None]:
        charges = run.plan["rounds"][0]["plan"]["charges"]
        return [None if charge is None else spent for charge, spent in zip(charges, run.spent, strict=True)]


def groups_of(run: Run, caps: np.ndarray) -> np.ndarray:
    """(H,) the place in the plan of the largest promise within each cap; -1 of whose cap is smaller than any.

    Of those who have a promise that the plan does not know: they are drawn, and charged, as the next stricter ones.
    """
    known = np.array([budget["cap"] for budget in run.plan["budgets"]])
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known[order], caps, side="right") - 1
    return np.where(place >= 0, order[place], -1)


def charged_content(task: SampledTask) -> dict:
    """Entry of the register on the charge for a whole run."""
    return {"steps": 0, "digest": content_digest({}), "slack": task.plan.slack}


def charged_caps(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(H,) ids in rising order of those who were charged for the run, and the cap of the promise by which they were.

    From the charge file, which is never deleted: in a group all were charged the same.
    """
    told = charges_of(Release.objects.get(run=run.pk, batch=CHARGE))
    due = task_load(run.rounds.select_related("run").get()).charges
    known = np.array([budget["cap"] for budget in run.plan["budgets"]])
    return told.holders, known[np.abs(told.spent[:, None] - due).argmin(axis=1)]


def sampling_of(run: Run) -> Sampling:
    """Sampling by the operating system's generator; in a rehearsal by what its seed says."""
    if run.rehearsal:
        return SimulationSampling((run.seed or 0) * 1_000_003 + run.batches.count())
    return SystemSampling()


def _records(run: Run, task: SampledTask, people: People, cache: str) -> OwnedRecords:
    """The records of some holders as the network takes them."""
    if task.fitted is not None:
        x, y, owners = records_of(run, task.fitted, people.holders, cache)
    else:
        private = records_load(run.private_dataset)
        x, y, owners = private["x"], private["y"], private["holder"]
        mine = np.isin(owners, people.holders)
        if not mine.all():
            x, y, owners = x[mine], y[mine], owners[mine]
    return owned_records(x, y, np.searchsorted(people.holders, owners), people.holders)
