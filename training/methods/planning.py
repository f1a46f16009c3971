"""Code shared by the plans of all methods: promises, budgets, levels, warnings, and checking of choices."""

import abc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from django.utils.translation import gettext as _

from accounting.caps import caps_of
from common.artifacts import arrays_load
from common.declarations import stored
from common.sentences import Sentence, gettext_noop
from learning.forecasts import Forecast
from learning.formats import ImageSchema, TabularSchema, schema_from_json
from learning.mechanisms.choices import Choices, ChoicesError, HolderChoices
from learning.mechanisms.pate import Plan
from learning.mechanisms.pate.ballots import VoteBudget
from learning.mechanisms.protocol import PlanError, PlannedLevel
from learning.representations import REPRESENTATIONS
from training.engine.budgets import RESERVE, Budget, PlannedPromise
from training.measures import published_accuracy
from training.models import Encoder, Encoding, Run

Planned = TypeVar("Planned", bound="MethodPlan")


def with_majority(plan: Planned, run: Run) -> Planned:
    """Return the plan after adding the share of the test data's most frequent class to forecasts of correct labels."""
    majority = _majority(run.test_dataset.artifact) if run.test_dataset and run.classes else None
    forecasts = tuple(each if each.measure else replace(each, majority=majority) for each in plan.forecasts)
    return replace(plan, forecasts=forecasts)


@lru_cache(maxsize=64)  # a changed dataset file would have a new name
def _majority(artifact: str) -> float | None:
    classes = arrays_load(artifact, "y")["y"]
    return published_accuracy(int(np.bincount(classes).max()), len(classes)) if len(classes) else None


@dataclass(frozen=True)
class MethodPlan(abc.ABC):
    """Public plan of a run, with the assumptions on which it is based.

    Attributes:
        promises: the promises on which it is based, with public or noisy numbers of holders.
        budgets: the most that the run may charge people with each promise or group of promises.
        forecasts: forecasts of the run's outcome, in the same form for all methods; empty if nothing can be forecast.
        notes: notes on choices that were made, and warnings.
    """

    promises: list[PlannedPromise]
    budgets: Sequence[Budget | VoteBudget]
    forecasts: tuple[Forecast, ...]
    notes: tuple[Sentence, ...]

    @property
    def labels(self) -> int | None:
        """Minimum number of labels released before accounts run out; None if they cannot run out."""
        return None

    @abc.abstractmethod
    def details(self) -> dict[str, Any]:
        """Return the method's own fields of the plan as JSON: at least ``rounds``, each with its share."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON to be stored with a run."""
        return {
            **{name: stored(getattr(self, name)) for name in ("promises", "budgets", "forecasts", "notes")},
            **self.details(),
        }


# --- Promises and budgets ---------------------------------------------------------------------------------------------


def budgets_of(run: Run, promises: list[PlannedPromise], share: float) -> list[Budget]:
    """Return the largest charge to holders of each promise that a run may make with a ``share`` of every cap."""
    caps = [float(caps_of(promise.epsilon, run.study.delta)) for promise in promises]
    return [Budget(cap, share * cap * (1 - RESERVE)) for cap in caps]


def group_budgets(plan: Plan, delta: float, share: float) -> list[VoteBudget]:
    """Return the largest charge to each group that a run of teachers may make with a ``share`` of every cap."""
    budgets = []
    for group in plan.groups:
        charge = plan.aggregator.charge(group.sensitivity)
        cap = float(caps_of(group.epsilon, delta))
        budgets.append(VoteBudget(cap, share * cap * (1 - RESERVE), **asdict(charge)))
    return budgets


def group_answers(plan: Plan, budgets: Sequence[VoteBudget]) -> list[int | None]:
    """Return the minimum number of answered queries that each group can pay for; None for groups that can pay for all.

    If a group's teachers take turns, each takes part in proportionally fewer queries.
    """
    return [
        budget.answers
        if budget.answers is None or not group.participants
        else budget.answers * group.teachers // group.participants
        for group, budget in zip(plan.groups, budgets, strict=False)
    ]


