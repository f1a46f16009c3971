"""The single commit of a batch, for any method: its release, its charges, and the run's new position."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.utils import timezone

from accounting.accounts import charges_of
from accounting.models import Release
from accounting.services import ROUNDING, release_record
from common.bulk import rows_insert
from consent.services.disposals import holders_erased_once
from learning.mechanisms.protocol import Question
from training.engine.questions import Released, position_in_round
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
    """Write a batch with its release, its charges and the run's position, atomically in the caller's transaction.

    Args:
        run: Held by :func:`training.engine.spending.spending`.
        released: The batch's release.
        costs: What each promise of the plan counts as charged, in μ²; public.
        charges: Charges per holder; None if an earlier batch has made them, or the run is a rehearsal.
        kind: A :class:`accounting.models.Release.Kind`.
        opened_round: The round that it belongs to, if the method has rounds.
        attempt: The file listing who was asked, if that is not the same throughout the run.
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


# --- Faults -----------------------------------------------------------------------------------------------------------


def batch_faults(
    question: Question, batch: Batch, release: Release, bounds: Sequence[float] | None, most: float = 0.0
) -> Iterator[str]:
    """Yield differences between a batch, the question of its round and the release that paid for it.

    ``bounds`` are the most that anyone of each budget of the plan can have been charged, in μ²; None if an earlier
    batch has charged them. ``most`` is the largest charge of a charging class, if there are any.
    """
    run, opened_round, content = batch.run, batch.round, release.content
    assert opened_round is not None, "it has a question"
    who, entry, before = f"run {run.pk}, batch {batch.index}", f"release {release.sequence}", position_in_round(batch)
    if content["question"] != question.digest():
        yield f"{entry}: {who} asked something else than what was released."
    if content["mechanism"] != question.describe():
        yield f"{entry}: {who} was not asked as its plan says."
    space = opened_round.representation
    if question.fitted is not None:
        space = question.fitted.representation.sentence().to_json()
    # The words of the space may have changed since; the digest above covers the space itself.
    asked = (question.size, question.sigma, _values(space))
    if (opened_round.size, opened_round.sigma, _values(opened_round.representation)) != asked:
        yield f"{who}: what its round says of itself is not what it asked."
    if opened_round.position < before + batch.size:
        yield f"{who}: is in a round that has not asked so much."
    if bounds is None:
        if release.charges or release.charge or any(content["charges"]):
            yield f"{entry}: charges somebody once more for steps that were paid for before."
    elif not charges_agree(run, batch, release, bounds, most):
        yield f"{entry}: its public charge is not what {who} can have cost."


def charges_agree(run: Run, batch: Batch, release: Release, bounds: Sequence[float], most: float = 0.0) -> bool:
    """Return whether each promise was publicly charged its bound, or the rest of the run's share if that is less.

    After a policy that made promises smaller, the whole share counts as used.
    """
    earlier = Release.objects.filter(run=run.pk, batch__lt=batch.index).values_list("content", flat=True)
    bounded = zip(run.plan["budgets"], release.content["charges"], bounds, strict=True)
    for place, (budget, charge, bound) in enumerate(bounded):
        room = budget["allowed"] - sum(content["charges"][place] for content in earlier)
        slack = ROUNDING * budget["allowed"]
        if not min(bound, room) - slack <= charge <= max(room, 0.0) + slack:
            return False
    return release.charge == max(*bounds, most)


def charged_faults(batch: Batch, release: Release, holders: np.ndarray, due: np.ndarray) -> Iterator[str]:
    """Yield errors if a batch was not charged to the asked ``holders`` (H,) with the μ² that were ``due`` (H,)."""
    charges = charges_of(release)
    # For people whose records were erased nothing can be recomputed: only their charges from that time are known.
    erased = np.isin(holders, list(holders_erased_once(release.study_id)))
    if not np.array_equal(charges.holders, holders):
        yield f"release {release.sequence}: batch {batch.index} was not charged to those who were asked."
    elif not np.allclose(charges.spent[~erased], due[~erased], rtol=ROUNDING, atol=0):
        yield f"release {release.sequence}: batch {batch.index} cost those who were asked something else."


def _values(sentence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a sentence's JSON, without its words."""
    return {name: _values(each) if isinstance(each, dict) else each for name, each in sentence["values"].items()}
