"""Folders of a run in private storage: its secrets, and what it asks and releases, public once a row names it."""

from uuid import uuid4

from common.artifacts import arrays_delete, arrays_list
from training.models import Run

_BATCH = "batch-"


def run_folder(run: Run) -> str:
    """Folder of a run's secrets in private storage, and of nothing else."""
    return f"runs/{run.pk}"


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
