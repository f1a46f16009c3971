"""Faults of batches in which every holder was asked: do charges agree with the plan, and with the records kept?"""

from collections.abc import Iterator, Sequence

import numpy as np

from accounting.book import charges_of
from accounting.models import Release
from accounting.services import ROUNDING
from consent.disposals import holders_erased_once
from training.models import Batch, Run


def charges_agree(run: Run, batch: Batch, release: Release, bounds: Sequence[float]) -> bool:
    """Whether each promise was publicly charged its bound, or what was left of the run's share if that is less.

    After a policy that made promises smaller the whole share counts as used.
    """
    earlier = Release.objects.filter(run=run.pk, batch__lt=batch.index).values_list("content", flat=True)
    told = zip(run.plan["budgets"], release.content["charges"], bounds, strict=True)
    for place, (budget, charge, bound) in enumerate(told):
        room = budget["allowed"] - sum(content["charges"][place] for content in earlier)
        slack = ROUNDING * budget["allowed"]
        if not min(bound, room) - slack <= charge <= max(room, 0.0) + slack:
            return False
    return release.charge == max(bounds)


def charged_faults(batch: Batch, release: Release, holders: np.ndarray, due: np.ndarray) -> Iterator[str]:
    """Whether a batch was charged to ``holders`` (H,), who were asked, with the μ² that were ``due`` (H,)."""
    charges = charges_of(release)
    # Of whom records were erased nothing can be computed anew: what was charged then is all that is known.
    erased = np.isin(holders, list(holders_erased_once(release.study_id)))
    if not np.array_equal(charges.holders, holders):
        yield f"release {release.sequence}: batch {batch.index} was not charged to those who were asked."
    elif not np.allclose(charges.spent[~erased], due[~erased], rtol=ROUNDING, atol=0):
        yield f"release {release.sequence}: batch {batch.index} cost those who were asked something else."
