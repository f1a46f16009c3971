"""Batches that ask every holder. Each batch commits its release and charges atomically.

A batch is asked in shards of holders, by any number of workers. All shards of a batch belong to one attempt: a file
with the participants and the remaining budget of each account. People who leave or lower their level before the commit
are removed, and their shard is asked again. The noise drawn for the discarded batch is never seen by anyone.

All planned questions are asked: accounts and answers never affect when a run ends (condition 1 in
docs/gaussian-accounts.md).
"""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any
from uuid import uuid4

import numpy as np
from django.db import transaction
from django.utils import timezone

from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from common.jobs import part_do, parts_send
from common.noise import Noise
from consent.selectors import promises_possible
from learning.mechanisms.protocol import Arrays, PartRelease, People, Question
from training.engine import questions
from training.engine.budgets import budgets_from_json
from training.engine.commits import (
    WAITS,
    Charges,
    batch_commit,
    message_set,
    spending,
    spending_begin,
    spending_end,
    spending_may_begin,
)
from training.engine.questions import (
    Questions,
    Released,
    attempt_load,
    batch_part,
    draws_of,
    released_name,
    released_tidy,
    round_under_way,
    run_folder,
    state_before,
)
from training.models import Query, Round, Run, Shard

logger = logging.getLogger(__name__)


class Asking:
    """Steps of a run in which every holder is asked ``questions``."""

    def __init__(self, questions: Questions) -> None:
        self.questions = questions

    def open(self, run: Run) -> bool:
        """Begin asking once no other run of the study is spending."""
        with spending(run, Run.Status.APPROVED) as held:
            if held is None:
                return False
            if not spending_may_begin(held):
                message_set(held, WAITS)
                return False
            spending_begin(held)
        return True

    def step(self, run: Run) -> bool:
        """Advance the run by one step; return True if the next step can follow immediately."""
        current = run.rounds.last()
        if current is not None and not self.questions.is_over(current):
            return self._batch(run, current)
        if run.rounds.count() == len(run.plan["rounds"]):
            return self._while_spending(run, self._close)
        return self._while_spending(run, partial(self._round_begin, opened=self.questions.round_open(run)))

    def can_continue(self, run: Run) -> bool:
        """Return whether a waiting run can continue now."""
        if run.status == Run.Status.APPROVED:
            return spending_may_begin(run)
        return run.status == Run.Status.ASKING and are_shards_done(run)

    def _batch(self, run: Run, current: Round) -> bool:
        """Advance the current batch by one step."""
        shard = self.questions.shard_of(current)
        if shard is not None and not run.shards.exists():
            return self._while_spending(run, partial(self._batch_begin, size=shard))
        if shard is not None and not are_shards_done(run):
            shards_send(run)
            return False
        self.questions.precompute(run)  # outside the lock, because this only reads releases but can take long
        return self._while_spending(run, self._batch_at_once if shard is None else self._batch_end)

    def _while_spending(self, run: Run, act: Callable[[Run], bool]) -> bool:
        """Call ``act`` in a transaction under the study's lock, unless the run may no longer spend."""
        with spending(run, Run.Status.ASKING) as held:
            return held is not None and act(held)

    # --- Done under the lock, with the run's state at that time ------------------------------------------------------

    def _round_begin(self, held: Run, opened: Round) -> bool:
        if held.rounds.count() != opened.index:
            return False
        opened.save()
        logger.info("Round %d asks %d questions.", opened.index + 1, opened.size)
        return True

    def _close(self, held: Run) -> bool:
        last = held.rounds.last()
        if last is None or held.rounds.count() < len(held.plan["rounds"]) or not self.questions.is_over(last):
            return True  # another worker may have opened a round while this one waited
        outcome = self.questions.rehearsed(held) if held.rehearsal else held.outcome
        spending_end(held, self.questions.stop_reason(held), outcome=outcome)
        logger.info("All %d questions were asked.", held.position)
        return True

    def _batch_at_once(self, held: Run) -> bool:
        """Ask and release a batch in one transaction, with answers based on the budgets left before it."""
        current = round_under_way(held)
        if not self.questions.is_over(current):  # another worker may have asked the last batch while this one waited
            question, people, draws = self.questions.question(current), self.questions.people(held), draws_of(held)
            answer = question.answer(
                batch_part(question, current),
                state_before(question, current, held.batches.count()),
                people,
                lambda: self.questions.records(held, question.fitted, people),
                alone=True,
                draws=draws,
            )
            self._release(held, people, [{**answer, "holder": people.holders}], draws.noise)
        return True

    def _batch_begin(self, held: Run, size: int) -> bool:
        """Record the holders to be asked and their remaining budgets, and divide them into shards of about ``size``."""
        if not held.shards.exists():
            questions.attempt_write(held, self.questions.people(held))
            shards_cut(held, size)
        return True

    def _batch_end(self, held: Run) -> bool:
        """Release a batch that all shards have answered, and charge each person."""
        if not are_shards_done(held):
            return False
        answers = self._answers(held)
        if answers is not None:
            attempt = questions.attempt_load(held.assignment)
            charges = self._release(held, attempt, answers, draws_of(held).noise, attempt=held.assignment)
            if held.rehearsal:
                questions.attempt_write(held, replace(attempt, spent=attempt.spent + charges.spent))
            held.shards.all().delete()
            until = held.batches.count()
            transaction.on_commit(lambda: answers_delete(held, until))
        return True

    def _answers(self, run: Run) -> list[Arrays] | None:
        """Return the answers of all shards; None if some shards must be asked again."""
        try:
            changed = questions.attempt_renew(run, self.questions.people)
            if changed is None:
                return answers_load(run)
            shards_renew(run, set((changed % run.shards.count()).tolist()))
        except FileNotFoundError:
            # After a restore, the backup may refer to files that have since been deleted.
            questions.attempt_write(run, self.questions.people(run))
            shards_renew(run, set(run.shards.values_list("number", flat=True)))
        return None

    def _release(self, run: Run, people: People, answers: list[Arrays], noise: Noise, attempt: str = "") -> Charges:
        """Release a batch and charge for it, atomically in the caller's transaction."""
        opened_round, index = round_under_way(run), run.batches.count()
        question = self.questions.question(opened_round)
        part = batch_part(question, opened_round)
        release = question.release(part, state_before(question, opened_round, index), answers, noise)
        charges = charges_of_answers(people, answers, release.classes or release.charges)
        # With several shards, it is possible that only the beginning of a part is released and charged.
        bounds = release.charges or question.bounds(slice(part.start, part.start + release.size))
        released = released_of(run, question, release, bounds)
        batch_commit(
            run,
            released,
            costs_of(run, bounds) if bounds is not None and release.charges is None else released.bounds,
            None if bounds is None else charges,
            kind=self.questions.kind_of(opened_round),
            opened_round=opened_round,
            attempt=attempt,
        )
        return charges


