"""Shards of holders: what they contribute to the batch under way, and what each is charged. All of it is secret."""

import math
from collections.abc import Collection
from uuid import uuid4

from django.db import transaction

from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from common.jobs.parts import parts_send
from learning.mechanisms.base import Arrays
from training.engine.attempts import attempt_load
from training.engine.files import run_folder
from training.engine.parts import run_part_do
from training.engine.questions import Questions, batch_part, draws_of, round_under_way, state_before
from training.models import Run, Shard

MOST_SHARDS = 256


def shards_cut(run: Run, size: int) -> None:
    """Cut those who are asked into shards of about ``size`` holders."""
    holders = sum(promise["holders"] for promise in run.plan["promises"])
    number = min(MOST_SHARDS, max(1, math.ceil(holders / size)))
    Shard.objects.bulk_create(Shard(run=run, number=place) for place in range(number))


def shards_send(run: Run) -> None:
    """Queue the shards that wait."""
    parts_send(run.shards.all(), "training.tasks.shard_ask")


def are_shards_done(run: Run) -> bool:
    """Whether every shard of the batch under way has been asked."""
    return set(run.shards.order_by().values_list("state", flat=True)) == {Shard.State.DONE}


def shards_renew(run: Run, numbers: Collection[int]) -> None:
    """Ask some shards anew: new rows, so that a worker that is still at an old one writes into nothing."""
    old = run.shards.filter(number__in=numbers)
    files = [artifact for artifact in old.values_list("artifact", flat=True) if artifact]
    old.delete()
    Shard.objects.bulk_create(Shard(run=run, number=number) for number in sorted(numbers))
    transaction.on_commit(lambda: arrays_delete(*files))
    transaction.on_commit(lambda: shards_send(run))


def shard_ask(shard: Shard, questions: Questions) -> bool:
    """Ask the holders of a shard about the batch under way, and keep what they contribute; whether this call has."""

    def work(shard: Shard) -> str:
        name = f"shard-{shard.run.batches.count()}-{shard.number}-{uuid4().hex[:12]}.npz"
        artifact = f"{run_folder(shard.run)}/{name}"
        arrays_save(artifact, **_answer(shard, questions))
        return artifact

    return run_part_do(shard, status=Run.Status.ASKING, work=work, died=questions.died)


def _answer(shard: Shard, questions: Questions) -> Arrays:
    run, number = shard.run, shard.run.shards.count() or 1  # none where the batch is over, and nobody waits for this
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
    """Answers of the shards of the batch under way. Raises FileNotFoundError."""
    return [arrays_load(shard.artifact) for shard in run.shards.all()]


def answers_delete(run: Run, until: int) -> None:
    """Delete the answers to the first ``until`` batches, those of workers that died over them too: none stays."""
    folder = f"{run_folder(run)}/shard-"
    answers = (name for name in arrays_list(run_folder(run)) if name.startswith(folder))
    arrays_delete(*(name for name in answers if int(name.removeprefix(folder).split("-")[0]) < until))
