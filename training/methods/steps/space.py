"""The space of the first round of gradient steps: as chosen, or by the rule that looks at how loud people are."""

from learning.mechanisms.steps.choices import Steps
from training.methods.space import Space, points_of, space_first
from training.models import Dataset


def space_planned(public: Dataset, steps: Steps, strength: float) -> Space:
    """The space of the first round of people of this :func:`learning.mechanisms.steps.planner.strength_of`.

    Raises ValueError where the public points do not suit the representation.
    """
    return space_first(public, steps.placed(points_of(public).shape[1:], strength))
