"""Plan of a run in which every holder votes: rounds, noise, radius, forecast. Everything in it is public."""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from common.sentences import Sentence, gettext_noop
from learning.mechanisms.base import PlanError
from learning.mechanisms.levels import Level
from learning.mechanisms.neighbours.choices import LARGEST_SIGMA, NeighbourChoices
from learning.mechanisms.neighbours.forecast import Forecast, expected_voters
from learning.mechanisms.neighbours.planner import PlannedRound as ProposedRound
from learning.mechanisms.neighbours.planner import plan_rounds
from learning.mechanisms.neighbours.stand_ins import Sample
from learning.students.forecast import LOOKED_AT, refined_right
from training.engine.budgets import Budget, PlannedPromise, promises_counted
from training.methods.levels import budgets_of, levels_of, share_warning
from training.methods.space import Space, labelled_points, space_first
from training.models import Dataset, Run

#: As many labelled public points as a forecast looks at.
_SAMPLE = 1000
#: The share of points taught right below which a warning is due; docs/students.md has what students made of how many.
_WRONG = 0.8
_FEW = gettext_noop(
    "Too few people for these promises: of 100 public points about %(right)d are expected to be told right, from all "
    "noisy counts together. Invite more people, wait for more of them, or give the run a larger share."
)


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
    """A plan with what it rests on; ``budgets`` stand beside ``promises``.

    ``student``: of images, the share of the public points that a student of the first round is expected to be taught
    right, see `refined_right`; None of tables.
    """

    promises: list[PlannedPromise]
    budgets: list[Budget]
    rounds: list[PlannedRound]
    representation: Sentence
    forecast: Forecast
    notes: tuple[Sentence, ...]
    student: float | None

    def to_json(self) -> dict[str, Any]:
        """JSON that a run keeps of its plan."""
        return {
            "promises": [asdict(promise) for promise in self.promises],
            "budgets": [asdict(budget) for budget in self.budgets],
            "rounds": [asdict(each) for each in self.rounds],
            "representation": self.representation.to_json(),
            "forecast": asdict(self.forecast),
            "student": self.student,
            "notes": [note.to_json() for note in self.notes],
        }


def asking_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> AskingPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, public points, evaluation data (conditions 1 and
    2 of the guarantee).
    """
    asking, promises = NeighbourChoices.from_json(run.choices), promises or promises_counted(run)
    budgets = budgets_of(run, promises, share)
    levels = levels_of(promises, budgets, asking.records)
    rounds, notes, student = rounds_planned(
        run.public_points, run.test_dataset, asking, levels, share=share, wanted=run.wanted_labels
    )
    representation = space_first(run.public_points, asking).fitted.representation.sentence()
    notes = (*notes, *share_warning(run, share))
    return AskingPlan(promises, budgets, rounds, representation, rounds[0].forecast, notes, student)


def rounds_planned(
    public: Dataset,
    test: Dataset | None,
    asking: NeighbourChoices,
    levels: tuple[Level, ...],
    *,
    share: float,
    wanted: int | None = None,
) -> tuple[list[PlannedRound], tuple[Sentence, ...], float | None]:
    """The rounds with their forecasts, notes, and the student's forecast (see `AskingPlan`).

    For a ``share`` of every cap, and all or some ``wanted`` labels.

    Takes seconds the first time. Raises PlanError, which says what to do.
    """
    test_key = (test.pk, test.digest) if test is not None else None
    try:
        planned, notes, student = _planned(
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
    return list(planned), notes, student


@lru_cache(maxsize=32)
def _planned(
    public_id: int,
    _digest: str,
    test_key: tuple[int, str] | None,
    document: str,
    levels: tuple[Level, ...],
    share: float,
    wanted: int | None,
) -> tuple[tuple[PlannedRound, ...], tuple[Sentence, ...], float | None]:
    """The rounds, warnings and choices, and the student's forecast."""
    dataset, asking = Dataset.objects.get(pk=public_id), NeighbourChoices.from_json(json.loads(document))
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
    warnings, student = proposal.warnings, None
    if dataset.schema["kind"] == "image":
        student = _student_right(proposal.rounds[0], space, levels, classes, sample)
        warnings = (Sentence(_FEW, right=round(100 * student)),) if student < _WRONG else ()
    return planned, warnings if proposal.chosen is None else (proposal.chosen, *warnings), student


def _student_right(
    first: ProposedRound, space: Space, levels: tuple[Level, ...], classes: int, sample: Sample | None
) -> float:
    """The share of the public points that a student of the first round is expected to be taught right."""
    told = {"radius_share": first.radius_share, "sigma": first.sigma}
    queries = space.public[first.queries]
    voters = expected_voters(queries, space.public, levels, share=first.share, most=LOOKED_AT, **told)
    return refined_right(first.queries, space.public, voters, n_classes=classes, sample=sample, **told)


def labelled_sample(test: Dataset, space: Space) -> Sample:
    """Some of a study's evaluation data in the coordinates of a space."""
    return Sample(*labelled_points(test, space, _SAMPLE))


def levels_planned(run: Run) -> list[Level]:
    """The promises of a run's plan with their public or noisy numbers of holders."""
    records = NeighbourChoices.from_json(run.choices).records
    return [
        Level(promise["name"], budget["cap"], float(promise["holders"]), records)
        for promise, budget in zip(run.plan["promises"], run.plan["budgets"], strict=True)
        if promise["holders"]
    ]
