"""Choices and plan of a round of private gradient steps: their number, noise, clipping norm and step size.

A public rule makes any choice that is left open. Rules use only public inputs: caps and shares, noisy or public head
counts, and the numbers of coordinates and classes. docs/sgd.md explains how the constants were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.declarations import Stored
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.choices import ROUNDS, HolderChoices, choice, representation_choice
from learning.mechanisms.protocol import PlannedLevel
from learning.outcomes import CROSS_ENTROPY, Loss
from learning.representations import (
    MOST_COMPONENTS,
    Encoded,
    Evened,
    Interactions,
    Representation,
    Thresholds,
    Wavelets,
    Words,
    numeric_columns,
)

MOST_STEPS = 10_000
LARGEST_SIGMA = 4096.0
"""Largest noise multiplier.

The noise must stay below 2³⁰ units of the sums, in which the clipping norm is 2¹⁸, because sites divide these units
further.
"""

BY_RULE = gettext_noop("Leave this empty to set the value automatically.")
UNSET = gettext_noop("set automatically")

_STRENGTH_PER_NUMBER, _STRENGTH_PER_SHRUNK = 12.0, 5.0
_FEWEST_WORDS, _FEWEST_ENCODED = 16, 96
_INTERACTING_STRENGTH, _INTERACTING_SHRUNK = 500.0, 200.0
# interactions of a table of classes: number of functions, their spread if all columns are numbers, and the strength
# from which they have it
_INTERACTIONS, _INTERACTING_SPREAD, _INTERACTING_FULLY = 1024, 0.5, 3000.0
_LEAST_SPREAD = 0.001
_SPREADS = (0.0, 0.2, 1.0)  # alternatives if there are labelled public points
_FLOOR_STRENGTH = 800.0
_LEAST_FLOOR, _MOST_FLOOR = 0.1, 10.0
_DRAWN_FLOOR = 0.3  # for rows drawn from counts, because their variances are only roughly right

STEPS = 60
STEP_SIZE = 1.0
# in units of a step's noise: for each √(number of scores), and the minimum if the signal is weak
RIDGE, LEAST_RIDGE = 3.5, 10.0
LARGEST_RIDGE = 20.0  # used until the signal is known
COUNTED = 0.1
"""Part of a run's share used to count people if there are no public points; measurements are in docs/sgd.md."""
ROWS = 10_000
"""Number of rows drawn from these counts; it does not affect the charge."""

_FEW = 15.0  # signal below which models were much worse than they would be without noise
_STRONG = 5000.0
_SMALLEST_WEIGHT = 1e-6
# left out of plans with these values
_ADDED = {"per_direction": False, "expected": False, "corrects": False, "noise_factor": 1.0}
_ROUNDING = 1.0 + 1e-9  # factor of σ, so that rounding never makes the last step too expensive for an account


@dataclass(frozen=True)
class StepChoices(HolderChoices):
    """Choices shared by all variants of gradient steps."""

    representation: str = representation_choice(
        gettext_noop(
            "How records are turned into the model's input. This is fitted to the public points only. If there are "
            "none, or if you use the convolutional network, keep the default."
        )
    )
    steps: int | None = choice(
        None, gettext_noop("Gradient steps"), BY_RULE, minimum=1, maximum=MOST_STEPS, unset=UNSET
    )
    clip_norm: float | None = choice(
        None, gettext_noop("Clipping norm"), BY_RULE, minimum=1e-4, maximum=1e4, unset=UNSET
    )
    step_size: float | None = choice(None, gettext_noop("Step size"), BY_RULE, minimum=1e-6, maximum=1e6, unset=UNSET)
    publish: str = choice(
        "",
        gettext_noop("Result to publish"),
        values={
            "": gettext_noop("the student if labelled public points show that it is better, otherwise the model"),
            "student": gettext_noop("the student"),
            "model": gettext_noop("the model from the gradient steps"),
        },
        needs_public_points=True,
    )
    balance: bool = choice(
        False,
        gettext_noop("Balance the classes"),
        gettext_noop(
            "The model answers as if all classes were equally frequent, so it finds rare classes more often. "
            "Overall, fewer of its answers are right, often far fewer. Probabilities and privacy costs stay the same."
        ),
    )

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        return steps_space(shape)


