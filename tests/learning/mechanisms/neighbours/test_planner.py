"""Rounds that are planned are rounds that can be held; everything follows from public points and releases."""

import numpy as np
import pytest

from learning.mechanisms.neighbours.rounds import first_queries, next_round, plan_rounds
from learning.mechanisms.protocol import PlannedLevel
from tests.learning.mechanisms.neighbours.test_forecast import CAP, blobs


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_planner_asks_each_point_once(rounds) -> None:
    public, _ = blobs(0, 100)
    for wanted in (None, 70):
        plan = plan_rounds(
            public, [PlannedLevel("ALL", CAP, 3000)], share=0.8, n_classes=4, rounds=rounds, wanted=wanted
        )
        positions = np.concatenate([one.queries for one in plan.rounds])
        assert len(set(positions.tolist())) == len(positions) == (wanted or 100)
        assert [one.residual for one in plan.rounds] == [False, True][:rounds]
        assert [one.share for one in plan.rounds] == pytest.approx([[0.8], [0.4, 0.8]][rounds - 1])
        for one in plan.rounds:
            assert one.forecast.levels[0].spent <= one.share
            assert one.forecast.sigma == one.sigma and one.forecast.queries == len(one.queries)
    first = plan_rounds(public, [PlannedLevel("ALL", CAP, 3000)], share=1.0, n_classes=4, rounds=2, first=33).rounds[0]
    assert len(first.queries) == 33


def test_settings_chosen_by_hand_are_planned_and_forecast() -> None:
    public, _ = blobs(0, 200)
    levels = [PlannedLevel("ALL", CAP, 3000)]
    for rounds in (1, 2, None):
        chosen = plan_rounds(public, levels, share=1.0, n_classes=4, rounds=rounds, sigma=33.0, radius_share=0.07)
        for one in chosen.rounds:
            assert (one.sigma, one.radius_share) == (one.forecast.sigma, one.forecast.radius_share) == (33.0, 0.07)
    proposed, radius_alone = (
        plan_rounds(public, levels, share=1.0, n_classes=4, rounds=1, radius_share=radius).rounds[0]
        for radius in (None, 0.07)
    )
    assert radius_alone.sigma == proposed.sigma
    assert radius_alone.forecast.voters != proposed.forecast.voters


def test_doubtful_points_are_asked_first_and_numbers_out_of_range_are_named() -> None:
    public, _ = blobs(0, 120)
    levels = [PlannedLevel("ALL", CAP, 3000)]
    first = plan_rounds(public, levels, share=1.0, n_classes=4, rounds=2).rounds[0]
    counts = np.tile([90, 10, 0, 0], (len(first.queries), 1))
    lead = np.random.default_rng(2).uniform(0.3, 0.7, 120)
    student = np.stack([lead, 1 - lead, 0 * lead, 0 * lead], axis=1)
    second, _ = next_round(first.held, public, counts, public, student, levels, share=1.0, n_classes=4)
    assert (np.diff(np.abs(lead[second.queries] - 0.5)) >= 0).all()
    with pytest.raises(ValueError, match="121 labels"):
        plan_rounds(public, levels, share=1.0, n_classes=4, wanted=121)
    with pytest.raises(ValueError, match="rounds"):
        plan_rounds(public, levels, share=1.0, n_classes=4, rounds=3)
    assert first_queries(30, 4) == 15
