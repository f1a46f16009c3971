"""Votes of every holder on public points, as the engine that asks them needs it."""

import hashlib
import json

import numpy as np
from django.utils.translation import gettext_noop

from accounting.models import Release
from accounting.privacy import IndividualAccounts
from common.noise import Noise
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.mechanisms.neighbours.release import read_counts
from learning.mechanisms.neighbours.votes import shard_contributions
from training.models import Query, Round, Run
from training.services.holders.base import Answer, People, Released
from training.services.holders.rounds import batch_slice
from training.services.holders.shards import records_of
from training.services.neighbours.opening import round_open
from training.services.neighbours.rounds import Question, question_digest, question_load


class Votes:
    """See :class:`training.services.holders.base.Questions`."""

    status: str = Run.Status.ASKING
    shard = 10_000
    release_kind = Release.Kind.COUNTS.value
    died = gettext_noop(
        "Workers died again and again while they asked the same holders; most likely their memory did not suffice. "
        "Propose the run anew with smaller batches, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def taking_part(self, run: Run, people: People) -> People:
        return people

    def round_load(self, asked: Round) -> None:
        question_load(asked)

    def answer(self, asked: Round, people: People, *, alone: bool, cache: str, noise: Noise) -> Answer:
        del alone, noise  # noise is drawn once, over the sum of all shards
        sums, charges = contributions(asked.run, question_load(asked), batch_slice(asked), people, cache)
        return {"sums": sums, "charge": charges}

    def release(self, asked: Round, answers: list[Answer], noise: Noise) -> Released:
        question, part = question_load(asked), batch_slice(asked)
        totals = np.sum([answer["sums"] for answer in answers], axis=0)
        counts = np.rint(totals + noise.normal(question.sigma, totals.shape)).astype(np.int64)
        rows = question.rows[part]
        labels = labels_of(question, part, counts)
        return Released(
            size=len(rows),
            labels=len(rows),
            bounds=bounds(asked.run, len(rows), question),
            queries=[
                Query(run=asked.run, row=row, label=label, counts=told)
                for row, label, told in zip(rows.tolist(), labels.tolist(), counts.tolist(), strict=True)
            ],
            content={
                "mechanism": mechanism(asked.run, asked),
                "queries": len(rows),
                "labels": len(rows),
                "digest": counts_digest(rows, labels, counts),
                "question": question_digest(question),
            },
        )

    def stop_reason(self, run: Run) -> str:
        asked_for_less = run.wanted_labels is not None and run.position < run.public_points.rows
        return Run.StopReason.ENOUGH if asked_for_less else Run.StopReason.USED_UP

    def spent(self, run: Run) -> list[float | None]:
        return run.spent


def labels_of(question: Question, part: slice, counts: np.ndarray) -> np.ndarray:
    """Labels (Q,) of some queries of a round, which follow from their noisy counts (Q, C)."""
    predicted = None if question.predicted is None else question.predicted[part]
    return read_counts(counts, question.sigma, predicted=predicted, voters=question.voters[part]).labels


def bounds(run: Run, size: int, question: Question) -> list[float]:
    """The most that anybody of each promise of the plan can be charged for ``size`` queries, in μ²."""
    return [size * question.norm / question.sigma**2] * len(run.plan["budgets"])


def contributions(
    run: Run, question: Question, part: slice, people: People, cache: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Contributions of holders to some queries of a round, as far as their accounts allow.

    Args:
        run: The run.
        question: What its round asks.
        part: The queries of the batch.
        people: Who is asked, with what room.
        cache: A file for the coordinates of their records; none if empty.

    Returns:
        Unnoised sums (Q, C), and what each is charged, (H,) μ².
    """
    coordinates, classes, owners = records_of(run, question.fitted, people.holders, cache)
    accounts = IndividualAccounts(np.maximum(people.limits, 0.0), people.spent)
    sums, norms = shard_contributions(
        question.queries[part],
        question.radii[part],
        coordinates,
        classes,
        np.searchsorted(people.holders, owners),
        n_classes=question.n_classes,
        accounts=accounts,
        sigma=question.sigma,
        predicted=None if question.predicted is None else question.predicted[part],
        kernel=question.kernel,
    )
    # The difference of the accounts, not the sum of the norms: what is charged and what is left are the same numbers.
    del norms
    return sums, accounts.spent - people.spent


def mechanism(run: Run, asked: Round) -> dict:
    """Mechanism of the counts of a round, in public terms."""
    return {
        "name": "neighbours",
        "sigma": asked.sigma,
        "radius_share": asked.radius_share,
        "kernel": NeighbourChoices.from_json(run.choices).kernel,
        "round": asked.index + 1,
    }


def counts_digest(rows: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> str:
    """SHA-256 of released counts: rows of the public dataset, each with its label and noisy counts."""
    told = [[int(row), int(label), each] for row, label, each in zip(rows, labels, counts.tolist(), strict=True)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
