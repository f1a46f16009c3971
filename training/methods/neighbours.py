"""Votes on a public point's class by every holder near it: the plan, the rounds, and the student's training data."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import uuid4

import numpy as np
from django.utils.translation import gettext as _

from accounting.caps import caps_of
from accounting.models import Release
from common.artifacts import arrays_load, arrays_save
from common.declarations import stored
from common.sentences import Sentence, gettext_noop
from learning.class_shares import ClassShare, voted_shares
from learning.forecasts import Forecast, few_people
from learning.mechanisms.neighbours.forecast import RoundForecast, expected_voters
from learning.mechanisms.neighbours.released_counts import VotesQuestion, counts_digest, read_counts
from learning.mechanisms.neighbours.rounds import (
    LARGEST_SIGMA,
    EarlierRound,
    NeighbourChoices,
    PlannedRound,
    doubtful_queries,
    next_round,
    plan_rounds,
    spread_queries,
)
from learning.mechanisms.neighbours.surrogates import Sample
from learning.mechanisms.neighbours.votes import radii
from learning.mechanisms.protocol import PlanError, PlannedLevel
from learning.outcomes import Classes, Labels, Numbers, Target
from learning.representations import representation_save
from learning.students import Releases, counted, joined, labelled, neighbourhoods
from learning.students.forecasts import LOOKED_AT, student_forecast
from training.alliances.documents import noise_factor
from training.engine.budgets import PlannedPromise, planned_promises
from training.engine.commits import charged_faults
from training.engine.questions import Questions, attempt_load, position_in_round, rounds_folder
from training.engine.records import Space, labelled_points, points_of, records_of, space_first, space_of_student
from training.methods.base import Amount, EngineMethod, Tile, Wrong
from training.methods.planning import MethodPlan, budgets_of, holder_choices_check, levels_of, share_warning
from training.methods.student_training import StudentData, student_fit
from training.models import Batch, Dataset, Query, Round, Run

#: Maximum number of labelled public points that a forecast uses.
_SAMPLE = 1000


@dataclass(frozen=True)
class RoundPlan:
    """Plan of a round: number of ``queries``, noise ``sigma``, radius, and the share used by its end.

    ``until`` is the part of the run's share that accounts may have used when the round ends. A second round chooses σ
    and radius again from the counts of the first round, unless they were set by hand.
    """

    queries: int
    sigma: float
    radius_share: float
    until: float
    forecast: RoundForecast


@dataclass(frozen=True)
class AskingPlan(MethodPlan):
    """Plan of a run; ``forecasts`` are for the labels of the first round and for a student trained on them."""

    rounds: list[RoundPlan]
    representation: Sentence

    @property
    def turnout(self) -> RoundForecast:
        """Forecast of the number of voters in the first round."""
        return self.rounds[0].forecast

    def details(self) -> dict[str, Any]:
        """Return the rounds, the space that defines neighbours, and the forecast of voters, as JSON."""
        rounds = stored(self.rounds)
        return {"rounds": rounds, "representation": self.representation.to_json(), "turnout": rounds[0]["forecast"]}


def asking_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> AskingPlan:
    """Return the plan of ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError with a remedy.

    The plan depends only on public information: policies, head counts, shares, public points, evaluation data
    (conditions 1 and 2 in docs/gaussian-accounts.md).
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
    levels: tuple[PlannedLevel, ...],
    *,
    share: float,
    wanted: int | None = None,
) -> tuple[list[RoundPlan], tuple[Sentence, ...], tuple[Forecast, ...]]:
    """Return the rounds, notes, and forecasts for labels and student.

    Rounds are planned for a ``share`` of every cap, and for all labels or at most ``wanted``.

    The first call takes seconds. Raises PlanError with a remedy.
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
                "With this many labels and this share, the noise would hide the answers. Request fewer labels, or "
                "give the run a larger share."
            )
        )
    return list(planned), notes, forecasts


@lru_cache(maxsize=32)
def _planned(
    public_id: int,
    _digest: str,
    test_key: tuple[int, str] | None,
    document: str,
    levels: tuple[PlannedLevel, ...],
    share: float,
    wanted: int | None,
) -> tuple[tuple[RoundPlan, ...], tuple[Sentence, ...], tuple[Forecast, ...]]:
    """Return the rounds, the notes about choices and warnings, and the forecasts."""
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
        RoundPlan(len(each.queries), each.sigma, each.radius_share, each.share / share, each.forecast)
        for each in proposal.rounds
    )
    forecasts: tuple[Forecast, ...] = (proposal.rounds[0].forecast.labels,)
    if dataset.schema["kind"] == "image":
        forecasts += (_student(proposal.rounds[0], space, levels, classes, sample),)
    warnings = few_people(forecasts, classes)
    if isinstance(dataset.outcome, Target):  # for numeric outcomes, the leading category says little about the accuracy
        forecasts = ()
    return planned, warnings if proposal.chosen is None else (proposal.chosen, *warnings), forecasts


def _student(
    first: PlannedRound, space: Space, levels: tuple[PlannedLevel, ...], classes: int, sample: Sample | None
) -> Forecast:
    """Return the forecast of a student trained on the first round."""
    settings = {"radius_share": first.radius_share, "sigma": first.sigma}
    queries = space.public[first.queries]
    voters = expected_voters(queries, space.public, levels, share=first.share, most=LOOKED_AT, **settings)
    return student_forecast(first.queries, space.public, voters, n_classes=classes, sample=sample, **settings)


def labelled_sample(test: Dataset, space: Space) -> Sample:
    """Return part of a study's evaluation data in the coordinates of a space."""
    points, codes = labelled_points(test, space, _SAMPLE)
    return Sample(points, test.outcome.categories_of(codes))


