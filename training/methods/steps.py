"""Private gradient steps for a linear model: the plan, the rounds of steps, and the resulting model."""

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

import numpy as np
from django.utils.translation import gettext as _

from accounting.models import Release
from common.artifacts import arrays_load, arrays_save, model_fetch
from common.sentences import Sentence, gettext_noop
from learning.calibration import CalibratedModel
from learning.class_shares import ClassShare
from learning.forecasts import Forecast, few_people
from learning.formats import TabularSchema, schema_from_json
from learning.learners import Model
from learning.mechanisms.counts.table_plan import feature_columns
from learning.mechanisms.counts.tables import CountsQuestion
from learning.mechanisms.protocol import PlanError, PlannedLevel
from learning.mechanisms.steps.descent import (
    RECORDS,
    Descent,
    StepsQuestion,
    descent_calibration,
    descent_shares,
    kept_points,
    nearly_same,
    states_after,
    sums_digest,
)
from learning.mechanisms.steps.linear import CLIP_STEPS
from learning.mechanisms.steps.rehearsals import descent_adjustment, errors_rehearsed, forecast_steps, forecast_target
from learning.mechanisms.steps.steps_plan import (
    COUNTED,
    ROWS,
    StepChoices,
    Steps,
    StepsPlan,
    balance_notes,
    few_people_notes,
    plan_steps,
    strength_of,
)
from learning.mechanisms.synthesis.rounds import (
    Synthesis,
    SynthesisPlan,
    is_counted,
    plan_synthesis,
    rows_draw,
    synthesis_plan_from_json,
    uniform_rows,
)
from learning.outcomes import KINDS, Classes, Target, target_arrays
from learning.published import LINEAR
from learning.representations import LinearModel, representation_save
from learning.students import Releases, predicted
from training.alliances.documents import noise_factor, planned_noise_factor
from training.engine.budgets import PlannedPromise, planned_promises
from training.engine.commits import charged_faults
from training.engine.questions import Questions, attempt_load, position_in_round, rounds_folder, state_before
from training.engine.records import Space, labelled_points, points_of, records_of, space_first, space_of_student
from training.methods.base import Amount, EngineMethod, Tile, Wrong
from training.methods.counts import counts_charges_faults, counts_kept_faults, rounds_of_counts
from training.methods.planning import MethodPlan, budgets_of, holder_choices_check, levels_of, share_warning
from training.methods.student_training import StudentData, student_fit
from training.methods.synthesis import MarginalCells, marginals_of, rows_check
from training.models import Batch, Dataset, Round, Run, StudentModel

#: Maximum and minimum number of labelled public points for a forecast.
_SAMPLE, _LEAST = 3000, 3
#: Number of labelled public points from which they choose how much room interactions get.
_ENOUGH = 500
_CERTAIN = 3.0
_CHOSEN = gettext_noop(
    "Labelled public points chose %(chosen)s as the spread of interactions of numbers, after a rehearsal with each "
    "spread (Brier scores: %(scores)s; smaller is better)."
)

_ALIKE = 1000


@dataclass(frozen=True)
class DescentPlan(MethodPlan):
    """Plan of gradient steps over the records of all holders."""

    rounds: list[dict[str, Any]]
    representation: Sentence

    def details(self) -> dict[str, Any]:
        """Return the space and the rounds, each with its part of the share, as JSON."""
        return {"rounds": self.rounds, "representation": self.representation.to_json()}


