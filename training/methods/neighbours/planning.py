"""Plan of a run in which every holder votes: rounds, noise, radius, forecast. Everything in it is public."""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast, few_people
from learning.mechanisms.base import PlanError
from learning.mechanisms.levels import Level
from learning.mechanisms.neighbours.choices import LARGEST_SIGMA, NeighbourChoices
from learning.mechanisms.neighbours.forecast import RoundForecast, expected_voters
from learning.mechanisms.neighbours.planner import PlannedRound as ProposedRound
from learning.mechanisms.neighbours.planner import plan_rounds
from learning.mechanisms.neighbours.stand_ins import Sample
from learning.outcomes import Target
from learning.students.forecast import LOOKED_AT, student_forecast
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.levels import budgets_of, levels_of, share_warning
from training.methods.plans import MethodPlan
from training.methods.space import Space, labelled_points, space_first
from training.models import Dataset, Run

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
    forecast: RoundForecast

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of it."""
        forecast = self.forecast
        votes = {name: value for name, value in vars(forecast).items() if name not in ("labels", "levels")}
        votes |= {"labels": forecast.labels.to_json(), "levels": [asdict(level) for level in forecast.levels]}
        return {**vars(self), "forecast": votes}


@dataclass(frozen=True)
class AskingPlan(MethodPlan):
    """Plan of votes; its ``forecasts`` are of the labels of the first round, and of a student of them."""

    rounds: list[PlannedRound]
    representation: Sentence

    @property
    def turnout(self) -> RoundForecast:
        """Forecast of who votes in the first round."""
        return self.rounds[0].forecast

    def details(self) -> dict[str, Any]:
        """JSON of the rounds, of the space in which neighbours are near, and of who votes in the first round."""
        rounds = [each.to_json() for each in self.rounds]
        return {
            "rounds": rounds,
            "representation": self.representation.to_json(),
            "turnout": rounds[0]["forecast"],
        }


def asking_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> AskingPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, public points, evaluation data (conditions 1 and
    2 of the guarantee).
    """
    asking, promises = NeighbourChoices.from_json(run.choices), promises or planned_promises(run)
    budgets = budgets_of(run, promises, share)
    levels = levels_of(promises, budgets, asking.records)
    rounds, notes, forecasts = rounds_plan(
        run.public_points, run.test_dataset, asking, levels, share=share, wanted=run.wanted_labels
    )
    representation = space_first(run.public_points, asking).fitted.representation.sentence()
    notes = (*notes, *share_warning(run, share))
    return AskingPlan(promises, budgets, forecasts, notes, rounds, representation)


def rounds_plan(
    public: Dataset,
    test: Dataset | None,
    asking: NeighbourChoices,
    levels: tuple[Level, ...],
    *,
    share: float,
    wanted: int | None = None,
) -> tuple[list[PlannedRound], tuple[Sentence, ...], tuple[Forecast, ...]]:
    """The rounds, notes, and forecasts of labels and student.

    For a ``share`` of every cap, and all or some ``wanted`` labels.

    Takes seconds the first time. Raises PlanError, which says what to do.
    """
    test_key = (test.pk, test.digest) if test is not None else None
    try:
        planned, notes, forecasts = _planned(
            public.pk, public.digest, test_key, json.dumps(asking.to_json()), levels, share, wanted
        )
    except ValueError as error:
        raise PlanError(str(error)) from error
    if max(each.sigma for each in planned) > LARGEST_SIGMA:
        raise PlanError(
            gettext_noop(
                "With this many labels and this share, the noise would drown out the answers. Ask for fewer labels, "
                "or give the run a larger share."
            )
        )
    return list(planned), notes, forecasts


@lru_cache(maxsize=32)
def _planned(
    public_id: int,
    _digest: str,
    test_key: tuple[int, str] | None,
    document: str,
    levels: tuple[Level, ...],
    share: float,
    wanted: int | None,
) -> tuple[tuple[PlannedRound, ...], tuple[Sentence, ...], tuple[Forecast, ...]]:
    """The rounds, warnings and choices, and the forecasts."""
    dataset, asking = Dataset.objects.get(pk=public_id), NeighbourChoices.from_json(json.loads(document))
    space, classes = space_first(dataset, asking), len(dataset.outcome.categories)
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
    forecasts: tuple[Forecast, ...] = (proposal.rounds[0].forecast.labels,)
    if dataset.schema["kind"] == "image":
        forecasts += (_student(proposal.rounds[0], space, levels, classes, sample),)
    warnings = few_people(forecasts, classes)
    if isinstance(dataset.outcome, Target):  # which category leads says little of how good a number is
        forecasts = ()
    return planned, warnings if proposal.chosen is None else (proposal.chosen, *warnings), forecasts


def _student(
    first: ProposedRound, space: Space, levels: tuple[Level, ...], classes: int, sample: Sample | None
) -> Forecast:
    """Forecast of a student of the first round."""
    settings = {"radius_share": first.radius_share, "sigma": first.sigma}
    queries = space.public[first.queries]
    voters = expected_voters(queries, space.public, levels, share=first.share, most=LOOKED_AT, **settings)
    return student_forecast(first.queries, space.public, voters, n_classes=classes, sample=sample, **settings)


def labelled_sample(test: Dataset, space: Space) -> Sample:
    """Some of a study's evaluation data in the coordinates of a space."""
    points, codes = labelled_points(test, space, _SAMPLE)
    return Sample(points, test.outcome.categories_of(codes))


def planned_levels(run: Run) -> list[Level]:
    """The promises of a run's plan with their public or noisy numbers of holders."""
    records = NeighbourChoices.from_json(run.choices).records
    return [
        Level(promise["name"], budget["cap"], float(promise["holders"]), records)
        for promise, budget in zip(run.plan["promises"], run.plan["budgets"], strict=True)
        if promise["holders"]
    ]
