"""Position of a run that asks in rounds."""

from training.models import Batch, Round, Run


def round_under_way(run: Run) -> Round:
    """The last round that was opened."""
    opened_round = run.rounds.latest("index")
    opened_round.run = run
    return opened_round


def position_in_round(batch: Batch) -> int:
    """Number of queries or steps of its round before a batch."""
    earlier = batch.run.batches.filter(round=batch.round_id, index__lt=batch.index)
    return sum(earlier.values_list("size", flat=True))