def descent_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> DescentPlan:
    """Return the plan of ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError with a remedy.

    The plan depends only on public information: policies, head counts, shares, public points, evaluation data
    (conditions 1 and 2 in docs/gaussian-accounts.md). Without public points, the run begins with rounds of counts,
    which use the fraction `COUNTED` of the share. The rounds of steps use equal parts of the rest.
    """
    steps, promises = Steps.from_json(run.choices), promises or planned_promises(run)
    budgets = budgets_of(run, promises, share)
    levels = levels_of(promises, budgets)
    outcome = run.private_dataset.outcome
    counted = COUNTED if run.public_dataset is None else 0.0
    part, factor = (1 - counted) / steps.rounds, planned_noise_factor(run)
    try:
        counts = _counts_planned(run, levels, share * counted) if counted else None
        strength = strength_of(levels, share=share * part, steps=steps, noise_factor=factor)
        planned_as = partial(
            plan_steps,
            levels,
            n_classes=outcome.outputs,
            share=share * part,
            steps=steps,
            loss=outcome.loss,
            drawn=run.public_dataset is None,
            noise_factor=factor,
        )
        placed, chosen = _placed(run, steps, strength, planned_as)
        fitted = _space_expected(run, placed).fitted
        planned = [planned_as(dimensions=fitted.dimensions) for _ in range(steps.rounds)]
    except ValueError as error:
        raise PlanError(str(error)) from error
    rounds = [
        *([] if counts is None else counts.to_json(counted)),
        *({"plan": each.to_json(), "until": _until(counted, part, number)} for number, each in enumerate(planned)),
    ]
    rounds[-len(planned)]["space"] = {
        "representation": placed.representation,
        "representation_parameters": placed.representation_parameters,
    }
    notes = dict.fromkeys(note for each in planned for note in (*each.notes, *each.warnings))
    if counts is not None:
        notes[_counts_note(counts)] = None
    forecasts = _forecasts(
        None if run.public_dataset is None else (run.public_dataset.pk, run.public_dataset.digest),
        None if run.test_dataset is None else (run.test_dataset.pk, run.test_dataset.digest),
        json.dumps(placed.to_json()),
        json.dumps(planned[0].to_json()),
    )
    sentence = fitted.representation.sentence()
    few = few_people(forecasts, outcome.outputs) if forecasts and run.classes else few_people_notes(planned[0])
    remarks = (*notes, *chosen, *balance_notes(steps), *few, *share_warning(run, share))
    return DescentPlan(promises, budgets, forecasts, remarks, rounds, sentence)


def _until(counted: float, part: float, number: int) -> float:
    """Return the part of the run's share that may have been used by the end of a round of steps."""
    return min(1.0, round(counted + part * (number + 1), 12))


def _counts_planned(run: Run, levels: Sequence[PlannedLevel], share: float) -> SynthesisPlan:
    """Return the plan of the rounds of counts for a share of every cap. Raises ValueError."""
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    bins = Synthesis().bins
    return plan_synthesis(levels, columns=len(feature_columns(schema, bins)), share=share, rows=ROWS, bins=bins)


def _counts_note(counts: SynthesisPlan) -> Sentence:
    text = gettext_noop(
        "There are no public points, so the run first uses %(part)s of its share to count people in three rounds, "
        "and draws %(rows)d rows from these counts. These rows replace the public points: they determine the "
        "thresholds of each column, and show how columns depend on each other."
    )
    return Sentence(text, part=f"{round(100 * COUNTED)} %", rows=counts.rows)


def _placed(
    run: Run, steps: Steps, strength: float, planned_as: Callable[..., StepsPlan]
) -> tuple[Steps, tuple[Sentence, ...]]:
    """Return the choices with the representation of the first round, and a note about how labels chose it.

    Raises:
        ValueError: The representation is unsuitable.
    """
    public, outcome = run.public_dataset, run.private_dataset.outcome
    if public is None:
        return steps.placed(_rows_expected(run), strength, drawn=True), ()
    points = points_of(public, steps.encoder)
    placed = steps.placed(points, strength, loss=outcome.loss)
    if steps.representation or run.labelled_dataset is None or isinstance(outcome, Target):
        return placed, ()
    return _chosen(public, run.labelled_dataset, placed.alternatives(points), planned_as)


