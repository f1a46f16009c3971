"""Published costs of the papers' vote counts, and those of an independent program."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from accounting.privacy import epsilon_from_rdp, gnmax_rdp, lnmax_rdp, threshold_rdp
from accounting.privacy.checks import Method

ORDERS = np.concatenate([np.arange(1.5, 11.0, 0.5), np.arange(11.0, 65.0)])


def published(name: str) -> np.ndarray:
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("IPATE_DATA_DIR", default)) / "pate_votes" / f"{name}.npy"
    if not path.exists():
        pytest.skip(f"needs the published vote counts: {path} is missing, set IPATE_DATA_DIR")
    return np.load(path, allow_pickle=False)


def confident_cost(method: Method, sensitivity: float) -> np.ndarray:
    votes = published("mnist_250_teachers")[:640].astype(float)
    answered = norm.sf((200 - votes.max(axis=1)) / 150)
    check = threshold_rdp(votes, 200, 150, sensitivity=sensitivity, orders=ORDERS, method=method)
    label = gnmax_rdp(votes, 40, sensitivity=sensitivity, orders=ORDERS, method=method)
    return (check + answered[:, None] * label).sum(axis=0)


def test_expected_number_of_answers_is_the_published_one() -> None:
    votes = published("mnist_250_teachers")[:640]
    assert norm.sf((200 - votes.max(axis=1)) / 150).sum() == pytest.approx(282.72, abs=0.005)


@pytest.mark.parametrize(
    ("method", "conversion", "sensitivity", "epsilon", "order"),
    [
        ("data_independent", "classic", 1.0, 3.157, 9),
        ("data_dependent", "classic", 1.0, 1.9988, 14),
        ("data_dependent", "improved", 1.0, 1.7123, 13),
        ("exact", "classic", 1.0, 1.1733, 19),
        ("exact", "improved", 1.0, 0.9462, 17),
        ("data_dependent", "classic", 1.7, 3.4674, 8.5),
        ("exact", "improved", 1.7, 1.7056, 10.5),
    ],
)
def test_confident_gnmax_on_mnist(method, conversion, sensitivity, epsilon, order) -> None:
    got, best = epsilon_from_rdp(confident_cost(method, sensitivity), 1e-5, ORDERS, conversion)
    digits = 3 if method == "data_independent" else 4
    assert round(float(got), digits) == epsilon
    assert best == order


@pytest.mark.parametrize(("gamma", "epsilon"), [(0.1, 2.0486), (0.05, 1.9587)])
def test_lnmax_on_the_queries_of_the_mnist_student(gamma: float, epsilon: float) -> None:
    votes = published("mnist_250_teachers")[published("mnist_250_teachers_100_indices_used_by_student")]
    orders = np.arange(2.0, 10.0)  # the moments 1 to 8
    cost = lnmax_rdp(votes, gamma, orders=orders, method="data_dependent").sum(axis=0)
    with pytest.warns(UserWarning, match="order lies at an end"):
        got, _ = epsilon_from_rdp(cost, 1e-5, orders, "classic")
    assert round(float(got), 4) == epsilon