def levels_of(promises: list[PlannedPromise], budgets: list[Budget], records: float = 1.0) -> tuple[PlannedLevel, ...]:
    """Return the promises that have holders as levels for a planner, with ``records`` per holder, a public number.

    Raises PlanError if no promise has holders.
    """
    levels = tuple(
        PlannedLevel(promise.name, budget.cap, float(promise.holders), records)
        for promise, budget in zip(promises, budgets, strict=True)
        if promise.holders
    )
    if not levels:
        raise PlanError(
            gettext_noop(
                "According to the head counts no one takes part, so there is no one to ask. Wait until people have "
                "given consent."
            )
        )
    return levels


def share_warning(run: Run, share: float) -> tuple[Sentence, ...]:
    """Return warnings about a ``share`` of every cap, for the person who approves it."""
    if share < 1 - RESERVE or run.rehearsal:
        return ()
    text = gettext_noop(
        "The run may use everything that is left of every holder's cap, which would leave nothing for later runs."
    )
    return (Sentence(text),)


# --- Choices of a proposal --------------------------------------------------------------------------------------------


Chosen = TypeVar("Chosen", bound=Choices)
Held = TypeVar("Held", bound=HolderChoices)


def choices_check(run: Run, wrong: Callable[[str, object], None], kind: type[Chosen]) -> Chosen | None:
    """Report errors in a proposal's choices; return the choices with defaults added, or None if they cannot be read.

    Args:
        wrong: See `training.methods.base.Wrong`; the field of a choice is dotted, for example "choices.sigma".
        kind: The class of the method's choices.
    """
    try:
        chosen = kind.from_json(run.choices)
    except ChoicesError as error:
        for name, message in error.faults:
            wrong(f"choices.{name}" if name else "choices", _(message))
        return None
    run.choices = chosen.to_json()
    return chosen


def holder_choices_check(run: Run, wrong: Callable[[str, object], None], kind: type[Held]) -> Held | None:
    """Check choices like `choices_check`, and check that the representation is suitable for the records."""
    chosen = choices_check(run, wrong, kind)
    if chosen is None or not run.private_dataset_id:
        return chosen
    schema = schema_from_json(run.private_dataset.schema)
    is_image, is_text = isinstance(schema, ImageSchema), isinstance(schema, TabularSchema) and schema.text is not None
    if chosen.encoder:
        _encoder_check(run, chosen.encoder, wrong)
    elif chosen.representation:
        named = REPRESENTATIONS[chosen.representation]
        if named.images and not is_image:
            wrong("choices.representation", _("This representation is only for images. Choose another one."))
        elif named.texts != is_text:
            wrong("choices.representation", _("This representation does not fit these records. Choose another one."))
    if is_text and run.public_dataset_id is None:
        wrong("public_dataset", _("Describing texts requires public texts. Choose a public dataset."))
    return chosen


def _encoder_check(run: Run, digest: str, wrong: Callable[[str, object], None]) -> None:
    """Report an error if a run's encoder does not exist, or if its public datasets are not encoded.

    This is not checked for private records, because it may depend on a single record. The run waits for these.
    """
    if run.alliance_id:
        # The last bits of vectors differ between machines, and the sites' questions would therefore differ.
        return wrong("choices.encoder", _("A run across sites uses the records unchanged. Do not choose an encoder."))
    encoder = Encoder.objects.filter(study=run.study_id, digest=digest, withdrawn_at=None).first()
    if encoder is None:
        return wrong("choices.encoder", _("The study does not have this encoder. Register it first."))
    if run.public_dataset_id is None:
        return wrong("choices.encoder", _("A run with an encoder needs public points. Choose a public dataset."))
    done = set(encoder.encodings.filter(state=Encoding.State.DONE).values_list("dataset", flat=True))
    for field in ("public_dataset", "test_dataset", "labelled_dataset"):
        dataset = getattr(run, field)
        if dataset is not None and dataset.pk not in done:
            names = {"name": dataset.name}
            wrong(field, _("The encoder has not encoded “%(name)s”. Check the page “Encoders”.") % names)
