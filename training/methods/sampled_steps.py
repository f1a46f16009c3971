"""Private gradient steps on samples of holders: the plan, the charge of all steps, and the final network."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import uuid4

import numpy as np
from django.utils.translation import gettext as _

from accounting.accounts import charges_of, slack_fits
from accounting.caps import SLACKS, slack_of
from accounting.models import Release
from accounting.privacy.sampled_charge import SMALLEST_SLACK
from common.artifacts import arrays_load, arrays_save, model_fetch
from common.sentences import Sentence, gettext_noop
from learning.calibration import CalibratedModel, Calibration
from learning.formats import TabularSchema, schema_from_json
from learning.learners import Model
from learning.libraries import pytorch_check
from learning.mechanisms.protocol import People, PlanError, content_digest
from learning.mechanisms.sampled_steps.run_plan import (
    BASELINES,
    SMALLEST_SIDE,
    VARIANTS,
    SampledParameters,
    SampledPlan,
    Samples,
    plan_sampled,
    usual_parameters,
    weights_number,
)
from learning.mechanisms.sampled_steps.training import CHARGE, SampledQuestion, SampledSteps
from learning.mechanisms.steps.steps_plan import balance_notes
from learning.outcomes import target_arrays
from learning.published import network_learner, published_load
from learning.representations import representation_save
from learning.students import predicted
from training.engine.budgets import PlannedPromise, planned_promises
from training.engine.commits import charged_faults
from training.engine.questions import (
    Questions,
    attempt_load,
    position_in_round,
    round_under_way,
    rounds_folder,
    state_before,
)
from training.engine.records import Space, points_of, space_first
from training.methods.base import Wrong
from training.methods.planning import MethodPlan, budgets_of, holder_choices_check, levels_of, share_warning
from training.methods.steps import (
    GradientSteps,
    assumed_records,
    balance_refused,
    releases_of_points,
    student_refused,
    student_without_points_refused,
)
from training.methods.student_training import StudentData
from training.models import Batch, Round, Run, StudentModel

AS_THEY_ARE = Sentence(gettext_noop("The records themselves: pixels, or columns scaled by their public bounds."))

ONLY_REHEARSED = gettext_noop("Baselines are only for rehearsal studies. Choose another variant.")
SLACKS_USED = gettext_noop(
    "A study can approve at most %(most)d runs that sample people, because the part of δ reserved for such runs is "
    "then used up. Choose the variant that charges everyone for their own gradients."
)


@dataclass(frozen=True)
class Inputs:
    """Input of the network: coordinates in ``space``, or the records themselves if it is None.

    Attributes:
        space: Space fitted on public points.
        shape: Shape of a record as network input.
        scale: Public factor for inputs, chosen so that a typical input has length 1.
    """

    space: Space | None
    shape: tuple[int, ...]
    scale: float

    @property
    def sentence(self) -> Sentence:
        """Description of the network's input."""
        return AS_THEY_ARE if self.space is None else self.space.fitted.representation.sentence()


def inputs_of(run: Run, chosen: Samples) -> Inputs:
    """Return the input of a run's network. Raises ValueError if the public points do not fit the representation."""
    if run.public_dataset is not None and chosen.network != "cnn":
        space = space_first(run.public_dataset, chosen)
        length = float(np.sqrt((space.public.astype(np.float64) ** 2).sum(axis=1).mean()))
        return Inputs(space, (space.fitted.dimensions,), 1 / (length or 1.0))
    schema = schema_from_json(run.private_dataset.schema)
    if chosen.network == "cnn":
        return Inputs(None, schema.shape, 1.0)
    # The typical length of an input must not be computed from records, so it is estimated: each column adds at most 1
    # to the squared length, and each pixel about a quarter, because many are dark.
    length = len(schema.features) if isinstance(schema, TabularSchema) else int(np.prod(schema.shape)) / 4
    return Inputs(None, schema.shape, float(length) ** -0.5)


@dataclass(frozen=True)
class SamplingPlan(MethodPlan):
    """Plan of steps on samples. It has no forecast, because simulating the training of a network takes too long."""

    sampled: SampledPlan
    parameters: SampledParameters
    network: str
    weights: int
    representation: Sentence

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The single round, as stored with the run."""
        mechanism = self.sampled.mechanism
        plan = {
            "steps": self.sampled.steps,
            "sigma": mechanism.noise_multiplier,
            "clip_norm": mechanism.clip_norm,
            "step_size": self.parameters.step_size,
            "momentum": self.parameters.momentum,
            "expected": mechanism.expected,
            "network": self.network,
            "weights": self.weights,
        }
        return [{"plan": plan | self.sampled.to_json(), "until": 1.0}]

    def details(self) -> dict[str, Any]:
        """Return the round and the network's input as JSON."""
        return {"rounds": self.rounds, "representation": self.representation.to_json()}


