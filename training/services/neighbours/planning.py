"""Plan of a run in which every holder votes: rounds, noise, radius, forecast. Everything in it is public."""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from common.sentences import Sentence, gettext_noop
from training.methods.levels import Level
from training.methods.neighbours.forecast import Forecast
from training.methods.neighbours.parameters import LARGEST_SIGMA, Asking, asking_from_json
from training.methods.neighbours.planner import plan_rounds
from training.methods.neighbours.stand_ins import Sample
from training.methods.pate import PlanError
from training.models import Dataset, Run
from training.services.holders.planning import budgets_of, levels_of, share_warning
from training.services.holders.space import Space, labelled_points, space_first
from training.services.planning import GroupBudget, PlannedPromise, promises_counted

#: As many labelled public points as a forecast looks at.
_SAMPLE = 1000


@dataclass(frozen=True)
class PlannedRound:
    """Plan of a round: ``queries`` public points, noise ``sigma``, radius, and the share used by its end.

    ``until`` is the part of the run's share that accounts may have used when the round ends. σ and radius of a second
    round that were not chosen by hand are proposed anew from the counts of the first.
    """

    queries: int
    sigma: float
    radius_share: float
    until: float
    forecast: Forecast


@dataclass(frozen=True)
class AskingPlan:
    """A plan with what it rests on; ``budgets`` stand beside ``promises``."""

    promises: list[PlannedPromise]
    budgets: list[GroupBudget]
    rounds: list[PlannedRound]
    representation: Sentence
    forecast: Forecast
    notes: tuple[Sentence, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of its plan."""
        return {
            "promises": [asdict(promise) for promise in self.promises],
            "budgets": [asdict(budget) for budget in self.budgets],
            "rounds": [asdict(each) for each in self.rounds],
            "representation": self.representation.to_json(),
            "forecast": asdict(self.forecast),
            "notes": [note.to_json() for note in self.notes],
        }


def asking_plan(run: Run, share: float = 1.0) -> AskingPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, public points, evaluation data (conditions 1 and
    2 of the guarantee).
    """
    asking, promises = asking_from_json(run.asking), promises_counted(run)
    budgets = budgets_of(run, promises, share)
    levels = levels_of(promises, budgets, asking.records)
    rounds, notes = rounds_planned(
        run.public_dataset, run.test_dataset, asking, levels, share=share, wanted=run.wanted_labels
    )
    representation = space_first(run.public_dataset, asking).fitted.representation.sentence()
    notes = (*notes, *share_warning(run, share))
    return AskingPlan(promises, budgets, rounds, representation, rounds[0].forecast, notes)


def rounds_planned(
    public: Dataset,
    test: Dataset | None,
    asking: Asking,
    levels: tuple[Level, ...],
    *,
    share: float,
    wanted: int | None = None,
) -> tuple[list[PlannedRound], tuple[Sentence, ...]]:
    """The rounds with their forecasts, and notes, for a ``share`` of every cap and all or some ``wanted`` labels.

    Takes seconds the first time. Raises PlanError, which says what to do.
    """
    test_key = (test.pk, test.digest) if test is not None else None
    try:
        planned, notes = _planned(
            public.pk, public.digest, test_key, json.dumps(asking.to_json()), levels, share, wanted
        )
    except ValueError as error:
        raise PlanError(str(error)) from error
    if max(each.sigma for each in planned) > LARGEST_SIGMA:
        raise PlanError(
            gettext_noop(
                "So many labels for so small a share would need so much noise that they say nothing. "
                "Want fewer labels, or give the run a larger share."
            )
        )
    return list(planned), notes


@lru_cache(maxsize=32)
def _planned(
    public_id: int,
    _digest: str,
    test_key: tuple[int, str] | None,
    document: str,
    levels: tuple[Level, ...],
    share: float,
    wanted: int | None,
) -> tuple[tuple[PlannedRound, ...], tuple[Sentence, ...]]:
    """The rounds, and warnings and choices."""
    dataset, asking = Dataset.objects.get(pk=public_id), asking_from_json(json.loads(document))
    space, classes = space_first(dataset, asking), len(dataset.classes)
    sample = labelled_sample(Dataset.objects.get(pk=test_key[0]), space) if test_key is not None else None
    proposal = plan_rounds(
        space.public,
        levels,
        share=share,
        n_classes=classes,
        rounds=asking.rounds,
        wanted=min(wanted, dataset.rows) if wanted is not None else None,
        first=asking.first_queries,
        sample=sample,
        sigma=asking.sigma,
        radius_share=asking.radius_share,
    )
    planned = tuple(
        PlannedRound(len(each.queries), each.sigma, each.radius_share, each.share / share, each.forecast)
        for each in proposal.rounds
    )
    return planned, proposal.warnings if proposal.chosen is None else (proposal.chosen, *proposal.warnings)


def labelled_sample(test: Dataset, space: Space) -> Sample:
    """Some of a study's evaluation data in the coordinates of a space."""
    return Sample(*labelled_points(test, space, _SAMPLE))


def levels_planned(run: Run) -> list[Level]:
    """The promises of a run's plan with their public or noisy numbers of holders."""
    records = asking_from_json(run.asking).records
    return [
        Level(promise["name"], budget["cap"], float(promise["holders"]), records)
        for promise, budget in zip(run.plan["promises"], run.plan["budgets"], strict=True)
        if promise["holders"]
    ]
