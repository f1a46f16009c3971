"""The one commit of a batch, by any method: what it released, whom it charged, and where the run stands after it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from django.utils import timezone

from accounting.services import release_record
from common.bulk import rows_insert
from training.engine.questions import Released
from training.engine.spending import charged_tell
from training.models import Batch, Round, Run


@dataclass(frozen=True, eq=False)
class Charges:
    """Charges of a batch in μ², (H,) each: ids of ``holders`` in rising order, ``spent``, ``limits`` of accounts."""

    holders: np.ndarray
    spent: np.ndarray
    limits: np.ndarray


def batch_commit(
    run: Run,
    released: Released,
    costs: Sequence[float],
    charges: Charges | None,
    *,
    kind: str,
    opened_round: Round | None = None,
    attempt: str = "",
) -> None:
    """Write a batch with its release, its charges and the run's position; the caller's transaction makes them one.

    Args:
        run: Held by :func:`training.engine.spending.spending`.
        released: What leaves.
        costs: What each promise of the plan counts as charged, in μ²; public.
        charges: Whom it charges; None where that was done by an earlier batch, or the run is a rehearsal.
        kind: A :class:`accounting.models.Release.Kind`.
        opened_round: The round that it belongs to, of a method that has rounds.
        attempt: The file that says who was asked, where that is not the same throughout the run.
    """
    batch = Batch.objects.create(
        run=run,
        index=run.batches.count(),
        start=run.position,
        size=released.size,
        labels=released.labels,
        round=opened_round,
        attempt=attempt,
        released=released.artifact,
    )
    for query in released.queries:
        query.batch = batch
    if released.queries:
        rows_insert(released.queries)
    if not run.rehearsal:
        release_record(
            study=run.study,
            kind=kind,
            run=run.pk,
            batch=batch.index,
            content=released.content | {"charges": list(costs)},
            holders=None if charges is None else charges.holders,
            charges=None if charges is None else charges.spent,
            limits=None if charges is None else charges.limits,
            charge=max(*released.bounds, released.most),
            acting_user_id=run.approved_by_id,
        )
        charged_tell(run, costs, released.exhausted)
    if opened_round is not None:
        Round.objects.filter(pk=opened_round.pk).update(position=opened_round.position + released.size)
    Run.objects.filter(pk=run.pk).update(
        position=run.position + released.size,
        labels=run.labels + released.labels,
        reinforced=run.reinforced + released.reinforced,
        spent=(np.array(run.spent) + costs).tolist(),
        heartbeat=timezone.now(),
        message="",
    )
