"""Published accuracies: rounded to a step that the number of points alone decides."""

from fractions import Fraction

import pytest

from training.accuracy import published_accuracy


@pytest.mark.parametrize(
    ("points", "step"),
    [(1, "0.01"), (399, "0.01"), (400, "0.005"), (1999, "0.005"), (2000, "0.001"), (100_000, "0.001")],
)
def test_the_step_depends_on_the_number_of_points_alone(points: int, step: str) -> None:
    for right in {0, 1, points // 3, points // 2, points - 1, points}:
        shown = published_accuracy(right, points)
        assert shown is not None
        exact = Fraction(repr(shown))
        assert (exact / Fraction(step)).denominator == 1, "a multiple of the step, without a tail of digits"
        assert abs(exact - Fraction(right, points)) <= Fraction(step) / 2


def test_nothing_is_said_of_no_points() -> None:
    assert published_accuracy(0, 0) is None
