"""Opening of rounds of votes: which public points are asked, in which space, against which guess.

Public: it follows from public points and released counts alone.
"""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from common.artifacts import arrays_save
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.mechanisms.neighbours.planner import EarlierRound, next_round
from learning.mechanisms.neighbours.rounds import doubtful_queries, spread_queries
from learning.mechanisms.neighbours.votes import radii
from learning.representations import representation_save
from training.engine.files import rounds_folder
from training.methods.lessons import student_fit
from training.methods.neighbours.lessons import round_counts, votes_lesson
from training.methods.neighbours.planning import planned_levels
from training.methods.neighbours.rounds import question_load
from training.methods.space import Space, points_of, space_first, space_of_student
from training.models import Round, Run


def round_open(run: Run) -> Round:
    """The next round of a run, in a new file; the caller's transaction writes the row. Nothing private is looked at.

    The file is public and stays: what was asked can be verified as long as the run is there.
    """
    index = run.rounds.count()
    points = points_of(run.public_points, run.encoder)
    opening = _first(run, points) if index == 0 else _residual(run, points)
    queries = opening.space.public[opening.rows]
    arrays: dict[str, Any] = {
        "rows": opening.rows,
        "queries": queries,
        "radii": radii(queries, opening.space.public, opening.radius_share),
        "voters": opening.voters,
        "representation": np.frombuffer(representation_save(opening.space.fitted), dtype=np.uint8),
    }
    if opening.predicted is not None:
        arrays["predicted"] = opening.predicted
    artifact = f"{rounds_folder(run)}/{index}-{uuid4().hex[:12]}.npz"
    arrays_save(artifact, **arrays)
    return Round(
        run=run,
        index=index,
        representation=opening.space.fitted.representation.sentence().to_json(),
        artifact=artifact,
        sigma=opening.sigma,
        radius_share=opening.radius_share,
        size=len(opening.rows),
    )


@dataclass(frozen=True, eq=False)
class _Opening:
    """A round as it is about to be opened: ``rows`` (Q,) in the order in which they are asked, ``voters`` (Q,)."""

    space: Space
    rows: np.ndarray
    sigma: float
    radius_share: float
    voters: np.ndarray
    predicted: np.ndarray | None = None


def _first(run: Run, points: np.ndarray) -> _Opening:
    space, planned = space_first(run.public_points, NeighbourChoices.from_json(run.choices)), run.plan["rounds"][0]
    count = planned["queries"]
    rows = np.arange(len(points)) if count == len(points) else spread_queries(space.public, count)
    return _Opening(space, rows, planned["sigma"], planned["radius_share"], np.zeros(count))


def _residual(run: Run, points: np.ndarray) -> _Opening:
    """Residual votes on other points against the student of the first round; what was chosen by hand stands."""
    asking, first = NeighbourChoices.from_json(run.choices), run.rounds.get(index=0)
    assert first.radius_share is not None, "a round of votes has a radius"
    question, student = question_load(first), student_fit(run, votes_lesson(run))
    before = Space(question.fitted, question.fitted.transform(points), run.encoder)
    space = space_of_student(student, before, points) if asking.embedded else before
    probabilities = student.predict_proba(points)
    levels, planned = planned_levels(run), run.plan["rounds"]
    others = np.setdiff1d(np.arange(len(points)), question.rows)
    count = planned[1]["queries"]
    others = others[doubtful_queries(probabilities[others], count)]
    proposed, voters = next_round(
        EarlierRound(
            question.rows,
            first.sigma,
            first.radius_share,
            run.share * planned[0]["until"],
            {level["name"]: level["spent"] for level in planned[0]["forecast"]["levels"]},
        ),
        before.public,
        round_counts(first),
        space.public,
        probabilities,
        levels,
        share=run.share * planned[1]["until"],
        n_classes=probabilities.shape[1],
        queries=others,
        sigma=asking.sigma,
        radius_share=asking.radius_share,
    )
    rows = proposed.queries
    return _Opening(
        space, rows, proposed.sigma, proposed.radius_share, voters, predicted=probabilities[rows].argmax(axis=1)
    )
