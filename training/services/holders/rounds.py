"""Position of a run in which every holder is asked, and the files of what it asks and releases."""

from uuid import uuid4

from common.artifacts import arrays_delete, arrays_list
from training.models import Batch, Round, Run

_BATCH = "batch-"


def rounds_folder(run: Run) -> str:
    """Folder of what a run asks and releases, public once a row names it."""
    return f"rounds/{run.pk}"


def released_name(run: Run, index: int) -> str:
    """A new name for what a batch releases."""
    return f"{rounds_folder(run)}/{_BATCH}{index}-{uuid4().hex[:12]}.npz"


def released_tidy(run: Run) -> None:
    """Delete what was drawn and never released: files of commits that failed. Nobody has seen them."""
    named, start = set(run.batches.values_list("released", flat=True)), f"{rounds_folder(run)}/{_BATCH}"
    drawn = (name for name in arrays_list(rounds_folder(run)) if name.startswith(start))
    arrays_delete(*(name for name in drawn if name not in named))


def round_under_way(run: Run) -> Round:
    """The last round that was opened."""
    asked = run.rounds.latest("index")
    asked.run = run
    return asked


def batch_slice(asked: Round) -> slice:
    """The part of the round that the batch under way asks."""
    return slice(asked.position, min(asked.position + asked.run.batch_size, asked.size))


def position_in_round(batch: Batch) -> int:
    """Number of queries or steps of its round before a batch."""
    earlier = batch.run.batches.filter(round=batch.round_id, index__lt=batch.index)
    return sum(earlier.values_list("size", flat=True))