@dataclass(frozen=True)
class Steps(StepChoices):
    """Choices about the steps. See :class:`learning.mechanisms.choices.Choices`."""

    rounds: int = choice(
        1,
        gettext_noop("Rounds"),
        gettext_noop("In the second round, the model's input is the output of the first student's inner layer."),
        minimum=1,
        maximum=len(ROUNDS),
        values=ROUNDS,
    )
    sigma: float | None = choice(
        None, gettext_noop("Noise multiplier σ"), BY_RULE, minimum=0.1, maximum=LARGEST_SIGMA, unset=UNSET
    )
    ridge: float | None = choice(
        None,
        gettext_noop("Ridge"),
        gettext_noop(
            "Added to the curvature of the public points, in units of a step's noise. A larger value shortens steps "
            "in directions dominated by noise. Leave this empty to set the value automatically."
        ),
        minimum=0.0,
        maximum=1e6,
        unset=UNSET,
    )

    def placed(
        self,
        points: NDArray[Any],
        strength: float,
        *,
        interactions: bool = True,
        drawn: bool = False,
        loss: Loss = CROSS_ENTROPY,
    ) -> Steps:
        """Return these choices with a representation.

        If none was chosen, a rule selects one for the points and the strength.

        Args:
            points: Public, `(n, *shape)`.
            strength: Result of `strength_of` for the participants. With a smaller strength, columns of a table get
                fewer thresholds and no interactions, small variances are magnified less, and texts and encoders'
                outputs get fewer components.
            interactions: Whether a table may get interactions of its numbers. The more of its columns are numbers, the
                larger the spread of the interactions.
            drawn: Whether the points are drawn from counts, which makes small variances unreliable.
            loss: Loss of a record. For numbers, each direction is shrunk, so tables get more thresholds and
                interactions.
        """
        if self.representation:
            return self
        own, shape = self.own_space(points), points.shape[1:]
        usual: Representation = own or Wavelets(components=200, floor=0.01)
        together = max(1, min(MOST_COMPONENTS, round(strength / _STRENGTH_PER_NUMBER)))
        if isinstance(own, Words | Encoded):
            smallest = _FEWEST_WORDS if isinstance(own, Words) else _FEWEST_ENCODED
            usual = replace(own, components=max(smallest, min(own.components, together)))
        elif own is None and len(shape) == 1:
            lowest = _DRAWN_FLOOR if drawn else _LEAST_FLOOR
            floor = min(_MOST_FLOOR, max(lowest, (_FLOOR_STRENGTH / strength) ** 2))
            numbers, usual = len(numeric_columns(points)), Evened(together=together, floor=floor)
            if self.shrinks(loss):
                together = max(1, min(MOST_COMPONENTS, round(strength / _STRENGTH_PER_SHRUNK)))
                usual = replace(usual, together=together)
                room, least, fewest = Interactions(), _INTERACTING_SHRUNK, 2.0
            elif drawn:
                room, least, fewest = Interactions(), _INTERACTING_STRENGTH, shape[0] / 2
            else:
                signal = min(1.0, math.sqrt(strength / _INTERACTING_FULLY))
                spread = max(_LEAST_SPREAD, _INTERACTING_SPREAD * signal * (numbers / shape[0]) ** 2)
                room = Interactions(features=_INTERACTIONS, spread=spread)
                least, fewest = _INTERACTING_STRENGTH, shape[0] / 4
            if interactions and strength >= least and numbers >= max(2.0, fewest):
                usual = replace(room, together=together, floor=floor)
        return replace(self, representation=usual.name, representation_parameters=usual.parameters())

    def alternatives(self, points: NDArray[Any]) -> dict[float, Steps]:
        """Return these placed choices and others by the spread of the interactions; these come first.

        Labelled public points can decide between them; see `rehearsals.errors_rehearsed`. There are no others if the
        points are no table with several numbers.
        """
        usual = self.space(points)
        if not isinstance(usual, Evened) or len(numeric_columns(points)) < 2:
            return {0.0: self}
        found = {usual.spread if isinstance(usual, Interactions) else 0.0: self}
        alone = Evened(thresholds=usual.thresholds, together=usual.together, floor=usual.floor)
        for spread in _SPREADS:
            other: Evened = alone
            if spread:
                size = (alone.thresholds, alone.together, alone.floor)
                other = Interactions(*size, features=_INTERACTIONS, spread=spread)
            named = replace(self, representation=other.name, representation_parameters=other.parameters())
            found.setdefault(spread, named)
        return found

    def shrinks(self, loss: Loss) -> bool:
        """Return whether parameters are those expected given all releases, see `StepsPlan.expected`."""
        return loss.quadratic and self.ridge is None and self.step_size is None

    def usual_space(self, shape: tuple[int, ...]) -> Representation:
        return Wavelets(components=200, floor=0.01) if len(shape) > 1 else Evened()


