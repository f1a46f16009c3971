"""Choices of a run of private gradient steps. Each may be left open: then a public rule decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from common.sentences import gettext_noop
from learning.mechanisms.choices import ROUNDS, HolderChoices, choice, representation_choice
from learning.representations import MOST_COMPONENTS, Encoded, Evened, Representation, Thresholds, Wavelets, Words

MOST_STEPS = 10_000
LARGEST_SIGMA = 4096.0
"""The largest noise multiplier: a clipping norm has 2¹⁸ steps; noise beyond 2³⁰ leaves sites hardly a finer unit."""

BY_RULE = gettext_noop("Empty: chosen by rule.")
UNSET = gettext_noop("chosen by rule")

_STRENGTH_PER_NUMBER = 12.0
_FEWEST_WORDS, _FEWEST_ENCODED = 16, 96
_FLOOR_STRENGTH = 800.0
_LEAST_FLOOR, _MOST_FLOOR = 0.1, 10.0


@dataclass(frozen=True)
class StepChoices(HolderChoices):
    """Choices that all variants of gradient steps have."""

    representation: str = representation_choice(
        gettext_noop(
            "What the model sees of a record; fitted on the public points alone. Without these, and of the "
            "convolutional network, there is none: leave it at the usual one."
        )
    )
    steps: int | None = choice(
        int, None, gettext_noop("Gradient steps"), BY_RULE, minimum=1, maximum=MOST_STEPS, unset=UNSET
    )
    clip_norm: float | None = choice(
        float, None, gettext_noop("Clipping norm"), BY_RULE, minimum=1e-4, maximum=1e4, unset=UNSET
    )
    step_size: float | None = choice(
        float, None, gettext_noop("Step size"), BY_RULE, minimum=1e-6, maximum=1e6, unset=UNSET
    )
    publish: str = choice(
        str,
        "",
        gettext_noop("Published"),
        values={
            "": gettext_noop("the student where labelled public points say that it is better, else the model"),
            "student": gettext_noop("the student"),
            "model": gettext_noop("the model that the steps led to"),
        },
        needs_public_points=True,
    )

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        return steps_space(shape)


@dataclass(frozen=True)
class Steps(StepChoices):
    """Choices about how the steps are made. See :class:`learning.mechanisms.choices.Choices`."""

    rounds: int = choice(
        int,
        1,
        gettext_noop("Rounds"),
        gettext_noop("In the second the model learns in the inner layer of the student of the first."),
        minimum=1,
        maximum=len(ROUNDS),
        values=ROUNDS,
    )
    sigma: float | None = choice(
        float, None, gettext_noop("Noise multiplier σ"), BY_RULE, minimum=0.1, maximum=LARGEST_SIGMA, unset=UNSET
    )
    ridge: float | None = choice(
        float,
        None,
        gettext_noop("Ridge"),
        gettext_noop(
            "What is added to the curvature of the public points, in noises of a step: directions that noise drowns "
            "are followed less. Empty: chosen by rule."
        ),
        minimum=0.0,
        maximum=1e6,
        unset=UNSET,
    )

    def placed(self, points: NDArray[Any], strength: float) -> Steps:
        """The same choices with the representation named, by the rule where it was left open.

        points: public, `(n, *shape)`.  strength: `planner.strength_of` the people; the weaker they are, the fewer
        thresholds the columns of a table have, and the less small variances are magnified; and the fewer components
        has what texts are described by, or what an encoder says.
        """
        if self.representation:
            return self
        own, shape = self.own_space(points), points.shape[1:]
        usual: Representation = own or Wavelets(components=200, floor=0.01)
        together = max(1, min(MOST_COMPONENTS, round(strength / _STRENGTH_PER_NUMBER)))
        if isinstance(own, Words | Encoded):
            fewest = _FEWEST_WORDS if isinstance(own, Words) else _FEWEST_ENCODED
            usual = replace(own, components=max(fewest, min(own.components, together)))
        elif own is None and len(shape) == 1:
            floor = min(_MOST_FLOOR, max(_LEAST_FLOOR, (_FLOOR_STRENGTH / strength) ** 2))
            usual = Evened(together=together, floor=floor)
        return replace(self, representation=usual.name, representation_parameters=usual.parameters())

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        return Wavelets(components=200, floor=0.01) if len(shape) > 1 else Evened()


def steps_space(shape: tuple[int, ...]) -> Representation:
    """The representation in which gradient steps are usually taken, of records of this shape.

    More coordinates than votes need; directions of small spread, where noise outweighs them, stay small.
    """
    return Wavelets(components=200, floor=0.01) if len(shape) > 1 else Thresholds()
