"""Leads of released labels: by how much the largest noisy count of a query is ahead of the next. Public."""

from functools import lru_cache

import numpy as np

from learning.mechanisms.neighbours.release import read_counts
from training.methods.neighbours.lessons import round_counts
from training.methods.neighbours.rounds import question_load
from training.models import Round, Run

#: Where the classes of leads begin, in units of the noise.
LEADS = (0, 1, 2, 3, 5, 10, 20)


def round_leads(run: Run) -> list[list[float]]:
    """Shares of the labels of each round by how much they lead.

    For each round that has released any, the share of its points whose largest count leads the next by as many σ as
    each of :data:`LEADS` says, up to the next of them. Counts of residual votes are read as they were for the labels.
    """
    return [_leads(each.pk, each.artifact, each.position) for each in run.rounds.all() if each.position]


@lru_cache(maxsize=64)  # what was released never changes, and a run's page asks every two seconds
def _leads(round_id: int, _artifact: str, position: int) -> list[float]:
    opened_round, released = Round.objects.get(pk=round_id), slice(position)
    question = question_load(opened_round)
    margins = read_counts(
        round_counts(opened_round)[released],
        question.sigma,
        predicted=None if question.predicted is None else question.predicted[released],
        voters=question.voters[released],
    ).margins
    numbers, _edges = np.histogram(margins, [*LEADS, np.inf])
    return (numbers / len(margins)).tolist()
