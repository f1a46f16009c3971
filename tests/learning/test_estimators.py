"""Estimators with an ε for each row: accounts, compared with independent calculations, and their page's examples."""

import doctest
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from scipy.stats import norm

DELTA, ROWS = 1e-5, 400


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    x = rng.random((ROWS, 2)).astype(np.float32)
    epsilons = rng.choice([0.3, 1.0, 2.5], ROWS)
    return {"x": x, "y": (x[:, 0] > 0.5).astype(int), "epsilons": epsilons, "public": rng.random((80, 2))}


def fitted(data: dict[str, Any], method: str, **more: Any) -> Any:
    from learning.estimators import IndividualDPClassifier, IndividualDPCounts, IndividualDPSynthesis

    given = {"delta": DELTA, "head_counts": {0.3: 150, 1.0: 130, 2.5: 120}, "seed": 2} | more
    if method == "counts":
        return IndividualDPCounts(data["epsilons"], cells=[0, 1], **given).fit(data["y"])
    if method == "synthesis":
        columns, rows = {"a": (0, 1), "b": (0, 1)}, dict(zip("ab", data["x"].T, strict=True))
        drawn = IndividualDPSynthesis(data["epsilons"], columns=columns, classes=["0", "1"], bins=4, **given)
        return drawn.fit(rows, data["y"].astype(str))
    estimator = IndividualDPClassifier(data["epsilons"], public=data["public"], method=method, **given)
    return estimator.fit(data["x"], data["y"])


@pytest.mark.parametrize("method", ["steps", "neighbours", "pate", "counts", "synthesis"])
@pytest.mark.parametrize("counted", [False, True])
def test_no_row_spends_more_than_its_epsilon(data: dict[str, Any], method: str, counted: bool) -> None:
    """By the formula of Dong, Roth and Su (2022), δ of the spent amount at the promised ε is at most the promised δ."""
    found = fitted(data, method, **({"head_counts": None} if counted else {}))
    assert (found.spent_ > 0).mean() > 0.5
    for spent, epsilon in zip(found.spent_, data["epsilons"], strict=True):
        mu = max(np.sqrt(spent), 1e-9)
        delta = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert delta <= DELTA * (1 + 1e-9)


def test_votes_are_charged_one_by_one(data: dict[str, Any]) -> None:
    """Distances and charges are computed in a plain loop."""
    from learning.representations import default_representation

    found = fitted(data, "neighbours")
    space = default_representation((2,)).fit(np.asarray(data["public"], np.float32))
    points, rows = (space.transform(np.asarray(x, np.float32)).astype(int) for x in (data["public"], data["x"]))
    near = max(1, int(np.ceil(found.plan_.radius_share * len(points) - 1e-9)))
    cost, spent = 1 / found.plan_.sigma**2, np.zeros(ROWS)
    for query in points[found.plan_.queries]:
        reach = np.sort(((points - query) ** 2).sum(axis=1))[near - 1]
        for row in np.flatnonzero(((rows - query) ** 2).sum(axis=1) <= reach):
            if spent[row] + cost <= found.caps_[row]:
                spent[row] += cost
    assert found.spent_ == pytest.approx(spent, rel=1e-9)


def test_members_of_teachers_are_charged_by_the_weight_of_their_vote(data: dict[str, Any]) -> None:
    """Each query costs 2 w² / σ² (a vote moves from one count to another), until a cap is used up."""
    found = fitted(data, "pate", teachers=8)
    plan, labels = found.plan_, len(data["public"])
    weights = {float(group.name): group.weight for group in plan.groups}
    for spent, epsilon in zip(found.spent_, data["epsilons"], strict=True):
        cost = 2 * (weights[epsilon] / plan.aggregator.sigma) ** 2
        assert spent / cost == pytest.approx(round(spent / cost)) and 20 <= round(spent / cost) <= labels
    assert (found.spent_ / found.caps_).max() == pytest.approx(1.0, rel=1e-6)
    refused = fitted(data, "pate", head_counts={64.0: 400})
    assert not refused.spent_.any(), "no account covers this level"


def test_synthetic_rows_are_within_the_columns(data: dict[str, Any]) -> None:
    found = fitted(data, "synthesis", rows=150, head_counts={0.3: 400})
    assert len(found.classes_of_rows_) == 150 and set(found.classes_of_rows_) <= {"0", "1"}
    assert all(((values >= 0) & (values <= 1)).all() for values in found.rows_.values())
    assert found.description_["rows"] == 150


def test_they_are_estimators(data: dict[str, Any]) -> None:
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    found = fitted(data, "steps")
    assert clone(found).get_params()["delta"] == DELTA and found.classes_.tolist() == [0, 1]
    scores = cross_val_score(found, data["x"], data["y"], cv=2, params={"epsilons": data["epsilons"]})
    assert len(scores) == 2
    for wrong, words in (({"public": None}, "public points"), ({"method": "x"}, "choose one"), ({"classes": [0]}, "y")):
        with pytest.raises(ValueError, match=words):
            clone(found).set_params(**wrong).fit(data["x"], data["y"])
    with pytest.raises(ValueError, match="one for each of the 400 rows"):
        found.fit(data["x"], data["y"], epsilons=[1.0, 2.0])


def test_the_examples_of_the_page() -> None:
    page = settings.BASE_DIR / "docs" / "estimators.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
