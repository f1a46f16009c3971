"""Charges against the largest squared norm over all small votes."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from accounting.privacy import check_charge, label_charge, lnmax_charge, pure_dp_mu, residual_vote_charge

CLASSES = 3
NO_VOTE = -1


def histogram(votes: tuple[int, ...], weight: float) -> np.ndarray:
    counts = np.zeros(CLASSES)
    for vote in votes:
        if vote != NO_VOTE:
            counts[vote] += weight
    return counts


def neighbouring_counts(weight: float, teachers: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All votes of two other teachers, and of the holder's with and without them."""
    answers = range(NO_VOTE, CLASSES)
    for others in product(answers, repeat=2):
        for mine, without in product(product(answers, repeat=teachers), repeat=2):
            yield histogram(others + mine, weight), histogram(others + without, weight)


@pytest.mark.parametrize(("weight", "teachers"), [(1.0, 1), (2.5, 1), (0.75, 2)])
def test_label_and_check_are_the_largest_movements(weight: float, teachers: int) -> None:
    pairs = list(neighbouring_counts(weight, teachers))
    moved = max(((a - b) ** 2).sum() for a, b in pairs)
    assert label_charge(weight, 3.0, teachers) == pytest.approx(moved / 9)
    maximum = max((a.max() - b.max()) ** 2 for a, b in pairs)
    assert check_charge(weight, 3.0, teachers) == pytest.approx(maximum / 9)
    in_sum = max(np.abs(a - b).sum() for a, b in pairs)
    assert lnmax_charge(weight, 0.1, teachers) == pytest.approx(float(pure_dp_mu(0.1 * in_sum)) ** 2)


@pytest.mark.parametrize("belief", [(1.0, 0.0, 0.0), (0.2, 0.5, 0.3), (0.0, 0.0, 0.0)])
def test_the_check_against_a_student_costs_no_more(belief: tuple[float, ...]) -> None:
    agreement = [
        [(counts - counts.sum() * np.array(belief)).max() for counts in pair] for pair in neighbouring_counts(1.0, 1)
    ]
    assert max((a - b) ** 2 for a, b in agreement) <= check_charge(1.0, 1.0) + 1e-12


@pytest.mark.parametrize("disagreements", [0, 1, 2])
def test_residual_votes_differ_by_no_more_than_was_charged(disagreements: int) -> None:
    """One transcript, all answers of a teacher with and without the holder, silent after so many disagreements."""
    steps, predicted = 4, 0

    def contributions(answers: tuple[int, ...]) -> np.ndarray:
        left, given = disagreements, np.zeros((steps, CLASSES))
        for step, answer in enumerate(answers):
            if answer != predicted and left:
                given[step, answer] += 1
                given[step, predicted] -= 1
                left -= 1
        return given

    every = np.array([contributions(answers) for answers in product(range(CLASSES), repeat=steps)])
    largest = ((every[:, None] - every[None, :]) ** 2).sum(axis=(2, 3)).max()
    assert residual_vote_charge(1.0, 1.0, disagreements) == largest
    assert residual_vote_charge(1.5, 2.0, disagreements, teachers=3) == pytest.approx(largest * (3 * 1.5 / 2) ** 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: label_charge(-1.0, 1.0), "sensitivity"),
        (lambda: label_charge(1.0, 0.0), "sigma"),
        (lambda: check_charge(1.0, np.nan), "sigma"),
        (lambda: check_charge(1.0, 1.0, teachers=0), "whole number"),
        (lambda: lnmax_charge(1.0, -0.1), "gamma"),
        (lambda: residual_vote_charge(1.0, 1.0, -1), "disagreements"),
        (lambda: residual_vote_charge(1.0, 1.0, 1.5), "disagreements"),
    ],
)
def test_bad_input_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