def _chosen(
    public: Dataset, labelled: Dataset, alternatives: Mapping[float, Steps], planned_as: Callable[..., StepsPlan]
) -> tuple[Steps, tuple[Sentence, ...]]:
    """Return the alternative that labelled public points prefer, and a note about it.

    The first is kept unless another has a smaller Brier score in a rehearsal, by more than `_CERTAIN` standard errors.
    """
    usual = next(iter(alternatives))
    if len(alternatives) == 1 or labelled.rows < _ENOUGH:
        return alternatives[usual], ()
    errors = {}
    for spread, each in alternatives.items():
        plan = planned_as(dimensions=space_first(public, each).fitted.dimensions)
        keys = (public.pk, public.digest), (labelled.pk, labelled.digest)
        errors[spread] = _errors(*keys, json.dumps(each.to_json()), json.dumps(plan.to_json()))
    gains = {spread: errors[usual] - error for spread, error in errors.items()}
    certain = {each: gain.mean() - _CERTAIN * gain.std() / math.sqrt(len(gain)) for each, gain in gains.items()}
    best = max(certain, key=certain.__getitem__)
    scores = "; ".join(f"{spread:.3g}: {errors[spread].mean():.3f}" for spread in sorted(errors))
    return alternatives[best], (Sentence(_CHOSEN, chosen=f"{best:.3g}", scores=scores),)


def _space_expected(run: Run, placed: Steps) -> Space:
    """Return the space of the first round or, if that depends on future counts, a space of about the same size."""
    public = run.public_dataset
    return space_of(_rows_expected(run), placed) if public is None else space_first(public, placed)


def _rows_expected(run: Run) -> np.ndarray:
    """Return records (n, …) of the same shape as those that a run without public points will draw from its counts."""
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    return uniform_rows(schema, _ALIKE)


# Datasets never change, and planning, approving and running need the same forecasts.
@lru_cache(maxsize=32)
def _forecasts(
    public_key: tuple[int, str] | None, test_key: tuple[int, str] | None, asking: str, document: str
) -> tuple[Forecast, ...]:
    """Return forecasts of the first round's model; empty if there are too few public points.

    Evaluation data are required for outcomes other than classes, and for runs without public points, where they stand
    in for the rows that the run will draw.
    """
    key = public_key or test_key
    if key is None:
        return ()
    public, plan = Dataset.objects.get(pk=key[0]), StepsPlan.from_json(json.loads(document))
    space, labels = space_first(public, Steps.from_json(json.loads(asking))), None
    points = space.public
    if test_key is not None:
        points, labels = labelled_points(Dataset.objects.get(pk=test_key[0]), space, _SAMPLE)
    if len(points) < _LEAST:
        return ()
    if isinstance(public.outcome, Target):
        forecast = None if labels is None else forecast_target(plan, points, labels, public.outcome)
        return () if forecast is None else (forecast,)
    return forecast_steps(plan, points, len(public.classes), labels=labels)


@lru_cache(maxsize=32)
def _errors(public_key: tuple[int, str], labelled_key: tuple[int, str], asking: str, document: str) -> np.ndarray:
    """Return the Brier score of each labelled point that judges a rehearsal of this plan."""
    public, plan = Dataset.objects.get(pk=public_key[0]), StepsPlan.from_json(json.loads(document))
    space = space_first(public, Steps.from_json(json.loads(asking)))
    points, labels = labelled_points(Dataset.objects.get(pk=labelled_key[0]), space, _SAMPLE)
    return errors_rehearsed(plan, points, labels, len(public.classes))


# --- The space of the first round -------------------------------------------------------------------------------------


def planned_space(run: Run) -> Space:
    """Return the first round's space according to its plan.

    Without public points, it is fitted on rows drawn from the released counts. Plans of earlier versions do not name
    their representation, which has no interactions.
    """
    first, public = run.plan["rounds"][rounds_of_counts(run)], run.public_dataset
    steps = replace(Steps.from_json(run.choices), **first.get("space", {}))
    points = rows_of(run) if public is None else points_of(public, steps.encoder)
    placed = steps.placed(points, StepsPlan.from_json(first["plan"]).strength, interactions=False)
    return space_of(points, placed) if public is None else space_first(public, placed)


def points_match_counts(opened_round: Round, question: StepsQuestion) -> bool:
    """Return whether a round's points are those drawn from its run's counts; True if the run has no counts."""
    run = opened_round.run
    if not rounds_of_counts(run):
        return True
    try:
        points = question.fitted.transform(rows_of(run))
    except (OSError, KeyError, ValueError):
        return False
    return np.array_equal(kept_points(points), question.begin.points)


