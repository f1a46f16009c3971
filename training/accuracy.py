"""Accuracies as they are published: rounded, so that they say no more than they can."""

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
    if points == 0:
        return None
    steps = next((steps for enough, steps in STEPS if points >= enough), FEWEST_STEPS)
    return round(right * steps / points) / steps
