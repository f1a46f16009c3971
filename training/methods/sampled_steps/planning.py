"""Plan of a run of steps over samples: rates, norms, noise, and the charge of the whole. Everything in it is public."""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from accounting.caps import SLACKS, slack_of
from accounting.models import Release
from accounting.privacy.sampled_charge import SMALLEST_SLACK
from accounting.slacks import slack_fits
from common.sentences import Sentence, gettext_noop
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.base import PlanError
from learning.mechanisms.sampled_steps.choices import BASELINES, VARIANTS, Samples
from learning.mechanisms.sampled_steps.planner import (
    SampledParameters,
    SampledPlan,
    plan_sampled,
    usual_parameters,
)
from training.engine.budgets import PlannedPromise, planned_promises
from training.methods.levels import budgets_of, levels_of, share_warning
from training.methods.plans import MethodPlan
from training.methods.space import Space, space_first
from training.models import Run

AS_THEY_ARE = Sentence(gettext_noop("The records as they are: pixels, or columns between their public bounds."))

ONLY_REHEARSED = gettext_noop("Baselines are for rehearsal studies: choose another variant.")
SLACKS_USED = gettext_noop(
    "At most %(most)d runs over samples can be approved in a study: for no more is a part of its δ set aside. Choose "
    "the variant in which everyone is charged for their own gradients."
)


@dataclass(frozen=True)
class Inputs:
    """Input of the network: coordinates in the ``space``, or where that is None records as they are.

    Attributes:
        space: Fitted on public points.
        shape: Of a record as the network takes it.
        scale: What it is multiplied by first, so that a typical one has the length 1; public.
    """

    space: Space | None
    shape: tuple[int, ...]
    scale: float

    @property
    def sentence(self) -> Sentence:
        """Input of the network, in words."""
        return AS_THEY_ARE if self.space is None else self.space.fitted.representation.sentence()


def inputs_of(run: Run, chosen: Samples) -> Inputs:
    """Input of the network of a run. Raises ValueError where the public points do not suit the representation."""
    if run.public_dataset is not None and chosen.network != "cnn":
        space = space_first(run.public_dataset, chosen)
        length = float(np.sqrt((space.public.astype(np.float64) ** 2).sum(axis=1).mean()))
        return Inputs(space, (space.fitted.dimensions,), 1 / (length or 1.0))
    schema = schema_from_json(run.private_dataset.schema)
    if chosen.network == "cnn":
        return Inputs(None, schema.shape, 1.0)
    # No record is looked at: columns are of length 1 at most, and of the pixels of an image many are dark.
    length = len(schema.features) if isinstance(schema, TabularSchema) else int(np.prod(schema.shape)) / 4
    return Inputs(None, schema.shape, float(length) ** -0.5)


@dataclass(frozen=True)
class SamplingPlan(MethodPlan):
    """Plan of steps over samples. It has no forecast: a rehearsal of a network takes too long for a plan."""

    sampled: SampledPlan
    parameters: SampledParameters
    network: str
    weights: int
    representation: Sentence

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The only round, as the run keeps it."""
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
        """JSON of the round, and of the input of the network."""
        return {"rounds": self.rounds, "representation": self.representation.to_json()}


def sampling_plan(run: Run, share: float = 1.0, promises: list[PlannedPromise] | None = None) -> SamplingPlan:
    """Plan ``run`` (saved or not) for a ``share`` of every cap. Raises PlanError, which says what to do.

    A function of what is public alone: policies, head counts, shares, public points (conditions 1 and 2 of the
    guarantee).
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
                    "The δ of this study, %(delta).2g, is too small to set parts of it aside for steps over samples: "
                    "take the variant in which everyone is charged for their own gradients."
                ),
                delta=run.study.delta,
            )
        )
    try:
        inputs = inputs_of(run, chosen)
        weights = _weights(chosen.network, inputs.shape, outcome.outputs)
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
        (*sampled.notes, *_notes(run), *share_warning(run, share)),
        sampled,
        parameters,
        chosen.network,
        weights,
        inputs.sentence,
    )


def has_slack_left(run: Run) -> bool:
    """Whether the study has a part of δ for this run, beside those that were charged or that approved runs need."""
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
                "The whole run is charged before its first step. Who has less than that left takes no part, and nobody "
                "joins later; a run that is cancelled has cost as much as one that ends."
            )
        )
    ]
    if run.public_dataset is None:
        notes.append(
            Sentence(gettext_noop("Without public points there is no student: the network itself is published."))
        )
    return tuple(notes)


# A plan takes seconds, and is looked at, approved and carried out one after the other.
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


@lru_cache(maxsize=32)
def _weights(network: str, shape: tuple[int, ...], classes: int) -> int:
    """Number of weights of the network. Raises ValueError where it takes no such records."""
    from learning.mechanisms.sampled_steps.network_states import (
        weights_number,  # PyTorch takes a second, the site may not need it
    )

    return weights_number(network, shape, classes)