def sampling_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> SamplingPlan:
    """Return the plan of ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError with a remedy.

    The plan depends only on public information: policies, head counts, shares, public points (conditions 1 and 2 in
    docs/gaussian-accounts.md).
    """
    if run.variant in BASELINES and not run.rehearsal:
        raise PlanError(ONLY_REHEARSED)
    if not has_slack_left(run):
        raise PlanError(Sentence(SLACKS_USED, most=SLACKS))
    chosen, promises = Samples.from_json(run.choices), promises or planned_promises(run)
    budgets = budgets_of(run, promises, share)
    people = sum(level.holders for level in levels_of(promises, budgets))
    outcome = run.private_dataset.outcome
    usual = usual_parameters(chosen.network, people, outcome.loss)
    settings = {name: getattr(chosen, name) for name in ("steps", "clip_norm", "step_size", "momentum")}
    rate = usual.rate if chosen.expected is None else min(1.0, chosen.expected / people)
    parameters = SampledParameters(
        **{**asdict(usual), **{name: value for name, value in settings.items() if value is not None}, "rate": rate}
    )
    slack = slack_of(run.study.delta)
    if rate < 1 and slack < SMALLEST_SLACK:
        raise PlanError(
            Sentence(
                gettext_noop(
                    "This study's δ, %(delta).2g, is too small to reserve parts of it for runs that sample people. "
                    "Choose the variant that charges everyone for their own gradients."
                ),
                delta=run.study.delta,
            )
        )
    try:
        inputs = inputs_of(run, chosen)
        weights = weights_number(chosen.network, inputs.shape, outcome.outputs)
        sampled = _sampled(
            run.variant,
            tuple(budget.cap for budget in budgets),
            tuple(promise.holders for promise in promises),
            share,
            slack,
            parameters,
            weights,
        )
    except (ValueError, ArithmeticError) as error:
        raise PlanError(str(error)) from error
    return SamplingPlan(
        promises,
        budgets,
        (),
        (*sampled.notes, *_notes(run), *balance_notes(chosen), *share_warning(run, share)),
        sampled,
        parameters,
        chosen.network,
        weights,
        inputs.sentence,
    )


def has_slack_left(run: Run) -> bool:
    """Return whether the study's δ suffices for this run's slack in addition to those of charged and approved runs."""
    if run.rehearsal:
        return True
    others = Run.objects.filter(study=run.study, method=Run.Method.SGD, variant__in=VARIANTS, status__in=Run.ACTIVE)
    charged = Release.objects.filter(study=run.study, content__has_key="slack", run__isnull=False).values("run")
    waiting = others.exclude(pk=run.pk).exclude(pk__in=charged).count()
    return slack_fits(run.study, (waiting + 1) * slack_of(run.study.delta))


def _notes(run: Run) -> tuple[Sentence, ...]:
    if run.rehearsal:
        return ()
    notes = [
        Sentence(
            gettext_noop(
                "The whole run is charged before its first step. People with less budget left do not take part, and "
                "no one joins later. A cancelled run costs as much as a finished one."
            )
        )
    ]
    if run.public_dataset is None:
        notes.append(
            Sentence(gettext_noop("Without public points there is no student, so the network itself is published."))
        )
    return tuple(notes)


# A plan takes seconds to compute, and planning, approving and running use the same plan.
@lru_cache(maxsize=64)
def _sampled(
    variant: str,
    caps: tuple[float, ...],
    holders: tuple[int, ...],
    share: float,
    slack: float,
    parameters: SampledParameters,
    weights: int,
) -> SampledPlan:
    return plan_sampled(
        variant,
        caps,
        holders,
        share=share,
        slack=slack,
        steps=parameters.steps,
        rate=parameters.rate,
        clip_norm=parameters.clip_norm,
        weights=weights,
    )


# --- The method as used by engine and services ------------------------------------------------------------------------