def rows_of(run: Run) -> np.ndarray:
    """Return records (n, …), drawn from the released rounds of counts, that replace public points."""
    return rows_draw(marginals_of(run, rounds_of_counts(run))).x


def space_of(points: np.ndarray, placed: Steps) -> Space:
    """Return the first round's space for other points (n, …). Raises ValueError if the representation is unsuitable."""
    fitted = placed.space(points).fit(points)
    return Space(fitted, fitted.transform(points))


# --- The method as used by engine and services ------------------------------------------------------------------------


class GradientQuestions(Questions):
    """Questions about gradients of all holders."""

    #: A step takes less time than starting a task, so a second worker helps only if there are very many people.
    shard = 200_000
    release_kind = Release.Kind.STEPS.value
    died = gettext_noop(
        "Workers repeatedly crashed while computing the gradients of the same holders, probably because they ran out "
        "of memory. Propose the run again with a smaller representation, or give the workers more memory."
    )

    def __init__(self) -> None:
        self._counts = MarginalCells()

    def kind_of(self, opened_round: Round) -> str:
        return self._counts.release_kind if is_counts(opened_round) else self.release_kind

    def shard_of(self, opened_round: Round) -> int:
        return self._counts.shard if is_counts(opened_round) else self.shard

    def round_open(self, run: Run) -> Round:
        return self._counts.round_open(run) if is_counts(Round(run=run, index=run.rounds.count())) else round_open(run)

    def question(self, opened_round: Round) -> StepsQuestion | CountsQuestion:
        return self._counts.question(opened_round) if is_counts(opened_round) else question_load(opened_round)

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.STEPS


def student_refused(chosen: StepChoices, wrong: Wrong) -> None:
    """Report an error if a student is to be published but has too many combinations of labels to learn."""
    if chosen.publish == "student":
        wrong(
            "choices.publish",
            _("That is too many labels for a student to learn. Publish the model from the training steps instead."),
        )


def balance_refused(run: Run, chosen: StepChoices, wrong: Wrong) -> None:
    """Report an error if answers are to be balanced but the run does not predict classes."""
    if chosen.balance and run.private_dataset.outcome.kind != Classes.kind:
        wrong("choices.balance", _("Only a model that predicts classes can balance them. Leave this off."))


def student_without_points_refused(chosen: StepChoices, wrong: Wrong) -> None:
    """Report an error if a student is to be published but there are no public points."""
    if chosen.publish == "student":
        wrong(
            "choices.publish", _("A student learns from public points. Choose a public dataset, or publish the model.")
        )


class GradientSteps(EngineMethod):
    """Method whose rounds consist of gradient steps and which releases no labels.

    See :class:`training.methods.base.RunMethod`.
    """

    name = Run.Method.SGD.value
    batch_label = gettext_noop("Steps per batch")
    releases_labels = False
    learns: tuple[str, ...] = KINDS

    def check(self, run: Run, wrong: Wrong) -> None:
        if run.wanted_labels is not None:
            wrong("wanted_labels", _("Gradient steps need no labels. Leave this empty."))
        self.check_choices(run, wrong)

    @abstractmethod
    def check_choices(self, run: Run, wrong: Wrong) -> None:
        """Report errors in the variant's own fields of a proposal."""

    def tiles(self, run: Run) -> list[Tile]:
        steps = self.amount(run)
        of_all = Sentence(gettext_noop("of %(steps)s"), steps=steps.most)
        return [(gettext_noop("Gradient steps taken"), steps.so_far, of_all)]

    def amount(self, run: Run) -> Amount:
        counts = rounds_of_counts(run)
        return Amount("steps", self.size(run) - counts, max(run.position - counts, 0))

    def round_sizes(self, run: Run) -> list[int]:
        rounds = run.plan.get("rounds", [])
        return [CountsQuestion.size if is_counted(each) else each["plan"]["steps"] for each in rounds]

    def size(self, run: Run) -> int:
        return sum(self.round_sizes(run))


