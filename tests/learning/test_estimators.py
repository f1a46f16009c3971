"""Estimators with an ε for each row: the accounts by independent calculations, and the examples of their page."""

import doctest
import subprocess
import sys
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
    from learning.estimators import IndividualDPClassifier, IndividualDPCounts

    given = {"delta": DELTA, "head_counts": {0.3: 150, 1.0: 130, 2.5: 120}, "seed": 2} | more
    if method == "counts":
        return IndividualDPCounts(data["epsilons"], cells=[0, 1], **given).fit(data["y"])
    estimator = IndividualDPClassifier(data["epsilons"], public=data["public"], method=method, **given)
    return estimator.fit(data["x"], data["y"])


@pytest.mark.parametrize("method", ["steps", "neighbours", "counts"])
@pytest.mark.parametrize("counted", [False, True])
def test_no_row_spends_more_than_its_epsilon(data: dict[str, Any], method: str, counted: bool) -> None:
    """δ of what was spent, at the promised ε, by the formula of Dong, Roth and Su (2022), is at most the promised δ."""
    found = fitted(data, method, **({"head_counts": None} if counted else {}))
    assert (found.spent_ > 0).mean() > 0.5
    for spent, epsilon in zip(found.spent_, data["epsilons"], strict=True):
        mu = max(np.sqrt(spent), 1e-9)
        delta = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert delta <= DELTA * (1 + 1e-9)


def test_votes_are_charged_one_by_one(data: dict[str, Any]) -> None:
    """Distances and charges in a plain loop."""
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


def test_they_are_estimators(data: dict[str, Any]) -> None:
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    found = fitted(data, "steps")
    assert clone(found).get_params()["delta"] == DELTA and found.classes_.tolist() == [0, 1]
    scores = cross_val_score(found, data["x"], data["y"], cv=2, params={"epsilons": data["epsilons"]})
    assert len(scores) == 2
    for wrong, words in (
        ({"public": None}, "public points"),
        ({"method": "x"}, "choose one of"),
        ({"classes": [0]}, "y"),
    ):
        with pytest.raises(ValueError, match=words):
            clone(found).set_params(**wrong).fit(data["x"], data["y"])
    with pytest.raises(ValueError, match="one for each of the 400 rows"):
        found.fit(data["x"], data["y"], epsilons=[1.0, 2.0])


def test_the_examples_of_the_page() -> None:
    page = settings.BASE_DIR / "docs" / "estimators.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_they_need_no_django() -> None:
    code = "import sys, learning.estimators; assert 'django' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=settings.BASE_DIR)
