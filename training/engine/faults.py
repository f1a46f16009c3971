"""Faults of batches in which every holder was asked: do they agree with their question, the plan, the records kept?"""

from collections.abc import Iterator, Sequence

import numpy as np

from accounting.book import charges_of
from accounting.models import Release
from accounting.services import ROUNDING
from consent.services.disposals import holders_erased_once
from learning.mechanisms.base import Question
from training.engine.questions import position_in_round
from training.models import Batch, Run


def batch_faults(
    question: Question, batch: Batch, release: Release, bounds: Sequence[float] | None, most: float = 0.0
) -> Iterator[str]:
    """Differences between a batch, the question of its round and the release that paid for it, whatever was asked.

    ``bounds`` are the most that anybody of each budget of the plan can have been charged, in μ²; None where an earlier
    batch has charged them. ``most`` is the largest charge of a charging class, if there are such.
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
    if (opened_round.size, opened_round.sigma, opened_round.representation) != (question.size, question.sigma, space):
        yield f"{who}: what its round says of itself is not what it asked."
    if opened_round.position < before + batch.size:
        yield f"{who}: is in a round that has not asked so much."
    if bounds is None:
        if release.charges or release.charge or any(content["charges"]):
            yield f"{entry}: charges somebody once more for steps that were paid for before."
    elif not charges_agree(run, batch, release, bounds, most):
        yield f"{entry}: its public charge is not what {who} can have cost."


def charges_agree(run: Run, batch: Batch, release: Release, bounds: Sequence[float], most: float = 0.0) -> bool:
    """Whether each promise was publicly charged its bound, or what was left of the run's share if that is less.

    After a policy that made promises smaller the whole share counts as used.
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
    """Whether a batch was charged to ``holders`` (H,), who were asked, with the μ² that were ``due`` (H,)."""
    charges = charges_of(release)
    # Of whom records were erased nothing can be computed anew: what was charged then is all that is known.
    erased = np.isin(holders, list(holders_erased_once(release.study_id)))
    if not np.array_equal(charges.holders, holders):
        yield f"release {release.sequence}: batch {batch.index} was not charged to those who were asked."
    elif not np.allclose(charges.spent[~erased], due[~erased], rtol=ROUNDING, atol=0):
        yield f"release {release.sequence}: batch {batch.index} cost those who were asked something else."
