"""Accuracies as they are published: rounded, so that they say no more than they can, with their intervals."""

from learning.measures import wilson

#: Points that a share must rest on, and how many steps there are between 0 and 1; fewer points: `FEWEST_STEPS`.
STEPS = ((2000, 1000), (400, 200))
FEWEST_STEPS = 100


def published_accuracy(right: int, points: int) -> float | None:
    """Share of right ones among `points`, as cards, pages and the API show it.

    It is rounded to the nearest multiple of 0.001 if it rests on at least 2,000 points, of 0.005 if on at least 400,
    and of 0.01 otherwise. The step depends on the number of points alone, never on the share.

    Args:
        right: how many of the points are right.
        points: how many points there are.

    Returns:
        The rounded share, between 0 and 1; None if there are no points.
    """
    return published_mean(right, points)


def published_mean(total: float, points: int) -> float | None:
    """A sum over `points`, divided by their number, and rounded like an accuracy."""
    if points == 0:
        return None
    steps = rounding_steps(points)
    return round(total * steps / points) / steps


def rounding_steps(points: int) -> int:
    """Number of steps between 0 and 1 of what rests on so many points."""
    return next((steps for enough, steps in STEPS if points >= enough), FEWEST_STEPS)


def accuracy_interval(share: float | None, points: int) -> tuple[float, float] | None:
    """95 % confidence interval of a published share of right ones (Wilson 1927), to three digits.

    It follows from the rounded share, so it says no more than that, and holds for every share that is rounded so.

    Args:
        share: see `published_accuracy`.
        points: how many points it rests on.

    Returns:
        Lower and upper end; None if there are no points.

    >>> accuracy_interval(0.9, 100)
    (0.826, 0.945)
    """
    if share is None or points == 0:
        return None
    steps = rounding_steps(points)
    rounding = 0.5 / steps if steps % points else 0.0
    (low, _), (_, high) = wilson(max(share - rounding, 0.0), points), wilson(min(share + rounding, 1.0), points)
    return round(low, 3), round(high, 3)