def planned_levels(run: Run) -> list[PlannedLevel]:
    """Return the promises in a run's plan with their public or noisy numbers of holders."""
    records = NeighbourChoices.from_json(run.choices).records
    return [
        PlannedLevel(promise["name"], budget["cap"], float(promise["holders"]), records)
        for promise, budget in zip(run.plan["promises"], run.plan["budgets"], strict=True)
        if promise["holders"]
    ]


# --- A forecast before there is a run ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Affordable:
    """Expected outcome of a single round that may use every cap completely, ignoring earlier runs.

    ``left`` is the average part of a holder's cap that the round leaves unused, by level.
    """

    forecast: RoundForecast
    warnings: tuple[Sentence, ...]
    left: Mapping[str, float]


def affordable(
    public: Dataset,
    epsilons: Mapping[str, float],
    holders: Mapping[str, int],
    *,
    delta: float,
    wanted: int | None = None,
) -> Affordable:
    """Forecast the number of public points that ``holders`` with ``epsilons`` (both by level) could label.

    The expected share of correct labels is based on the study's newest evaluation data with points of the same shape
    or, without such data, on an assumption.

    Args:
        public: The dataset with the points to ask about. The default representation and one record per holder are used.
        epsilons: The levels' values of ε at ``delta``.
        holders: Head counts or expected numbers. Never pass numbers counted from consents.
        wanted: Number of labels; None for all of the points.

    Raises:
        PlanError: No one takes part, or the noise would be too large; the message contains the remedy.
    """
    levels = tuple(
        PlannedLevel(level, float(caps_of(epsilon, delta)), float(holders[level]))
        for level, epsilon in epsilons.items()
        if holders[level]
    )
    if not levels:
        raise PlanError(gettext_noop("According to these numbers no one takes part, so there is no one to ask."))
    rounds, notes, _forecasts = rounds_plan(
        public, _test(public), NeighbourChoices(rounds=1), levels, share=1.0, wanted=wanted
    )
    forecast = rounds[0].forecast
    return Affordable(forecast, notes, {level.name: 1.0 - level.spent for level in forecast.levels})


def _test(public: Dataset) -> Dataset | None:
    candidates = public.study.datasets.filter(kind=Dataset.Kind.TEST, removed_at=None).order_by("-imported_at")
    return next((dataset for dataset in candidates if dataset.schema == public.schema), None)


