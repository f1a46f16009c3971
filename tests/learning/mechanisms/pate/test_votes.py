"""Vote counts: who may move them, and by how much."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.mechanisms.pate import NO_VOTE, count_votes, group_votes

repeatable = settings(derandomize=True, deadline=None, max_examples=60)
seeds = st.integers(0, 2**32 - 1)


@repeatable
@given(seed=seeds)
def test_counts_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    teachers, queries, classes = rng.integers(1, 8, 3)
    predictions = rng.integers(NO_VOTE, classes, (teachers, queries))
    weights = rng.random(teachers) * 3
    expected = np.zeros((queries, classes))
    for teacher in range(teachers):
        for query in range(queries):
            if predictions[teacher, query] != NO_VOTE:
                expected[query, predictions[teacher, query]] += weights[teacher]
    np.testing.assert_allclose(count_votes(predictions, classes, weights), expected)


@repeatable
@given(seed=seeds)
def test_one_teacher_moves_the_counts_by_exactly_its_weight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.repeat([0.5, 1.0, 1.75], [6, 3, 4])
    predictions = rng.integers(0, 5, (13, 20))
    teacher = rng.integers(13)
    changed = predictions.copy()
    changed[teacher] = (changed[teacher] + rng.integers(1, 5, 20)) % 5
    moved = count_votes(changed, 5, weights) - count_votes(predictions, 5, weights)
    np.testing.assert_allclose(moved.max(axis=1), weights[teacher])
    np.testing.assert_allclose(moved.min(axis=1), -weights[teacher])
    assert ((np.abs(moved) > 1e-9).sum(axis=1) == 2).all()


def test_the_groups_own_counts_are_unweighted_and_add_up() -> None:
    predictions = np.random.default_rng(1).integers(NO_VOTE, 3, (9, 50))
    members = np.arange(9) < 4
    both = group_votes(predictions, 3, members) + group_votes(predictions, 3, ~members)
    np.testing.assert_array_equal(both, count_votes(predictions, 3))


def test_no_teachers_and_no_queries_count_nothing() -> None:
    np.testing.assert_array_equal(count_votes(np.zeros((0, 4), int), 3), np.zeros((4, 3)))
    assert count_votes(np.zeros((4, 0), int), 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.5]], 2), "integers"),
        (([0, 1], 2), "shape"),
        (([[0, 2]], 2), "classes"),
        (([[-2]], 2), "classes"),
        (([[0]], 0), "at least 1"),
        (([[0]], 2, [1.0, 1.0]), "weights"),
        (([[0]], 2, [-1.0]), "weights"),
        (([[0]], 2, [np.nan]), "weights"),
    ],
)
def test_bad_predictions_and_weights_are_refused(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        count_votes(*arguments)


def test_a_mask_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="members"):
        group_votes([[0], [1]], 2, [0, 1])
