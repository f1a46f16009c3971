"""Rounds: which public points are asked, in which space, against which guess. Public, from released counts alone."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import uuid4

import numpy as np

from common.artifacts import arrays_load, arrays_save
from training.methods.neighbours.parameters import asking_from_json
from training.methods.neighbours.planner import EarlierRound, next_round
from training.methods.neighbours.rounds import doubtful_queries, spread_queries
from training.methods.neighbours.votes import radii
from training.models import Round, Run
from training.representations import (
    FittedRepresentation,
    representation_load,
    representation_save,
)
from training.services.holders.rounds import rounds_folder
from training.services.holders.space import Space, points_of, space_first, space_of_student
from training.services.lessons import queries_lesson, student_fit
from training.services.neighbours.planning import levels_planned


@dataclass(frozen=True, eq=False)
class Question:
    """What a round asks, with its noise and kernel.

    ``rows`` (Q,) of the public dataset in the order in which they are asked, ``queries`` (Q, d) their coordinates,
    ``radii`` (Q,) squared, ``voters`` (Q,) by the forecast, and ``predicted`` (Q,) where votes are residual.
    """

    rows: np.ndarray
    queries: np.ndarray
    radii: np.ndarray
    voters: np.ndarray
    predicted: np.ndarray | None
    fitted: FittedRepresentation
    sigma: float
    kernel: str
    n_classes: int

    @property
    def norm(self) -> float:
        """The largest squared norm of a contribution to one query: 2 where votes are residual."""
        return 1.0 if self.predicted is None else 2.0


def round_open(run: Run) -> Round:
    """The next round of a run, in a new file; the caller's transaction writes the row. Nothing private is looked at.

    The file is public and stays: what was asked can be verified as long as the run is there.
    """
    index = run.rounds.count()
    points = points_of(run.public_dataset)
    asked = _first(run, points) if index == 0 else _residual(run, points)
    queries = asked.space.public[asked.rows]
    arrays: dict[str, Any] = {
        "rows": asked.rows,
        "queries": queries,
        "radii": radii(queries, asked.space.public, asked.radius_share),
        "voters": asked.voters,
        "representation": np.frombuffer(representation_save(asked.space.fitted), dtype=np.uint8),
    }
    if asked.predicted is not None:
        arrays["predicted"] = asked.predicted
    artifact = f"{rounds_folder(run)}/{index}-{uuid4().hex[:12]}.npz"
    arrays_save(artifact, **arrays)
    return Round(
        run=run,
        index=index,
        representation=asked.space.fitted.representation.sentence().to_json(),
        artifact=artifact,
        sigma=asked.sigma,
        radius_share=asked.radius_share,
        size=len(asked.rows),
    )


@dataclass(frozen=True, eq=False)
class _Asked:
    """A round as it is about to be opened: ``rows`` (Q,) in the order in which they are asked, ``voters`` (Q,)."""

    space: Space
    rows: np.ndarray
    sigma: float
    radius_share: float
    voters: np.ndarray
    predicted: np.ndarray | None = None


def _first(run: Run, points: np.ndarray) -> _Asked:
    space, planned = space_first(run.public_dataset, asking_from_json(run.asking)), run.plan["rounds"][0]
    count = planned["queries"]
    rows = np.arange(len(points)) if count == len(points) else spread_queries(space.public, count)
    return _Asked(space, rows, planned["sigma"], planned["radius_share"], np.zeros(count))


def _residual(run: Run, points: np.ndarray) -> _Asked:
    """Residual votes on other points against the student of the first round; what was chosen by hand stands."""
    asking, first = asking_from_json(run.asking), run.rounds.get(index=0)
    assert first.radius_share is not None, "a round of votes has a radius"
    told, student = question_load(first), student_fit(run, queries_lesson(run))
    before = Space(told.fitted, told.fitted.transform(points))
    space = space_of_student(student, before, points) if asking.embedded else before
    probabilities = student.predict_proba(points)
    counts: dict[int, Any] = dict(run.queries.filter(batch__round=first).values_list("row", "counts"))
    levels, planned = levels_planned(run), run.plan["rounds"]
    others = np.setdiff1d(np.arange(len(points)), told.rows)
    wanted = planned[1]["queries"]
    others = others[doubtful_queries(probabilities[others], wanted)]
    proposed, voters = next_round(
        EarlierRound(
            told.rows,
            first.sigma,
            first.radius_share,
            run.share * planned[0]["until"],
            {level["name"]: level["spent"] for level in planned[0]["forecast"]["levels"]},
        ),
        before.public,
        [counts[row] for row in told.rows.tolist()],
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
    return _Asked(
        space, rows, proposed.sigma, proposed.radius_share, voters, predicted=probabilities[rows].argmax(axis=1)
    )


def question_load(asked: Round) -> Question:
    """What a round asks."""
    return _question(asked.pk, asked.artifact)


def question_digest(question: Question) -> str:
    """SHA-256 of everything that a round asks."""
    digest = hashlib.sha256()
    arrays = {"rows": question.rows, "queries": question.queries, "radii": question.radii}
    arrays |= {"voters": question.voters} | question.fitted.state()
    if question.predicted is not None:
        arrays["predicted"] = question.predicted
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@lru_cache(maxsize=2)
def _question(round_id: int, artifact: str) -> Question:
    asked, arrays = Round.objects.select_related("run__public_dataset").get(pk=round_id), arrays_load(artifact)
    run = asked.run
    return Question(
        rows=arrays["rows"],
        queries=arrays["queries"],
        radii=arrays["radii"],
        voters=arrays["voters"],
        predicted=arrays.get("predicted"),
        fitted=representation_load(arrays["representation"].tobytes()),
        sigma=asked.sigma,
        kernel=asking_from_json(run.asking).kernel,
        n_classes=len(run.public_dataset.classes),
    )
