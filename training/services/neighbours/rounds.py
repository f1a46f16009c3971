"""Questions of rounds of votes, as they are kept."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from common.artifacts import arrays_load
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.representations import FittedRepresentation, representation_load
from training.models import Round


@dataclass(frozen=True, eq=False)
class Question:
    """Question of a round, with its noise and kernel.

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


def question_load(asked: Round) -> Question:
    """Question of a round."""
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
        kernel=NeighbourChoices.from_json(run.choices).kernel,
        n_classes=len(run.classes),
    )
