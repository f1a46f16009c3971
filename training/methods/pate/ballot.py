"""Files of a run's ballot: what its teachers say and who is behind them. All of it is secret.

A file is never written over by another content that matters: the row in the database names the one that counts, so
that a crash between the two, or a worker that wakes up late, leaves a file that nobody reads.
"""

from functools import lru_cache
from uuid import UUID, uuid4

import numpy as np

from common.artifacts import arrays_load
from learning.mechanisms.pate.ballots import Ballot
from training.engine.attempts import run_folder
from training.models import Run, TeacherChunk


def assignment_name(run: Run) -> str:
    """A new name for pairs ``holder``, ``teacher``, ``group`` (index in the plan), and ``seeds`` (teachers,)."""
    return f"{run_folder(run)}/assignment-{uuid4().hex[:12]}.npz"


def predictions_name(chunk: TeacherChunk) -> str:
    """A new name for ``predictions`` (teachers of the chunk, public points) of class numbers, or ``NO_VOTE``."""
    return f"{run_folder(chunk.run)}/predictions-{chunk.start}-{uuid4().hex[:12]}.npz"


def predictions_load(run: Run) -> np.ndarray:
    """Predictions of every teacher for every public point: ``(teachers, points)``."""
    return np.concatenate([arrays_load(chunk.artifact)["predictions"] for chunk in run.chunks.all()])


@lru_cache(maxsize=2)
def ballot_load(run_id: UUID) -> Ballot:
    """The ballot of a run whose vote has begun, while its arrays are kept."""
    run = Run.objects.get(pk=run_id)
    predictions, pairs = predictions_load(run), arrays_load(run.assignment)
    return Ballot(predictions, pairs["holder"], pairs["teacher"], pairs["group"])