def steps_space(shape: tuple[int, ...]) -> Representation:
    """Return the default representation for gradient steps on records of this shape.

    This representation has more coordinates than needed for votes; directions with a small spread, where noise
    dominates, stay small.
    """
    return Wavelets(components=200, floor=0.01) if len(shape) > 1 else Thresholds()


@dataclass(frozen=True)
class StepsPlan(Stored):
    """Round of full-batch steps. All of it is public.

    Attributes:
        sigma: Noise multiplier, the same for all steps.
        steps: Number of steps.
        clip_norm: Clipping norm of a holder's gradient if points have norm 1.
        step_size: Factor of each step; 1 is a Newton step.
        ridge: Smallest addition to the curvature of public points.
        largest_ridge: Initial addition (see `descent.Descent` if it is too small).
        largest_cap: μ² of the most lenient level, see `level_weights`.
        people: Sum of all holders' weights, from public head counts.
        strength: See `strength_of`.
        signal: Information from all people about one number, in standard deviations of its noise over the whole round,
            divided by the square root of the count of numbers.
        until: Largest share of the cap that this round, without earlier rounds, can use, by level.
        notes: Notes for plan and card.
        warnings: Expected problems.
        per_direction: Whether a restart with two classes shrinks each direction separately; older plans have one
            ridge for all.
        expected: Whether the parameters after each step are those expected given all releases so far, for numbers;
            older plans, and plans whose ridge or step size was chosen, take Newton's steps with a ridge.
        corrects: Whether releases correct the curvature of the points, which are drawn from counts; false for older
            plans.
        noise_factor: Ratio of the noise in a total across sites to that of a single study, on which charges are based;
            1 in older plans, too.
    """

    sigma: float
    steps: int
    clip_norm: float
    step_size: float
    ridge: float
    largest_ridge: float
    largest_cap: float
    people: float
    strength: float
    signal: float
    until: dict[str, float]
    notes: tuple[Sentence, ...] = ()
    warnings: tuple[Sentence, ...] = ()
    per_direction: bool = False
    expected: bool = False
    corrects: bool = False
    noise_factor: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Return JSON that `from_json` can read.

        It is unchanged for older plans, so that their questions keep their digests.
        """
        document = super().to_json()
        return {name: value for name, value in document.items() if name not in _ADDED or value != _ADDED[name]}

    @property
    def total_sigma(self) -> float:
        """Noise multiplier of the released sums; charges are based on `sigma`."""
        return self.sigma * self.noise_factor

    @property
    def noise(self) -> float:
        """Standard deviation of the noise in each number of a step.

        Its unit is that of the mean gradient per person, if points have norm 1.
        """
        return self.total_sigma * self.clip_norm / self.people

    def level_weights(self, caps: ArrayLike) -> NDArray[np.float64]:
        """Return the factor for clipped gradients of holders with these caps (whole caps in μ²): √(cap / largest cap).

        With this factor, other people's larger caps never make an account run out before the last step.
        """
        return np.clip(np.sqrt(np.asarray(caps, np.float64) / self.largest_cap), _SMALLEST_WEIGHT, 1.0)


def plan_steps(
    levels: Sequence[PlannedLevel],
    *,
    dimensions: int,
    n_classes: int,
    share: float,
    steps: Steps | None = None,
    loss: Loss = CROSS_ENTROPY,
    drawn: bool = False,
    noise_factor: float = 1.0,
) -> StepsPlan:
    """Return the proposed round.

    Args:
        levels: At least one level, with caps and noisy or public head counts.
        dimensions: Number of coordinates d of a point, without the intercept.
        n_classes: Number of scores of a record, one for each class.
        share: Share of every cap that this round may use, not counting earlier rounds.
        steps: Manual choices; the rules set everything else.
        loss: Loss of a record, which has a usual clipping norm.
        drawn: Whether the points are drawn from counts.
        noise_factor: See `StepsPlan`.

    Raises:
        ValueError: A share is out of range, or promises are too strict for any noise.

    >>> plan_steps([PlannedLevel("ALL", 0.0625, 1000.0)], dimensions=10, n_classes=2, share=1.0).until
    {'ALL': 1.0}
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share!r}; it must be above 0 and at most 1.")
    chosen = steps or Steps()
    largest, count = max(level.cap for level in levels), chosen.steps or STEPS
    sigma = _sigma(count, share * largest, chosen)
    if sigma > LARGEST_SIGMA:
        raise ValueError(
            f"These promises need a noise multiplier of {sigma:.0f}, but at most {LARGEST_SIGMA:.0f} can be drawn: "
            "plan fewer steps or a larger share."
        )
    clip_norm = chosen.clip_norm or loss.clip_norm
    people = _people(levels)
    strength = strength_of(levels, share=share, steps=chosen, noise_factor=noise_factor)
    signal = strength / math.sqrt((dimensions + 1) * n_classes)
    least, most = _ridges(strength, n_classes, loss) if chosen.ridge is None else (chosen.ridge, chosen.ridge)
    noise = sigma * noise_factor * clip_norm / people
    return StepsPlan(
        sigma,
        count,
        clip_norm,
        chosen.step_size or STEP_SIZE,
        least * noise,
        most * noise,
        largest,
        people,
        strength,
        signal,
        {level.name: min(share, count / (sigma**2 * largest) * _ROUNDING**3) for level in levels},
        _notes(count, sigma * noise_factor, people),
        _warnings(count, math.floor(share * largest * sigma**2 * _ROUNDING)),
        per_direction=True,
        expected=chosen.shrinks(loss),
        corrects=drawn,
        noise_factor=noise_factor,
    )


