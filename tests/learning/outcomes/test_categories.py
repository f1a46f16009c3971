"""Categories of outcomes: what votes and students say, there and back, in nodes as well; against sampled numbers."""

import numpy as np
import onnxruntime
import pytest

from learning.exports.graph import DOUBLE, Graph
from learning.outcomes import Classes, Labels, Numbers, Outcome, Times
from learning.outcomes.base import MOST_CATEGORIES

NUMBERS = Numbers(-5, 20, "kg")
TIMES = Times((10, 30, 60, 100), "days")
LABELS = Labels(("ill", "old", "tall"))
OUTCOMES: list[Outcome] = [Classes(("a", "b", "c")), NUMBERS, TIMES, LABELS]
ids = [each.kind for each in OUTCOMES]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=ids)
def test_shares_say_what_predictions_said(outcome: Outcome) -> None:
    """Of numbers the interval widens with the bins, and the mean is kept where the distribution is within the range."""
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 1, (50, outcome.outputs))
    if isinstance(outcome, Numbers):
        scores = np.stack([rng.uniform(-0.4, 0.4, 50), rng.uniform(0.0, 0.1, 50)], axis=1)
    predictions = outcome.predictions(scores)
    shares = outcome.shares(predictions)
    assert shares.shape == (50, len(outcome.categories))
    assert shares.min() >= -1e-12
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    back = outcome.from_shares(shares)
    if not isinstance(outcome, Numbers):
        np.testing.assert_allclose(back, predictions, atol=1e-9)
        return
    inside = (predictions[:, 1] > -3) & (predictions[:, 2] < 18)
    assert inside.sum() > 10
    np.testing.assert_allclose(back[inside, 0], predictions[inside, 0], atol=0.15)
    assert (back[:, 1] <= back[:, 0]).all() and (back[:, 0] <= back[:, 2]).all()
    assert (np.abs(back - predictions)[inside, 1:] < 2 * 25 / 16).all()


def test_shares_of_a_number_are_those_of_many_drawn_from_its_distribution() -> None:
    """An independent calculation: numbers of a Laplace distribution, each counted for the two bins beside it."""
    value, scale = 7.3, 1.9
    drawn = value + np.random.default_rng(5).laplace(0, scale, 400_000)
    place = ((drawn + 5) / 25 * 16 - 0.5).clip(0, 15)
    low = np.minimum(place.astype(int), 14)
    counted = np.bincount(low, 1 - (place - low), 16) + np.bincount(low + 1, place - low, 16)
    (shares,) = NUMBERS.shares(np.array([[value, value - 3 * scale, value + 3 * scale]]))
    np.testing.assert_allclose(shares, counted / len(drawn), atol=0.003)


def test_an_interval_holds_95_per_cent_of_what_shares_say() -> None:
    shares = np.random.default_rng(6).dirichlet(np.ones(16), 20)
    values = NUMBERS.from_shares(shares)
    edges = np.linspace(-5, 20, 17)
    for row, (value, low, high) in zip(shares, values, strict=True):
        below = [np.interp(end, edges, np.append(0, np.cumsum(row))) for end in (low, high)]
        assert below == pytest.approx([0.025, 0.975], abs=1e-6)
        assert value == pytest.approx(row @ (edges[1:] + edges[:-1]) / 2, abs=1e-6)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=ids)
def test_nodes_say_the_same(outcome: Outcome) -> None:
    shares = np.random.default_rng(7).dirichlet(np.full(len(outcome.categories), 0.3), 30)
    shares[0] = np.eye(len(outcome.categories))[0]
    graph = Graph()
    entering = graph.input("shares", DOUBLE, (len(outcome.categories),))
    values = graph.to_bytes({"values": (outcome.shares_to_graph(graph, entering), DOUBLE, (len(outcome.columns),))}, {})
    (found,) = onnxruntime.InferenceSession(values).run(None, {"shares": shares})
    np.testing.assert_allclose(found, outcome.from_shares(shares), atol=1e-9)


def test_a_code_is_of_the_category_that_holds_it() -> None:
    codes = NUMBERS.coded([np.array([-5.0, -3.5, -3.4, 7.5, 20.0, 90.0])])
    assert NUMBERS.categories_of(codes).tolist() == [0, 0, 1, 8, 15, 15]
    times = TIMES.coded([np.array([0.0, 10.0, 11.0, 100.0, 100.0, 300.0, 50.0]), np.array([1.0, 1, 1, 1, 0, 0, 0])])
    assert TIMES.categories_of(times).tolist() == [0, 0, 1, 3, 4, 4, -1]
    assert LABELS.categories_of(np.array([0, 5, 7])).tolist() == [0, 5, 7]
    assert LABELS.categories[5] == "ill, tall"
    for outcome in (NUMBERS, TIMES, LABELS):
        assert (outcome.categories_of(np.array([-1, 2**40, -(2**62)])) == -1).all()
    assert [len(Labels(tuple(names)).categories) for names in ("abcdefg", "abcdefgh")] == [MOST_CATEGORIES, 0]
