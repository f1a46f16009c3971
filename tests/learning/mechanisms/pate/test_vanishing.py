"""Teachers that stay away: how often, and what their group owes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.mechanisms.pate import (
    GNMax,
    Group,
    QueryCosts,
    draw_participation,
    make_plan,
    participation_costs,
)

repeatable = settings(derandomize=True, deadline=None, max_examples=60)
GROUPS = [Group("HIGH", 1.0, 250), Group("AVERAGE", 2.0, 450), Group("LOW", 3.0, 300)]


def plan_of(variant: str = "vanishing"):
    return make_plan(GROUPS, variant=variant, teachers=100, aggregator=GNMax(sigma=10.0), delta=1e-6)


@st.composite
def batches(draw):
    """Costs of a batch for a participant, who took part, and which queries were answered."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    teachers, queries, orders = draw(st.integers(1, 6)), draw(st.integers(0, 12)), 3
    costs = QueryCosts(check=rng.random((queries, orders)), label=rng.random((queries, orders)))
    return costs, rng.random((teachers, queries)) < 0.5, rng.random(queries) < 0.6


def test_every_vote_has_the_planned_participants_drawn_again_for_each_vote() -> None:
    plan = plan_of()
    present = draw_participation(plan, 400, np.random.default_rng(0))
    assert (present.sum(axis=0) == plan.votes).all()
    for index, group in enumerate(plan.groups):
        own = present[plan.members(index)]
        assert (own.sum(axis=0) == group.participants).all()
        assert own.sum(axis=1).max() - own.sum(axis=1).min() <= 1
    own = present[plan.members(1)]
    assert len({column.tobytes() for column in own.T}) > 390
    together = own.astype(float) @ own.T / 400
    share = plan.groups[1].participants / plan.groups[1].teachers
    pairs = together[~np.eye(len(together), dtype=bool)]
    assert np.abs(pairs - share**2).max() < 0.12
    for variant in ("standard", "weighting", "upsampling"):
        plan = plan_of(variant)
        assert np.array_equal(draw_participation(plan, 5, np.random.default_rng(0)), np.ones((plan.teachers, 5), bool))


@repeatable
@given(batch=batches())
def test_a_group_pays_for_its_costliest_teacher_at_every_query_and_whatever_the_noise_says(batch) -> None:
    costs, present, answered = batch
    added = participation_costs(costs, present, answered)
    assert (added.check >= 0).all() and (added.label >= 0).all()
    paid = np.cumsum(added.check + answered[:, None] * added.label, axis=0)
    for teacher in present:
        took_part = teacher[:, None] * (costs.check + answered[:, None] * costs.label)
        assert (paid >= np.cumsum(took_part, axis=0) - 1e-12).all()
    np.testing.assert_allclose(added.check.sum(axis=0), (present @ costs.check).max(axis=0))
    labels = (present & answered) @ costs.label
    np.testing.assert_allclose((answered[:, None] * added.label).sum(axis=0), labels.max(axis=0))
    for query in range(len(answered)):
        other = answered.copy()
        other[query] = not other[query]
        again = participation_costs(costs, present, other)
        np.testing.assert_array_equal(again.label[: query + 1], added.label[: query + 1])
        np.testing.assert_array_equal(again.check, added.check)
    always = participation_costs(costs, np.ones_like(present), answered)
    np.testing.assert_allclose(always.check, costs.check)
    np.testing.assert_allclose(always.label, costs.label)


@pytest.mark.parametrize(
    ("present", "answered"), [(np.ones((2, 3)), [True] * 4), (np.ones((2, 4)), [True]), (np.ones((0, 4)), [True] * 4)]
)
def test_shapes_that_do_not_fit_are_refused(present, answered) -> None:
    costs = QueryCosts(check=np.zeros((4, 1)), label=np.zeros((4, 1)))
    with pytest.raises(ValueError, match="participation"):
        participation_costs(costs, present, answered)
