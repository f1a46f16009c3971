"""The forecast of a run: its plan for a share of every cap, with all that is to be checked before anybody approves it.

Pages, the API and the command line tell this one. It is a function of what is public alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accounting.head_counts import head_counts
from accounting.models import HeadCount
from accounting.shares import ROUNDING, SUGGESTED, share_free, suggested_share
from common.sentences import Sentence, gettext_noop
from learning.forecasts import headline, useless
from training.methods import MethodPlan, method_of
from training.methods.planning import beside_majority
from training.models import Run
from training.services.alternatives import Alternative, alternatives, alternatives_notes

#: With fewer holders than this a promise has little to hide each of them among, and little to learn from.
FEW = 10

_NO_PROVENANCE = gettext_noop(
    "Nobody has stated where the public points come from. State it on the page of their dataset, for the model card."
)
_LABELLED = gettext_noop(
    "The student also learns from the labels of %(rows)d public rows of “%(dataset)s”, which are used as they are: "
    "without noise, and for free."
)
_FEW = gettext_noop(
    "Only %(holders)d holders have the promise %(group)s (ε = %(epsilon)g): what is learned from them is little, and "
    "each hides among few. Wait for more, or leave the group out."
)
_UNCERTAIN = gettext_noop(
    "The head count of %(group)s, %(holders)d, was drawn with noise of standard deviation %(sigma)g: how many there "
    "are is hardly known, and the plan rests on it."
)
_LITTLE_LEFT = gettext_noop(
    "Only %(share).3g %% of every holder's cap is left for this run, so that about %(right)d of 100 are expected to be "
    "right. With the whole cap it would be about %(most)d. The rest is used or held by other runs: wait until one of "
    "them returns some, or ask people in a new study."
)
_LITTLE_GIVEN = gettext_noop(
    "With %(share).3g %% of every holder's cap about %(right)d of 100 are expected to be right, and with the whole cap "
    "about %(most)d. Give the run a larger share: %(free).3g %% is free."
)
#: By so much a larger share improves the share of right ones at least where a plan says so.
_WORSE = 0.05


@dataclass(frozen=True)
class Forecast:
    """Plan of a run for ``share`` of every cap.

    ``notes`` are the choices made and the warnings, all of them; ``alternatives`` say what personal levels bring.
    """

    plan: MethodPlan
    share: float
    notes: tuple[Sentence, ...]
    alternatives: tuple[Alternative, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON of the plan with the share and all notes."""
        return self.plan.to_json() | {
            "share": self.share,
            "notes": [note.to_json() for note in self.notes],
            "alternatives": [each.to_json() for each in self.alternatives],
        }


def forecast(run: Run, share: float | None = None) -> Forecast:
    """Forecast of ``run`` (saved or not), for the suggested share where none is given.

    Raises:
        PlanError: the run cannot be carried out; it says what to do.
    """
    share = suggested_share(run.study) if share is None else share
    planned = beside_majority(method_of(run).plan(run, share), run)
    others = () if run.alliance_id else alternatives(run, planned, share)
    notes = (
        *planned.notes,
        *useless(planned.forecasts),
        *_notes(run),
        *_share_notes(run, planned, share),
        *alternatives_notes(others),
    )
    return Forecast(planned, share, notes, others)


def _share_notes(run: Run, planned: MethodPlan, share: float) -> Iterator[Sentence]:
    """Whether the forecast is poor because the run has little of every cap."""
    expected = headline(planned.forecasts)
    if run.rehearsal or run.alliance_id or share >= SUGGESTED or expected is None or expected.measure:
        return
    most = headline(method_of(run).plan(run, 1.0).forecasts)
    if most is None or most.noisy - expected.noisy < _WORSE:
        return
    free = share_free(run.study)
    numbers = {"share": 100 * share, "right": round(100 * expected.noisy), "most": round(100 * most.noisy)}
    if free > share + ROUNDING:
        yield Sentence(_LITTLE_GIVEN, **numbers, free=100 * free)
    else:
        yield Sentence(_LITTLE_LEFT, **numbers)


def _notes(run: Run) -> Iterator[Sentence]:
    if run.labelled_dataset is not None:
        yield Sentence(_LABELLED, rows=run.labelled_dataset.rows, dataset=run.labelled_dataset.name)
    if run.rehearsal:
        return
    if run.public_dataset is not None and not run.public_dataset.provenance:
        yield Sentence(_NO_PROVENANCE)
    for count in head_counts(run.study):
        if 0 < count.count < FEW:
            yield Sentence(_FEW, group=count.level, holders=count.count, epsilon=count.epsilon)
        if _is_uncertain(count):
            yield Sentence(_UNCERTAIN, group=count.level, holders=count.count, sigma=count.sigma)


def _is_uncertain(count: HeadCount) -> bool:
    """Whether the noise of a count that was drawn is as large as half of it."""
    return count.sigma is not None and 0 < count.count < 2 * count.sigma