class SampledGradients(Questions):
    """Questions about gradients of samples of holders."""

    #: One task processes a whole chunk, because a step reads the records of only a few hundred holders.
    shard = 2**62
    release_kind = Release.Kind.STEPS.value
    died = gettext_noop(
        "Workers repeatedly crashed during the same steps, probably because they ran out of memory. Propose the run "
        "again with a smaller network, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def question(self, opened_round: Round) -> SampledQuestion:
        return question_load(opened_round)

    def people(self, run: Run) -> People:
        people = super().people(run)
        if run.rehearsal:
            return people
        if not run.batches.exists():
            question = question_load(round_under_way(run))
            group = question.groups(people.caps)
            due = question.charges[group]
            return people.of((group >= 0) & (people.spent + due <= people.limits))
        holders, caps = charged_caps(run)
        if not len(holders):
            return people.of(np.zeros(len(people.holders), dtype=bool))
        place = np.searchsorted(holders, people.holders).clip(max=len(holders) - 1)
        stays = (holders[place] == people.holders) & (people.caps >= caps[place])
        # A raised level takes effect in the next run; in this run, people stay in the group in which they were charged.
        return replace(people.of(stays), caps=caps[place[stays]])

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.STEPS

    def spent(self, run: Run) -> list[float | None]:
        charges = run.plan["rounds"][0]["plan"]["charges"]
        return [None if charge is None else spent for charge, spent in zip(charges, run.spent, strict=True)]


def charged_caps(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return the ascending ids (H,) of the holders charged for the run, and the cap on which each charge is based.

    This is read from the charge file, which is never deleted; everyone in a group was charged the same.
    """
    charges = charges_of(Release.objects.get(run=run.pk, batch=CHARGE))
    question = question_load(run.rounds.select_related("run").get())
    return charges.holders, question.caps[np.abs(charges.spent[:, None] - question.charges).argmin(axis=1)]


class SgdSampled(GradientSteps):
    """Method of gradient steps on samples; see :class:`training.methods.base.RunMethod`."""

    variants: tuple[str, ...] = (*VARIANTS, *BASELINES)
    charged = gettext_noop(
        "Charges are public. Everyone at a level who takes part was charged the same amount for the whole run before "
        "its first step. People with less budget left do not take part."
    )
    rehearsed_variants: tuple[str, ...] = BASELINES
    choices = Samples
    parts = "sampled"
    needs_public_points = False
    charges_ahead = True
    questions = SampledGradients()
    # Records are read once per chunk; withdrawals take effect from the next chunk on.
    batch_size = 50

    def check_choices(self, run: Run, wrong: Wrong) -> None:
        if not run.rehearsal and run.variant in self.rehearsed_variants:
            wrong("variant", _(ONLY_REHEARSED))
        if run.study_id and not has_slack_left(run):
            wrong("variant", _(SLACKS_USED) % {"most": SLACKS})
        chosen = holder_choices_check(run, wrong, self.choices)
        if chosen is None or not run.private_dataset_id:
            return
        shape = schema_from_json(run.private_dataset.schema).shape
        if chosen.network == "cnn" and (len(shape) < 2 or min(shape[:2]) < SMALLEST_SIDE):
            wrong(
                "choices.network",
                _("The convolutional network needs images of at least 16 × 16 pixels. Choose another model."),
            )
        balance_refused(run, chosen, wrong)
        if not run.private_dataset.outcome.categories:
            student_refused(chosen, wrong)
        if run.public_dataset_id:
            return
        if chosen.balance:
            wrong("choices.balance", _("Balancing needs public points. Choose a public dataset, or leave this off."))
        if chosen.representation:
            wrong(
                "choices.representation",
                _(
                    "A representation is fitted on public points. Choose a public dataset, or leave out the "
                    "representation."
                ),
            )
        student_without_points_refused(chosen, wrong)

    def counted(self, run: Run) -> Sentence:
        return Sentence(
            gettext_noop(
                "The amount (in Gaussian differential privacy) that everyone at a level would have been charged for "
                "the whole run if people had been asked."
            )
        )

    def plan(self, run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> SamplingPlan:
        return sampling_plan(run, share, promises)

    def mechanism(self, run: Run) -> dict[str, Any]:
        opened_round = run.rounds.select_related("run").get()
        question = question_load(opened_round)
        return question.describe() | {
            "representation": opened_round.representation,
            "slack": question.plan.slack,
            "levels": [promise["name"] for promise in run.plan["promises"]],
        }

    def student_data(self, run: Run) -> StudentData:
        return student_data_from_network(run)

    def kept_faults(self, batch: Batch, release: Release, question: SampledQuestion) -> Iterator[str]:
        run, content = batch.run, release.content
        who, before = f"run {run.pk}, batch {batch.index}", position_in_round(batch)
        if batch.index == CHARGE:
            if batch.size or any(content.get(name) != value for name, value in question.charged_content().items()):
                yield f"release {release.sequence}: is not the charge for the whole of run {run.pk}."
            return
        try:
            state = question.state(arrays_load(batch.released))
        except (OSError, KeyError, ValueError):
            yield f"{who}: its released file cannot be read."
            return
        if not state.step - before == batch.size == content["steps"]:
            found = state.step - before
            yield f"{who}: has {batch.size} steps, but its file has {found} and its release {content['steps']}."
        if content["digest"] != content_digest(state.to_arrays()):
            yield f"release {release.sequence}: the weights of {who} differ from the released ones."
        if run.position == batch.start + batch.size and not published_model_matches(run, question, state):
            yield f"run {run.pk}: the published network is not the result of its steps."

    def charges_faults(self, batch: Batch, release: Release, question: SampledQuestion) -> Iterator[str]:
        people = attempt_load(batch.attempt)
        if batch.index == CHARGE:
            due = question.charges[question.groups(people.caps)]
            yield from charged_faults(batch, release, people.holders, due)
            return
        charged, _caps = charged_caps(batch.run)
        if not np.isin(people.holders, charged).all():
            yield f"release {release.sequence}: batch {batch.index} asked a holder who was not charged for the run."


# --- Rounds -----------------------------------------------------------------------------------------------------------


def question_load(opened_round: Round) -> SampledQuestion:
    """Return the question of a run's round."""
    plan = opened_round.run.plan
    caps = tuple(budget["cap"] for budget in plan["budgets"])
    return _question(opened_round.artifact, json.dumps(plan["rounds"][opened_round.index]["plan"]), caps)


# A changed round file would have a new name.
@lru_cache(maxsize=2)
def _question(artifact: str, document: str, caps: tuple[float, ...]) -> SampledQuestion:
    return SampledQuestion.from_arrays(arrays_load(artifact), json.loads(document), np.array(caps))


def round_open(run: Run) -> Round:
    """Return a run's single round with a new file; the caller's transaction writes the row. Reads no private data."""
    pytorch_check()
    from learning.mechanisms.sampled_steps.network_states import steps_begin  # PyTorch takes a second to import

    planned, inputs = run.plan["rounds"][0]["plan"], inputs_of(run, Samples.from_json(run.choices))
    outcome = run.learns
    classes = outcome.outputs
    begin = steps_begin(planned["network"], inputs.shape, classes, seed=run.seed or 0)
    artifact = f"{rounds_folder(run)}/0-{uuid4().hex[:12]}.npz"
    stored = b"" if inputs.space is None else representation_save(inputs.space.fitted)
    arrays_save(
        artifact,
        representation=np.frombuffer(stored, dtype=np.uint8),
        shape=np.array(inputs.shape),
        scale=np.array(inputs.scale),
        classes=np.array(classes),
        **target_arrays(outcome),
        **begin.to_arrays(),
    )
    return Round(
        run=run,
        index=0,
        representation=inputs.sentence.to_json(),
        artifact=artifact,
        sigma=planned["sigma"],
        size=planned["steps"],
    )


# --- The network ------------------------------------------------------------------------------------------------------


def student_data_from_network(run: Run) -> StudentData:
    """Return the network after the last step, with its predictions for all public points. Nothing is charged for this.

    If there are public points, a classification model is calibrated with them and with the releases.
    """
    opened_round = run.rounds.select_related("run").get()
    question = question_load(opened_round)
    model: Model = _model(question, state_before(question, opened_round, run.batches.count()))
    learner = network_learner(question.network)
    if run.public_dataset is None:
        return StudentData(predicted([], np.empty((0, 1))), model=model, learner=learner, publish="model")
    chosen, points = Samples.from_json(run.choices), points_of(run.public_dataset, run.encoder)
    if question.target is None:
        model = CalibratedModel(model, _calibration(opened_round, question, points))
    return StudentData(
        releases_of_points(run, model),
        model=model,
        learner=learner,
        publish=chosen.publish,
        balanced_on=points if chosen.balance else None,
    )


def published_model_matches(run: Run, question: SampledQuestion, state: SampledSteps) -> bool:
    """Return whether a run's published network is the one in ``state``; True if the run published a student."""
    learner = network_learner(question.network)
    published = StudentModel.objects.filter(run=run, learner=learner).first()
    if published is None:
        return True
    try:
        content = published_load(learner, model_fetch(published.artifact)).to_bytes()
    except (OSError, ValueError):
        return False
    return content == _model(question, state).to_bytes()


def _calibration(opened_round: Round, question: SampledQuestion, points: np.ndarray) -> Calibration:
    """Return the calibration of the final state. Raises FileNotFoundError if the file of a release is missing."""
    from learning.mechanisms.sampled_steps.network_states import network_calibration  # imports PyTorch

    names = opened_round.batches.exclude(released="").order_by("index").values_list("released", flat=True)
    states = [question.begin, *(question.state(arrays_load(name)) for name in names)]
    records = assumed_records(opened_round.run.private_dataset)
    return network_calibration(question, states, points, records=records)


def _model(question: SampledQuestion, state: SampledSteps) -> Model:
    from learning.mechanisms.sampled_steps.network_states import network_model  # PyTorch takes a second to import

    return network_model(question, state)