def released_of(run: Run, question: Question, release: PartRelease, bounds: Sequence[float] | None) -> Released:
    """Store a release's arrays in a file, and return the release in the form that `batch_commit` expects."""
    return Released(
        size=release.size,
        labels=sum(label is not None for label in release.labels) - sum(release.reinforced),
        reinforced=sum(release.reinforced),
        bounds=list(bounds or [0.0] * len(run.plan["budgets"])),
        most=max(release.classes, default=0.0),
        content={"mechanism": question.describe(), "question": question.digest(), **release.content},
        queries=[
            Query(run=run, row=row, label=label, counts=counts, reinforced=bool(reinforced))
            for row, label, counts, reinforced in zip_longest(
                release.rows, release.labels, release.counts, release.reinforced
            )
        ],
        artifact=_kept(run, run.batches.count(), release.arrays),
        exhausted=release.exhausted,
    )


def charges_of_answers(people: People, answers: list[Arrays], groups: Sequence[float] | None) -> Charges:
    """Return everyone's charges in μ²: as computed in their answers or, if given, the charges of their ``groups``.

    A group is a budget of the plan or, if the release has charging classes, a charging class.
    """
    holders = np.concatenate([answer["holder"] for answer in answers])
    if groups is None:
        spent = np.concatenate([answer["charge"] for answer in answers])
    else:
        spent = np.array(groups)[np.concatenate([answer["group"] for answer in answers])]
    order = np.argsort(holders)
    return Charges(holders[order], spent[order], people.limits)


def _kept(run: Run, index: int, arrays: Arrays) -> str:
    """Store a batch's released arrays in a new file, which is public once a row refers to it; return its name or ""."""
    if not arrays:
        return ""
    artifact = released_name(run, index)
    arrays_save(artifact, **arrays)
    transaction.on_commit(lambda: released_tidy(run))
    return artifact