class Sgd(GradientSteps):
    """Method that trains by gradient steps over all holders' records; see :class:`training.methods.base.RunMethod`."""

    variants: tuple[str, ...] = (Run.Variant.INDIVIDUAL.value,)
    charged = gettext_noop(
        "The charges shown are public: each is the most that anyone at that level could have been charged. People "
        "with small gradients were charged less, but the amount stays secret."
    )
    curves_help = gettext_noop(
        "Length of each released gradient, and of the noise in it, in units of the clipping norm. Where the two are "
        "equal, a step carries little information."
    )
    choices = Steps
    parts = "sgd"
    #: If there are no public points, rows drawn from the run's own counts are used instead.
    needs_public_points = False
    #: Plans of joint runs contain the noise in totals.
    forecast_by_people = False
    questions = GradientQuestions()
    # Chunks are short to keep the progress bar moving, and because a change of consent takes effect only from the next
    # chunk on.
    batch_size = 10

    def check_choices(self, run: Run, wrong: Wrong) -> None:
        run.variant = Run.Variant.INDIVIDUAL
        chosen = holder_choices_check(run, wrong, self.choices)
        if chosen is None or not run.private_dataset_id:
            return
        balance_refused(run, chosen, wrong)
        if not run.public_dataset_id:
            self._check_without_points(run, chosen, wrong)
            return
        if run.private_dataset.outcome.categories:
            return
        student_refused(chosen, wrong)
        if chosen.rounds > 1:
            wrong(
                "choices.rounds",
                _("The second round needs a student, but no student can learn so many labels. Choose one round."),
            )

    @staticmethod
    def _check_without_points(run: Run, chosen: Steps, wrong: Wrong) -> None:
        student_without_points_refused(chosen, wrong)
        if chosen.rounds > 1:
            wrong(
                "choices.rounds",
                _(
                    "The second round needs a student, but no student can learn without public points. "
                    "Choose one round."
                ),
            )
        schema = schema_from_json(run.private_dataset.schema)
        if run.private_dataset.outcome.kind == Classes.kind and isinstance(schema, TabularSchema):
            rows_check(run, wrong, "public_dataset")
        else:
            text = _("Counts can replace public points only for tables that declare classes. Choose a public dataset.")
            wrong("public_dataset", text)

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> DescentPlan:
        return descent_plan(run, share, promises)

    def mechanism(self, run: Run) -> dict[str, Any]:
        rounds = [
            question_load(each).describe() | {"representation": each.representation, "steps": each.position}
            for each in run.rounds.exclude(artifact="").select_related("run")
        ]
        counts = synthesis_plan_from_json(run.plan["rounds"]).describe() if rounds_of_counts(run) else None
        return {"name": "sgd", "rounds": rounds, "counts": counts}

    def curves(self, run: Run) -> dict[str, list[float]]:
        return gradient_curves(run)

    def student_data(self, run: Run) -> StudentData:
        return student_data_from_steps(run)

    def kept_faults(self, batch: Batch, release: Release, question: StepsQuestion | CountsQuestion) -> Iterator[str]:
        if isinstance(question, CountsQuestion):
            yield from counts_kept_faults(batch, release, question)
            return
        run, content, opened_round = batch.run, release.content, batch.round
        assert opened_round is not None, "the batch has a round"
        who = f"run {run.pk}, batch {batch.index}"
        try:
            arrays, state = arrays_load(batch.released), state_before(question, opened_round, batch.index)
            sums, after_batch = arrays["sums"], question.state(arrays)
        except (OSError, KeyError, ValueError):
            yield f"{who}: its released file, or an earlier one, cannot be read."
            return
        if not len(sums) == batch.size == content["steps"]:
            yield f"{who}: has {batch.size} steps, but its file has {len(sums)} and its release {content['steps']}."
            return
        if content["digest"] != sums_digest(sums):
            yield f"release {release.sequence}: the sums of {who} differ from the released ones."
        *_states, after = states_after(state, sums)
        if not after.same(after_batch):
            yield f"{who}: its state does not follow from the releases."
        if not position_in_round(batch) and not points_match_counts(opened_round, question):
            yield f"{who}: its substitutes for public points do not follow from the run's counts."
        if run.position == batch.start + batch.size and not published_model_matches(run, after):
            yield f"run {run.pk}: the published model is not the result of its steps."

    def charges_faults(self, batch: Batch, release: Release, question: StepsQuestion | CountsQuestion) -> Iterator[str]:
        if isinstance(question, CountsQuestion):
            yield from counts_charges_faults(batch, release, question)
            return
        opened_round, people = batch.round, attempt_load(batch.attempt)
        assert opened_round is not None, "the batch has a round"
        contributions = question.contributions(people, records_of(batch.run, question.fitted, people.holders))
        state, sums = state_before(question, opened_round, batch.index), arrays_load(batch.released)["sums"]
        for state_next in states_after(state, sums):
            contributions.at(state)
            state = state_next
        yield from charged_faults(batch, release, people.holders, contributions.charges)