def strength_of(levels: Sequence[PlannedLevel], *, share: float, steps: Steps, noise_factor: float = 1.0) -> float:
    """Return the number of people times the μ of the largest cap's share, divided by the noise factor.

    The rules for a round depend on it.
    """
    largest, count = max(level.cap for level in levels), steps.steps or STEPS
    spending = math.sqrt(min(count / _sigma(count, share * largest, steps) ** 2, share * largest))
    return float(_people(levels) * spending / noise_factor)


def balance_notes(chosen: StepChoices) -> tuple[Sentence, ...]:
    """Return a plan's note about balanced answers; empty if answers are not balanced."""
    text = gettext_noop(
        "Answers are balanced: the model finds rare classes more often, but fewer of its answers are right in total. "
        "A forecast shows how often the most likely class is right, before balancing."
    )
    return (Sentence(text),) if chosen.balance else ()


def few_people_notes(plan: StepsPlan) -> tuple[Sentence, ...]:
    """Return the warning about too few people if there is no forecast; see `learning.forecasts.few_people`."""
    if plan.signal >= _FEW:
        return ()
    text = gettext_noop(
        "There are too few people for a model of this size with these promises: over all steps, the signal is only "
        "%(signal).1f times as large as the noise, but models need a signal about %(few)d times as large. Choose a "
        "representation with fewer coordinates, invite more people, or use a larger share."
    )
    return (Sentence(text, signal=plan.signal, few=round(_FEW)),)


def _ridges(strength: float, n_classes: int, loss: Loss) -> tuple[float, float]:
    """Return the smallest and the largest ridge in units of a step's noise.

    With few people, the smallest ridge is larger, because more directions contain only noise. For classes, the releases
    determine a ridge between the two; see `descent.Descent`.
    """
    least = max(RIDGE * math.sqrt(n_classes), 0.0 if strength > _STRONG else LEAST_RIDGE)
    return least, max(least, LARGEST_RIDGE) if loss.centred else least


def _sigma(count: int, most: float, steps: Steps) -> float:
    return steps.sigma or math.sqrt(count / most) * _ROUNDING


def _people(levels: Sequence[PlannedLevel]) -> float:
    largest = max(level.cap for level in levels)
    return max(1.0, sum(max(level.holders, 0.0) * math.sqrt(level.cap / largest) for level in levels))


def _notes(count: int, sigma: float, people: float) -> tuple[Sentence, ...]:
    return (
        Sentence(
            gettext_noop(
                "%(steps)d steps over all holders. A step releases many numbers, each with noise of ±%(noise)d times "
                "one person's largest contribution. All people together change a number by at most %(people)d times "
                "this contribution."
            ),
            steps=count,
            noise=round(sigma),
            people=round(people),
        ),
    )


def _warnings(count: int, lasting: int) -> tuple[Sentence, ...]:
    if lasting >= count:
        return ()
    text = gettext_noop(
        "With this noise, the budget of people with the largest possible contributions lasts for %(lasting)d of "
        "%(steps)d steps. The people whom the model fits worst will run out of budget before the end. Add noise or "
        "take fewer steps."
    )
    return (Sentence(text, lasting=lasting, steps=count),)
