"""Plan of a run in which every holder votes: rounds, noise, radius, forecast. Everything in it is public."""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from accounting.caps import caps_of
from common.artifacts import arrays_load
from common.sentences import Sentence, gettext_noop
from training.methods.neighbours.forecast import Forecast, Level, forecast
from training.methods.neighbours.parameters import LARGEST_SIGMA, Asking, asking_from_json
from training.methods.neighbours.planner import forecast_warnings, plan_rounds
from training.methods.neighbours.stand_ins import Sample
from training.methods.pate import PlanError
from training.models import Dataset, Run
from training.services.neighbours.space import Space, points_of, space_first
from training.services.planning import RESERVE, GroupBudget, PlannedPromise, promises_counted

#: As many labelled public points as a forecast looks at.
_SAMPLE = 1000


@dataclass(frozen=True)
class PlannedRound:
    """What is asked in a round: ``queries`` public points, noise ``sigma``, radius, and the share used by its end.

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
        """What a run keeps of its plan."""
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
    asking = asking_from_json(run.asking)
    promises = promises_counted(run)
    budgets = []
    for promise in promises:
        cap = float(caps_of(promise.epsilon, run.study.delta))
        budgets.append(GroupBudget(cap, share * cap * (1 - RESERVE), 0.0, 0.0))
    levels = tuple(
        Level(promise.name, budget.cap, float(promise.holders), asking.records)
        for promise, budget in zip(promises, budgets, strict=True)
        if promise.holders
    )
    if not levels:
        raise PlanError(
            gettext_noop("By the head counts nobody takes part, so that there is nobody to ask. Wait for consents.")
        )
    try:
        rounds, warnings = _rounds(run, asking, levels, share)
        representation = space_first(run.public_dataset, asking).fitted.representation.sentence()
    except ValueError as error:
        raise PlanError(str(error)) from error
    if max(planned.sigma for planned in rounds) > LARGEST_SIGMA:
        raise PlanError(
            gettext_noop(
                "So many labels for so small a share would need so much noise that they say nothing. "
                "Want fewer labels, or give the run a larger share."
            )
        )
    if share >= 1 - RESERVE and not run.rehearsal:
        text = gettext_noop("The run may use all that is left of every holder's cap: no later run could ask again.")
        warnings = (*warnings, Sentence(text))
    return AskingPlan(promises, budgets, rounds, representation, rounds[0].forecast, warnings)


def _rounds(
    run: Run, asking: Asking, levels: tuple[Level, ...], share: float
) -> tuple[list[PlannedRound], tuple[Sentence, ...]]:
    """The rounds with their forecasts, and warnings."""
    test = run.test_dataset
    planned, warnings = _planned(
        run.public_dataset.pk,
        run.public_dataset.digest,
        (test.pk, test.digest) if test is not None else None,
        json.dumps(asking.to_json()),
        levels,
        share,
        run.wanted_labels,
    )
    return list(planned), warnings


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
    """A proposal, in which what was chosen by hand takes the place of what was proposed."""
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
    )
    planned = []
    for each in proposal.rounds:
        told = each.forecast
        sigma, radius_share = asking.sigma or each.sigma, asking.radius_share or each.radius_share
        if (sigma, radius_share) != (each.sigma, each.radius_share):
            told = forecast(
                space.public[each.queries],
                space.public,
                levels,
                radius_share=radius_share,
                sigma=sigma,
                share=each.share,
                n_classes=classes,
                sample=sample,
                agreement=each.agreement,
            )
        planned.append(PlannedRound(len(each.queries), sigma, radius_share, each.share / share, told))
    return tuple(planned), forecast_warnings(planned[0].forecast)


def labelled_sample(test: Dataset, space: Space) -> Sample:
    """Some of a study's evaluation data, which are public or given for this use, in the coordinates of a space."""
    labels = arrays_load(test.artifact, "y")["y"]
    chosen = np.linspace(0, len(labels) - 1, min(len(labels), _SAMPLE)).astype(np.int64)
    return Sample(space.fitted.transform(points_of(test)[chosen]), labels[chosen])


def levels_of(run: Run) -> list[Level]:
    """The promises of a run's plan with their public or noisy numbers of holders."""
    records = asking_from_json(run.asking).records
    return [
        Level(promise["name"], budget["cap"], float(promise["holders"]), records)
        for promise, budget in zip(run.plan["promises"], run.plan["budgets"], strict=True)
        if promise["holders"]
    ]