# --- Rounds -----------------------------------------------------------------------------------------------------------


def is_counts(opened_round: Round) -> bool:
    """Return whether a round counts people to draw rows that replace public points."""
    return is_counted(opened_round.run.plan["rounds"][opened_round.index])


def question_load(opened_round: Round) -> StepsQuestion:
    """Return the question of a round of steps."""
    plan = opened_round.run.plan
    caps = tuple(budget["cap"] for budget in plan["budgets"])
    index = opened_round.index - rounds_of_counts(opened_round.run)
    return _question(opened_round.artifact, json.dumps(plan["rounds"][opened_round.index]["plan"]), index, caps)


# A changed round file would have a new name.
@lru_cache(maxsize=2)
def _question(artifact: str, document: str, index: int, caps: tuple[float, ...]) -> StepsQuestion:
    plan = StepsPlan.from_json(json.loads(document))
    return StepsQuestion.from_arrays(arrays_load(artifact), plan, index=index, caps=np.array(caps))


def round_open(run: Run) -> Round:
    """Return the next round with a new file; the caller's transaction writes the row. Reads no private data."""
    index = run.rounds.count()
    plan = StepsPlan.from_json(run.plan["rounds"][index]["plan"])
    space = _space(run, index)
    outcome = run.learns
    begin = Descent.begin(plan, space.public, outcome.outputs, outcome.loss)
    artifact = f"{rounds_folder(run)}/{index}-{uuid4().hex[:12]}.npz"
    fitted = np.frombuffer(representation_save(space.fitted), dtype=np.uint8)
    arrays_save(
        artifact,
        representation=fitted,
        public=begin.points,
        classes=np.array(outcome.outputs),
        **target_arrays(outcome),
    )
    return Round(
        run=run,
        index=index,
        representation=space.fitted.representation.sentence().to_json(),
        artifact=artifact,
        sigma=plan.sigma,
        size=plan.steps,
    )


def _space(run: Run, index: int) -> Space:
    """Return the space chosen for the first round or, for later ones, the student's inner layer (plus wavelets)."""
    first = planned_space(run)
    if run.public_dataset is None or index == 0:
        return first
    student, points = student_fit(run, student_data_from_steps(run)), points_of(run.public_points, run.encoder)
    return space_of_student(student, first, points, beside_wavelets=first.fitted.representation.images)


# --- The model --------------------------------------------------------------------------------------------------------


def linear_model(opened_round: Round) -> LinearModel:
    """Return the model after all steps of a round, which depends only on the releases.

    For outcomes other than classes, the model is corrected for the noise of its steps.
    """
    question = question_load(opened_round)
    state = state_before(question, opened_round, opened_round.run.batches.count())
    model = state.model(question.fitted, question.target)
    if question.target is not None:
        model.adjustment = descent_adjustment(state, question.target)
    return model


def published_model_matches(run: Run, state: Descent) -> bool:
    """Return whether a run's published model has the weights in ``state``; True if the run published a student."""
    published = StudentModel.objects.filter(run=run, learner=LINEAR).first()
    if published is None:
        return True
    try:
        model = LinearModel.from_bytes(model_fetch(published.artifact))
    except (OSError, ValueError):
        return False
    return nearly_same(model.weights, state.learned)