def costs_of(run: Run, bounds: Sequence[float]) -> list[float]:
    """Return, for each promise, the largest charge to anyone for a batch, in μ², within the run's budget. Public.

    If a policy approved after the plan makes a smaller promise than any in the plan, the whole share counts as used.
    """
    smallest = min(promise["epsilon"] for promise in run.plan["promises"])
    is_known = run.rehearsal or all(promise.epsilon >= smallest for promise in promises_possible(run.study))
    budgets = budgets_from_json(run.plan)
    left = [max(0.0, budget.allowed - spent) for budget, spent in zip(budgets, run.spent, strict=True)]
    return [min(bound, room) if is_known else room for bound, room in zip(bounds, left, strict=True)]


# --- Shards -----------------------------------------------------------------------------------------------------------


MOST_SHARDS = 256


def shards_cut(run: Run, size: int) -> None:
    """Divide the holders to be asked into shards of about ``size`` holders."""
    holders = sum(promise["holders"] for promise in run.plan["promises"])
    number = min(MOST_SHARDS, max(1, math.ceil(holders / size)))
    Shard.objects.bulk_create(Shard(run=run, number=place) for place in range(number))


def shards_send(run: Run) -> None:
    """Queue the waiting shards."""
    parts_send(run.shards.all(), "training.tasks.shard_ask")


def are_shards_done(run: Run) -> bool:
    """Return whether every shard of the current batch has been asked."""
    return set(run.shards.order_by().values_list("state", flat=True)) == {Shard.State.DONE}


def shards_renew(run: Run, numbers: Collection[int]) -> None:
    """Replace the rows of shards that must be asked again, so that workers still processing old rows write nothing."""
    old = run.shards.filter(number__in=numbers)
    files = [artifact for artifact in old.values_list("artifact", flat=True) if artifact]
    old.delete()
    Shard.objects.bulk_create(Shard(run=run, number=number) for number in sorted(numbers))
    transaction.on_commit(lambda: arrays_delete(*files))
    transaction.on_commit(lambda: shards_send(run))


def shard_ask(shard: Shard, questions: Questions) -> bool:
    """Ask a shard's holders about the current batch and store their contributions; return whether this call did so."""

    def work(shard: Shard) -> str:
        name = f"shard-{shard.run.batches.count()}-{shard.number}-{uuid4().hex[:12]}.npz"
        artifact = f"{run_folder(shard.run)}/{name}"
        arrays_save(artifact, **_answer(shard, questions))
        return artifact

    return run_part_do(shard, status=Run.Status.ASKING, work=work, died=questions.died)


def _answer(shard: Shard, questions: Questions) -> Arrays:
    run, number = shard.run, shard.run.shards.count() or 1  # none if the batch ended without answers
    opened_round = round_under_way(run)
    question = questions.question(opened_round)
    attempt = attempt_load(run.assignment)
    people = attempt.of(attempt.holders % number == shard.number)
    cache = f"{run_folder(run)}/coordinates-{opened_round.index}-{number}-{shard.number}.npz"
    answer = question.answer(
        batch_part(question, opened_round),
        state_before(question, opened_round, run.batches.count()),
        people,
        lambda: questions.records(run, question.fitted, people, cache),
        alone=number == 1 and run.alliance_id is None,
        draws=draws_of(run),
    )
    return {**answer, "holder": people.holders}


def answers_load(run: Run) -> list[Arrays]:
    """Return the answers of the shards of the current batch. Raises FileNotFoundError."""
    return [arrays_load(shard.artifact) for shard in run.shards.all()]


def answers_delete(run: Run, until: int) -> None:
    """Delete all answers to the first ``until`` batches, including those of workers that died."""
    folder = f"{run_folder(run)}/shard-"
    answers = (name for name in arrays_list(run_folder(run)) if name.startswith(folder))
    arrays_delete(*(name for name in answers if int(name.removeprefix(folder).split("-")[0]) < until))


# --- Parts ------------------------------------------------------------------------------------------------------------


def run_part_do(part: Any, *, status: str, work: Callable[[Any], str], died: str) -> bool:
    """Carry out a part of a run while the run is in ``status``; see :func:`common.jobs.part_do`."""
    done = part_do(part, is_due=lambda found: found.run.status == status, work=work, died=died)
    if done:
        Run.objects.filter(pk=part.run_id).update(heartbeat=timezone.now())
    return done
