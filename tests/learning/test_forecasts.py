"""The one form of forecasts: intervals that widen where little is known, and one rule for too few people."""

import json

import numpy as np
import pytest

from common.sentences import Sentence
from learning.forecasts import LABELS, MODEL, Forecast, few_people, headline, judged_forecast, thirds

RESTS = Sentence("%(points)d of 100 points", points=30)


def made(right: float, noiseless: float, of: str = MODEL, judged: int = 300) -> Forecast:
    return judged_forecast(of, right, noiseless, judged=judged, standing=2 * judged, rests_on=RESTS)


def test_few_points_make_a_wide_interval_and_many_a_narrow_one() -> None:
    few, many = made(0.735, 0.75, judged=34), made(0.735, 0.75, judged=1000)
    assert few.low < 0.56 and few.high > 0.88
    assert 0.03 < many.high - 0.735 < 0.05
    sure = made(1.0, 1.0, judged=34)
    assert sure.high == 1.0 and sure.low < 0.9, "34 right ones out of 34 are no certainty"


def test_the_interval_holds_what_is_measured() -> None:
    """A share from some points, and one that others measure: 95 times in 100 the second is in the first's interval."""
    rng = np.random.default_rng(0)
    inside = []
    for true in (0.6, 0.9):
        judged, measured = rng.binomial(40, true, 2000) / 40, rng.binomial(1000, true, 2000) / 1000
        for right, came in zip(judged, measured, strict=True):
            result = made(float(right), 1.0, judged=40)
            inside.append(result.low <= came <= result.high)
    assert np.mean(inside) >= 0.95


def test_chance_moves_a_share_of_few_answers_too() -> None:
    """Six hundred points judge, and accounts afford 40 labels."""
    rng = np.random.default_rng(0)
    judged, came = rng.binomial(600, 0.85, 2000) / 600, rng.binomial(40, 0.85, 2000) / 40
    inside = {}
    for measured in (40, None):
        entries = [
            judged_forecast(LABELS, right, 1.0, judged=600, standing=400, rests_on=RESTS, measured=measured)
            for right in judged.tolist()
        ]
        inside[measured] = np.mean([each.low <= share <= each.high for each, share in zip(entries, came, strict=True)])
    assert inside[40] >= 0.95 and inside[None] < 0.8


def test_people_are_too_few_where_noise_costs_a_fifth_of_what_could_be_learned() -> None:
    assert not few_people([made(0.71, 0.74)], 2)
    (warning,) = few_people([made(0.68, 0.74)], 2)
    assert "68 of 100" in warning and "without it about 74" in warning
    assert not few_people([made(0.50, 0.51)], 2), "what nothing can be learned of needs no more people"
    bound = Forecast(MODEL, None, 0.1, 0.5, 0.95, 0, RESTS)
    assert few_people([bound], 10) and not few_people([], 10) and not few_people([bound], 1)


def test_the_models_forecast_decides_where_there_is_one() -> None:
    labels, model = made(0.4, 0.9, of=LABELS), made(0.88, 0.9)
    assert headline([labels, model]) == model and headline([labels]) == labels and headline([]) is None
    assert not few_people([labels, model], 10) and few_people([labels], 10)


def test_a_forecast_survives_json() -> None:
    again = Forecast.from_json(json.loads(json.dumps(made(0.7, 0.8).to_json())))
    assert again == made(0.7, 0.8) and again.rests_on.template == RESTS.template


@pytest.mark.parametrize(("points", "ways"), [(9, 3), (600, 3), (601, 1), (3000, 1)])
def test_every_point_judges_where_there_are_few(points: int, ways: int) -> None:
    divided = thirds(points)
    assert len(divided) == ways
    for standing, judged in divided:
        assert sorted([*standing, *judged]) == list(range(points))
    if ways == 3:
        assert sorted(np.concatenate([judged for _, judged in divided])) == list(range(points))