def student_data_from_steps(run: Run) -> StudentData:
    """Return the last round's calibrated model, with its predictions for public points. Nothing is charged for this.

    For outcomes other than classes, a student learns from the model's probability of each category.
    """
    last = run.rounds.select_related("run").latest("index")
    linear = linear_model(last)
    model = model_calibrate(last, linear) if linear.target is None else linear
    chosen = Steps.from_json(run.choices)
    shares = released_shares(run) if run.classes else None
    points = None
    if chosen.balance:
        points = rows_of(run) if run.public_dataset is None else points_of(run.public_dataset, run.encoder)
    return StudentData(
        releases_of_points(run, model), model=model, publish=chosen.publish, shares=shares, balanced_on=points
    )


def released_shares(run: Run) -> list[ClassShare] | None:
    """Return the class shares among participants, estimated from the run's first step."""
    first = run.rounds.exclude(artifact="").select_related("run").earliest("index")
    batch = first.batches.exclude(released="").order_by("index").first()
    if batch is None:
        return None
    begin = _noisy(question_load(first).begin, noise_factor(run))
    return descent_shares(begin, arrays_load(batch.released, "sums")["sums"][0])


def releases_of_points(run: Run, model: Model) -> Releases:
    """Return a model's predictions for public points in a form that students can learn from; empty if there is none."""
    if not run.learns.categories or run.public_dataset is None:
        return predicted([], np.empty((0, 1)))
    shares = run.learns.shares(model.predict_proba(points_of(run.public_points, run.encoder)))
    return predicted(np.arange(len(shares)), shares)


def model_calibrate(current: Round, model: LinearModel) -> CalibratedModel:
    """Return the model of a round with its calibration, which depends only on releases and public points.

    Raises FileNotFoundError if the file of a release is missing.
    """
    steps, final = _steps(current)
    records = assumed_records(current.run.private_dataset)
    return CalibratedModel(model, descent_calibration(steps, final, final.points, records=records))


def assumed_records(private: Dataset) -> float:
    """Return the assumed average number of records per holder, because the dataset only shows the maximum."""
    return 1.0 if private.most_records == 1 else RECORDS


def _steps(current: Round) -> tuple[list[tuple[Descent, np.ndarray]], Descent]:
    """Return the state before each step and its released noisy sums, and the state after the last step.

    The states contain the noise of the sums, which in joint runs exceeds the noise on which charges are based.
    """
    factor = noise_factor(current.run)
    state, steps = question_load(current).begin, []
    for released in current.batches.exclude(released="").order_by("index").values_list("released", flat=True):
        for sums in arrays_load(released, "sums")["sums"]:
            steps.append((_noisy(state, factor), sums))
            state = state.after(sums)
    return steps, _noisy(state, factor)


def _noisy(state: Descent, factor: float) -> Descent:
    return replace(state, plan=replace(state.plan, noise_factor=factor))


# --- Charts -----------------------------------------------------------------------------------------------------------


SIZE = gettext_noop("noisy gradient")
NOISE = gettext_noop("only noise")


def gradient_curves(run: Run) -> dict[str, list[float]]:
    """Return the norm of every released noisy sum and the expected norm of its noise, in units of the clipping norm."""
    sizes, noises = [], []
    # Only rounds of steps have files.
    batches = run.batches.exclude(round__artifact="").order_by("index")
    for artifact, sigma in batches.values_list("released", "round__sigma"):
        norms, numbers = _norms(artifact)
        sizes += norms
        noises += [float(sigma * np.sqrt(numbers))] * len(norms)
    return {SIZE: sizes, NOISE: noises}


# Cached because a page requests this every other second. A changed file would have a new name.
@lru_cache(maxsize=4096)
def _norms(artifact: str) -> tuple[list[float], int]:
    """Return the norms of a chunk's sums, in units of the clipping norm, and the number of values in each sum."""
    sums = arrays_load(artifact, "sums")["sums"].astype(np.float64)
    return (np.sqrt((sums**2).sum(axis=(1, 2))) / CLIP_STEPS).tolist(), sums[0].size
