"""The lesson of votes: noisy counts of neighbourhoods, from all rounds."""

from typing import Any

import numpy as np

from learning.class_shares import Share, voted_shares
from learning.students import Releases, counted, joined, labelled, neighbourhoods
from training.methods.lessons import Lesson
from training.methods.neighbours.rounds import question_load
from training.methods.space import points_of
from training.models import Query, Round, Run
from training.sites.documents import noise_factor


def round_counts(opened_round: Round) -> list[list[int]]:
    """(Q, C) counts of a round as released, in the order in which its points were asked."""
    counts: dict[int, Any] = dict(Query.objects.filter(batch__round=opened_round).values_list("row", "counts"))
    return [counts[row] for row in question_load(opened_round).rows[: opened_round.position].tolist()]


def votes_lesson(run: Run) -> Lesson:
    """All counts of a run, each with its noise and with the public points that stand for its voters.

    Those of images are refined in the space of the first round: later ones may come from what a student has learned.
    """
    public, points = run.public_points, points_of(run.public_points, run.encoder)
    rounds = list(run.rounds.filter(position__gt=0).order_by("index"))
    if not rounds:
        return Lesson(labelled([], [], classes=len(run.learns.categories)))
    spaces = [question_load(each).fitted.transform(points) for each in rounds]
    releases = joined([_releases(*each) for each in zip(rounds, spaces, strict=True)])
    coordinates = spaces[0] if public.schema["kind"] == "image" else None
    return Lesson(releases, coordinates, shares=_shares(rounds[0]) if run.classes else None)


def _shares(first: Round) -> list[Share] | None:
    """By the first round, in which nothing is predicted: votes of later ones count what a student did not know."""
    sigma = question_load(first).sigma * noise_factor(first.run)
    return voted_shares(np.array(round_counts(first), np.float64), sigma)


def _releases(opened_round: Round, coordinates: np.ndarray) -> Releases:
    """Those of a round, in whose space the public points have these (P, d) coordinates."""
    question, done = question_load(opened_round), slice(opened_round.position)
    rows = question.rows[done]
    return counted(
        rows,
        round_counts(opened_round),
        question.sigma * noise_factor(opened_round.run),
        predicted=None if question.predicted is None else question.predicted[done],
        voters=question.voters[done],
        reach=neighbourhoods(rows, coordinates, question.radii[done], kernel=question.kernel),
    )