# --- The method as used by engine and services ------------------------------------------------------------------------


class Votes(Questions):
    """Questions in which the neighbours of public points vote on their classes."""

    shard = 10_000
    release_kind = Release.Kind.COUNTS.value
    died = gettext_noop(
        "Workers repeatedly crashed while asking the same holders, probably because they ran out of memory. Propose "
        "the run again with smaller batches, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def question(self, opened_round: Round) -> VotesQuestion:
        return question_load(opened_round)

    def stop_reason(self, run: Run) -> str:
        wants_fewer_labels = run.wanted_labels is not None and run.position < run.public_points.rows
        return Run.StopReason.ENOUGH if wants_fewer_labels else Run.StopReason.USED_UP


class Neighbours(EngineMethod):
    """Method in which every holder votes; see :class:`training.methods.base.RunMethod`."""

    name = Run.Method.NEIGHBOURS.value
    variants: tuple[str, ...] = ("",)
    learns: tuple[str, ...] = (Classes.kind, Numbers.kind, Labels.kind)
    charged = gettext_noop(
        "Charges are public: each is the most that any person at that level could have been charged. People who "
        "voted less often were charged less, but the amount stays secret."
    )
    choices = NeighbourChoices
    parts = "neighbours"
    batch_label = gettext_noop("Queries per batch")
    releases_labels = True
    questions = Votes()
    # Each batch is sent to the workers, so there are few batches, but enough for changes of consent to take effect soon
    # and for a progress bar to move.
    batch_size = 1000

    def check(self, run: Run, wrong: Wrong) -> None:
        run.variant = ""
        chosen = holder_choices_check(run, wrong, self.choices)
        if run.private_dataset_id and not run.private_dataset.outcome.categories:
            wrong("method", _("That is too many labels to vote on. Choose private gradient steps."))
        first = chosen.first_queries if chosen is not None else None
        if run.public_dataset_id and first and first >= run.public_points.rows:
            wrong(
                "choices.first_queries",
                _("The first round has to leave public points for the next one. Use fewer points."),
            )

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        points_sentence = Sentence(gettext_noop("all public points"))
        if run.wanted_labels:
            points_sentence = Sentence(gettext_noop("%(labels)d public points"), labels=run.wanted_labels)
        ends = Sentence(gettext_noop("the run ends once all of them have been put to the vote, even if budget is left"))
        return [(gettext_noop("Put to the vote"), [points_sentence, ends])]

    def tiles(self, run: Run) -> list[Tile]:
        points_sentence = Sentence(gettext_noop("of %(points)s"), points=self.size(run))
        return [
            (gettext_noop("Public points put to the vote"), run.position, points_sentence),
            (gettext_noop("Labels released"), run.labels, Sentence(gettext_noop("each with noisy counts"))),
        ]

    def amount(self, run: Run) -> Amount:
        return Amount("labels", sum(self.round_sizes(run)), run.labels)

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> AskingPlan:
        return asking_plan(run, share, promises)

    def round_sizes(self, run: Run) -> list[int]:
        return [each["queries"] for each in run.plan.get("rounds", [])]

    def size(self, run: Run) -> int:
        return run.public_points.rows

    def mechanism(self, run: Run) -> dict[str, Any]:
        rounds = [
            question_load(each).describe() | {"representation": each.representation, "queries": each.position}
            for each in run.rounds.all()
        ]
        return {"name": "neighbours", "rounds": rounds}

    def leads(self, run: Run) -> list[list[float]]:
        return round_leads(run)

    def student_data(self, run: Run) -> StudentData:
        return student_data_from_votes(run)

    def kept_faults(self, batch: Batch, release: Release, question: VotesQuestion) -> Iterator[str]:
        who = f"run {batch.run_id}, batch {batch.index}"
        results, part = {query.row: query for query in batch.results.all()}, _part(batch)
        rows = question.rows[part]
        if sorted(results) != sorted(rows.tolist()):
            yield f"{who}: asked about points that do not belong to its round."
            return
        labels = np.array([results[row].label for row in rows.tolist()])
        counts = np.array([results[row].counts for row in rows.tolist()])
        if release.content["digest"] != counts_digest(rows, labels, counts):
            yield f"release {release.sequence}: the counts of {who} differ from the released ones."
        if not np.array_equal(labels, question.labels(part, counts)):
            yield f"{who}: its labels do not follow from the released counts."

    def charges_faults(self, batch: Batch, release: Release, question: VotesQuestion) -> Iterator[str]:
        people = attempt_load(batch.attempt)
        records = records_of(batch.run, question.fitted, people.holders)
        _sums, due = question.contributions(_part(batch), people, records)
        yield from charged_faults(batch, release, people.holders, due)


def _part(batch: Batch) -> slice:
    """Return the queries of a released batch."""
    start = position_in_round(batch)
    return slice(start, start + batch.size)


# --- Rounds -----------------------------------------------------------------------------------------------------------


def question_load(opened_round: Round) -> VotesQuestion:
    """Return the question of a round."""
    return _question(opened_round.pk, opened_round.artifact)


# A changed round file would have a new name.
@lru_cache(maxsize=2)
def _question(round_id: int, artifact: str) -> VotesQuestion:
    opened_round = Round.objects.select_related("run__public_dataset").get(pk=round_id)
    return VotesQuestion.from_arrays(
        arrays_load(artifact),
        sigma=opened_round.sigma,
        radius_share=opened_round.radius_share,
        kernel=NeighbourChoices.from_json(opened_round.run.choices).kernel,
        outcome=opened_round.run.learns,
        index=opened_round.index,
        promises=len(opened_round.run.plan["budgets"]),
    )


def round_open(run: Run) -> Round:
    """Return the next round with a new file; the caller's transaction writes the row. Reads no private data.

    The file is public, and is kept as long as the run exists so that the question can be verified.
    """
    index = run.rounds.count()
    points = points_of(run.public_points, run.encoder)
    opening = _first(run, points) if index == 0 else _residual(run, points)
    queries = opening.space.public[opening.rows]
    arrays: dict[str, Any] = {
        "rows": opening.rows,
        "queries": queries,
        "radii": radii(queries, opening.space.public, opening.radius_share),
        "voters": opening.voters,
        "representation": np.frombuffer(representation_save(opening.space.fitted), dtype=np.uint8),
    }
    if opening.predicted is not None:
        arrays["predicted"] = opening.predicted
    artifact = f"{rounds_folder(run)}/{index}-{uuid4().hex[:12]}.npz"
    arrays_save(artifact, **arrays)
    return Round(
        run=run,
        index=index,
        representation=opening.space.fitted.representation.sentence().to_json(),
        artifact=artifact,
        sigma=opening.sigma,
        radius_share=opening.radius_share,
        size=len(opening.rows),
    )


@dataclass(frozen=True, eq=False)
class _Opening:
    """Round about to be opened: ``rows`` (Q,) of the points in the order of questions, and expected ``voters`` (Q,)."""

    space: Space
    rows: np.ndarray
    sigma: float
    radius_share: float
    voters: np.ndarray
    predicted: np.ndarray | None = None


def _first(run: Run, points: np.ndarray) -> _Opening:
    space, planned = space_first(run.public_points, NeighbourChoices.from_json(run.choices)), run.plan["rounds"][0]
    count = planned["queries"]
    rows = np.arange(len(points)) if count == len(points) else spread_queries(space.public, count)
    return _Opening(space, rows, planned["sigma"], planned["radius_share"], np.zeros(count))


def _residual(run: Run, points: np.ndarray) -> _Opening:
    """Return a round that asks holders to correct the first student's predictions for other points.

    If the proposal sets σ or the radius, these values are kept.
    """
    asking, first = NeighbourChoices.from_json(run.choices), run.rounds.get(index=0)
    assert first.radius_share is not None, "a round of votes has a radius"
    question, student = question_load(first), student_fit(run, student_data_from_votes(run))
    before = Space(question.fitted, question.fitted.transform(points), run.encoder)
    space = space_of_student(student, before, points) if asking.embedded else before
    probabilities = student.predict_proba(points)
    levels, planned = planned_levels(run), run.plan["rounds"]
    others = np.setdiff1d(np.arange(len(points)), question.rows)
    count = planned[1]["queries"]
    others = others[doubtful_queries(probabilities[others], count)]
    proposed, voters = next_round(
        EarlierRound(
            question.rows,
            first.sigma,
            first.radius_share,
            run.share * planned[0]["until"],
            {level["name"]: level["spent"] for level in planned[0]["forecast"]["levels"]},
        ),
        before.public,
        round_counts(first),
        space.public,
        probabilities,
        levels,
        share=run.share * planned[1]["until"],
        n_classes=probabilities.shape[1],
        queries=others,
        sigma=asking.sigma,
        radius_share=asking.radius_share,
    )
    rows = proposed.queries
    return _Opening(
        space, rows, proposed.sigma, proposed.radius_share, voters, predicted=probabilities[rows].argmax(axis=1)
    )


# --- The student's training data


def round_counts(opened_round: Round) -> list[list[int]]:
    """Return the released counts (Q, C) of a round, in the order in which its points were asked."""
    counts: dict[int, Any] = dict(Query.objects.filter(batch__round=opened_round).values_list("row", "counts"))
    return [counts[row] for row in question_load(opened_round).rows[: opened_round.position].tolist()]


def student_data_from_votes(run: Run) -> StudentData:
    """Return a student's training data: all counts, with their noise, and the public points that represent voters.

    Counts for images are refined in the space of the first round, because later spaces may be a student's inner layer.
    """
    public, points = run.public_points, points_of(run.public_points, run.encoder)
    rounds = list(run.rounds.filter(position__gt=0).order_by("index"))
    if not rounds:
        return StudentData(labelled([], [], classes=len(run.learns.categories)))
    spaces = [question_load(each).fitted.transform(points) for each in rounds]
    releases = joined([_releases(*each) for each in zip(rounds, spaces, strict=True)])
    coordinates = spaces[0] if public.schema["kind"] == "image" else None
    return StudentData(releases, coordinates, shares=_shares(rounds[0]) if run.classes else None)


def _shares(first: Round) -> list[ClassShare] | None:
    """Return class shares from the first round, because later votes are only about the student's errors."""
    sigma = question_load(first).sigma * noise_factor(first.run)
    return voted_shares(np.array(round_counts(first), np.float64), sigma)


def _releases(opened_round: Round, coordinates: np.ndarray) -> Releases:
    """Return the releases of a round in whose space the public points have the given ``coordinates`` (P, d)."""
    question, done = question_load(opened_round), slice(opened_round.position)
    rows = question.rows[done]
    return counted(
        rows,
        round_counts(opened_round),
        question.sigma * noise_factor(opened_round.run),
        predicted=None if question.predicted is None else question.predicted[done],
        voters=question.voters[done],
        reach=neighbourhoods(rows, coordinates, question.radii[done], kernel=question.kernel),
    )


#: Lower bounds of the bins for leads, in units of σ.
LEADS = (0, 1, 2, 3, 5, 10, 20)


def round_leads(run: Run) -> list[list[float]]:
    """Return the distribution of the winning labels' leads in each round with releases.

    The lead is the difference between the largest and the second largest count, in units of σ. Each number is the share
    of points whose lead is at least one bound in :data:`LEADS` and less than the next. Counts of residual votes are
    interpreted in the same way as for labels.
    """
    return [_leads(each.pk, each.artifact, each.position) for each in run.rounds.all() if each.position]


@lru_cache(maxsize=64)  # releases never change, and a run's page requests them every two seconds
def _leads(round_id: int, _artifact: str, position: int) -> list[float]:
    opened_round, released = Round.objects.get(pk=round_id), slice(position)
    question = question_load(opened_round)
    margins = read_counts(
        round_counts(opened_round)[released],
        question.sigma,
        predicted=None if question.predicted is None else question.predicted[released],
        voters=question.voters[released],
    ).margins
    numbers, _edges = np.histogram(margins, [*LEADS, np.inf])
    return (numbers / len(margins)).tolist()
