"""Suggestions can be taken, and say why they were made."""

import pytest

from learning.mechanisms.suggestions import FEW_POINTS, suggested_method
from learning.students import STUDENTS, suggested_student
from training.methods import METHODS


@pytest.mark.parametrize("kind", ["image", "table"])
@pytest.mark.parametrize("points", [0, 1, FEW_POINTS - 1, FEW_POINTS, 10**6])
def test_a_suggestion_can_be_taken(kind: str, points: int) -> None:
    suggested = suggested_method(kind, points)
    assert suggested.method in METHODS and suggested.student in STUDENTS
    assert suggested.student == suggested_student(kind).name
    assert suggested.because.startswith("Of ") and suggested.because.endswith(".")


def test_few_public_images_add_a_note_alone() -> None:
    few, enough, none_yet = (suggested_method("image", points) for points in (FEW_POINTS - 1, FEW_POINTS, 0))
    assert "add more" in few.because and "add more" not in enough.because + none_yet.because
    assert {each.method for each in (few, enough, none_yet)} == {"neighbours"}
