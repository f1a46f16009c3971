"""The space of the first round of gradient steps: as chosen, or by the rule that looks at how loud people are."""

import numpy as np

from learning.mechanisms.steps.choices import Steps
from learning.mechanisms.steps.descent import kept_points
from learning.mechanisms.steps.question import StepsQuestion
from learning.mechanisms.synthesis.rows import rows_draw
from training.methods.counted import rounds_of_counts
from training.methods.space import Space, points_of, space_first
from training.methods.synthesis.rounds import marginals_of
from training.models import Dataset, Round, Run


def planned_space(public: Dataset, steps: Steps, strength: float) -> Space:
    """The space of the first round of people of this :func:`learning.mechanisms.steps.planner.strength_of`.

    Raises ValueError where the public points do not suit the representation.
    """
    return space_first(public, steps.placed(points_of(public, steps.encoder), strength))


def counted_space(run: Run, steps: Steps, strength: float) -> Space:
    """The same without public points, of rows drawn from what the rounds of counts have released."""
    return space_of(rows_of(run), steps, strength)


def points_follow(opened_round: Round, question: StepsQuestion) -> bool:
    """Whether the points of a round are what the counts of its run lead to, if there are any."""
    run = opened_round.run
    if not rounds_of_counts(run):
        return True
    try:
        points = question.fitted.transform(rows_of(run))
    except (OSError, KeyError, ValueError):
        return False
    return np.array_equal(kept_points(points), question.begin.points)


def rows_of(run: Run) -> np.ndarray:
    """Records (n, …) that take the place of public points: a function of what the rounds of counts have released."""
    return rows_draw(marginals_of(run, rounds_of_counts(run))).x


def space_of(points: np.ndarray, steps: Steps, strength: float) -> Space:
    """The same of other points (n, …). Raises ValueError where they do not suit the representation."""
    fitted = steps.placed(points, strength).space(points).fit(points)
    return Space(fitted, fitted.transform(points))
