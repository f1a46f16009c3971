"""Plans of runs: functions of what is public."""

import numpy as np
import pytest

from accounting.caps import caps_of
from accounting.shares import share_free
from common.artifacts import arrays_load
from common.noise import SimulationNoise
from consent.services import consent_withdraw
from learning.mechanisms.base import PlanError
from tests.factories import policy_approve, study_create, user_create
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, STEPS_RUN
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    consents_give,
    head_counts_state,
    run_draft,
    run_finish,
    run_prepared,
    run_start,
    study_with_table,
    table_rows,
)
from training.engine.budgets import Budget, budgets_from_json
from training.methods import method_of
from training.methods.pate.planning import plan_from_json, run_plan
from training.services.datasets import dataset_import
from training.services.head_counts import head_counts_draw, head_counts_enter
from training.services.runs import run_approve

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_teachers_follow_the_head_counts_and_weights_the_caps() -> None:
    study = study_with_table(levels="HAALLL")
    planned = run_plan(run_draft(study, **TABLE_RUN))
    assert [(promise.level, promise.holders, promise.epsilon, promise.group) for promise in planned.promises] == [
        ("HIGH", 5, 1.0, 0),
        ("AVERAGE", 10, 2.0, 1),
        ("LOW", 15, 3.0, 2),
    ]
    assert [group.teachers for group in planned.plan.groups] == [1, 2, 3]
    weights = planned.plan.teacher_weights()
    assert weights.sum() == pytest.approx(6, abs=1e-3)
    mu = np.sqrt(caps_of([1.0, 2.0, 3.0], study.delta))
    np.testing.assert_allclose(weights[[1, 3]] / weights[0], mu[1:] / mu[0], rtol=5e-4)  # weights are rounded


def test_a_share_is_a_part_of_every_cap_with_what_it_affords() -> None:
    study = study_with_table()
    planned = run_plan(run_draft(study, **TABLE_RUN), 0.25)
    caps = caps_of([1.0, 2.0, 3.0], study.delta)
    for group, budget, cap in zip(planned.plan.groups, planned.budgets, caps, strict=True):
        assert budget.cap == cap
        assert budget.allowed == pytest.approx(0.25 * cap)
        assert budget.label == pytest.approx(2 * group.weight**2 / 10.0**2)
        assert planned.answers <= budget.allowed / budget.label < planned.answers + 1
    run = run_finish(run_start(study, share=0.25, **TABLE_RUN))
    assert run.labels == planned.answers


def test_a_plan_survives_its_way_through_the_database() -> None:
    planned = run_plan(run_draft(study_with_table(), **TABLE_RUN))
    document = planned.to_json()
    restored = plan_from_json(document)
    assert restored.groups == planned.plan.groups
    assert restored.aggregator == planned.plan.aggregator
    assert budgets_from_json(document) == [Budget(each.cap, each.allowed) for each in planned.budgets]


def test_a_plan_names_what_is_missing() -> None:
    study = study_create("unready")
    for kind, rows in (("private", table_rows(9, ["a", "b", "c"] * 3)), ("public", table_rows(3))):
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
    run = run_draft(study, **TABLE_RUN | {"teachers": 2})
    with pytest.raises(PlanError, match=r"no approved ε policy\. Ask its ethics committee"):
        run_plan(run)
    policy_approve(study)
    with pytest.raises(PlanError, match="no head counts yet"):
        run_plan(run)
    counts = {"HIGH": 0, "AVERAGE": 0, "LOW": 1}
    head_counts_enter(study=study, acting_user=user_create("olga"), counts=counts)
    with pytest.raises(PlanError, match="1 holders for 2 teachers are too few"):
        run_plan(run)


@pytest.mark.parametrize("method", ["pate", "neighbours", "sgd", "sgd sample"])
def test_no_run_is_planned_where_delta_is_above_one_in_the_people_counted(method: str) -> None:
    study = study_with_table(delta=1e-4)
    fields = {"pate": TABLE_RUN, "neighbours": ASKING_RUN, "sgd": STEPS_RUN, "sgd sample": SAMPLED_RUN}[method]
    run = run_draft(study, **fields)
    acts = {"study": study, "acting_user": user_create("olga")}
    head_counts_enter(**acts, counts={"HIGH": 5_000, "AVERAGE": 5_000, "LOW": 1})
    with pytest.raises(PlanError, match=r"about 10001 people take part, so that δ may be at most 0.0001;"):
        method_of(run).plan(run, 0.5)
    with pytest.raises(PlanError, match="new study with a smaller δ"):
        run_approve(run=run, acting_user=user_create("olga"), share=0.5)
    head_counts_enter(**acts, counts={"HIGH": 5_000, "AVERAGE": 5_000, "LOW": 0})
    assert method_of(run).plan(run, 0.5)


def test_plan_is_independent_of_consents_and_withdrawals() -> None:
    study = study_with_table()
    run = run_draft(study, **TABLE_RUN)
    before = run_plan(run).to_json()
    for holder in study.holders.order_by("pk")[:20]:
        consent_withdraw(holder=holder, acting_user=None)
    assert run_plan(run).to_json() == before


def test_only_holders_who_consented_to_a_counted_promise_take_part() -> None:
    study = study_with_table(levels="H-A-")
    run = run_prepared(run_start(study, share=0.5, **TABLE_RUN))
    consented = {event.holder_id for event in study.consent_events.all()}
    assert set(arrays_load(run.assignment)["holder"].tolist()) == consented
    assert len(consented) == 15
    policy_approve(study, 1.5, 2.5, 3.5)
    consents_give(study, "LLLL")
    later = run_prepared(run_start(study, share=0.5, **TABLE_RUN))
    assert len(arrays_load(later.assignment)["holder"]) == 0, "nobody has a promise that was counted"


def test_small_groups_are_merged_or_left_out_as_chosen() -> None:
    study = study_with_table(levels="HHHHHAAAAL", holders=20)  # 2 LOW holders; a teacher has 20 / 4 = 5
    merged = run_plan(run_draft(study, **TABLE_RUN | {"teachers": 4}))
    assert [group.merged for group in merged.plan.groups] == [(), ("LOW",)]
    assert [promise.group for promise in merged.promises] == [0, 1, 1]
    assert any("too few holders for one teacher" in note and "merged into AVERAGE" in note for note in merged.notes)
    without = run_plan(run_draft(study, **TABLE_RUN | {"teachers": 4, "small_groups": "leave_out"}))
    assert without.plan.left_out == ("LOW",)
    assert [(promise.level, promise.group) for promise in without.promises][-1] == ("LOW", -1)
    assert any("left out" in note for note in without.notes)


def test_a_threshold_above_the_number_of_teachers_is_a_warning() -> None:
    aggregator = {"name": "confident_gnmax", "sigma": 2.0, "sigma_threshold": 2.0, "threshold": 50.0}
    planned = run_plan(run_draft(study_with_table(), **TABLE_RUN | {"aggregator": aggregator}))
    assert any("T = 50 lies above the number of votes (6)" in note for note in planned.notes)


def test_drawn_head_counts_count_every_promise_that_can_have_been_given() -> None:
    study = study_with_table()
    policy_approve(study, high=1.5, average=2.5, low=3.5)
    consents_give(study, "H--")
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(2))
    planned = run_plan(run_draft(study, **TABLE_RUN))
    assert [(promise.level, promise.epsilon) for promise in planned.promises] == [
        ("HIGH", 1.0),
        ("HIGH", 1.5),
        ("AVERAGE", 2.0),
        ("AVERAGE", 2.5),
        ("LOW", 3.0),
        ("LOW", 3.5),
    ]
    assert [promise.name for promise in planned.promises][:2] == ["HIGH", "HIGH 2"]


def test_entered_head_counts_are_for_the_policy_in_force() -> None:
    study = study_with_table(levels="HAL")
    policy_approve(study, high=0.5, average=1.5, low=2.5)
    head_counts_state(study)
    planned = run_plan(run_draft(study, **TABLE_RUN))
    assert [promise.epsilon for promise in planned.promises] == [0.5, 1.5, 2.5]


def test_plan_needs_a_free_share_and_warns_where_it_takes_all() -> None:
    study = study_with_table()
    draft = run_draft(study, **TABLE_RUN)
    assert any("all that is left" in note for note in run_plan(draft, 1.0).notes)
    assert not any("all that is left" in note for note in run_plan(draft, 0.5).notes)
    run_start(study, **TABLE_RUN)
    assert share_free(study) == 0.0
    with pytest.raises(PlanError, match="used or held for other runs"):
        run_plan(draft)


def test_a_run_that_cannot_afford_one_answer_is_warned_of() -> None:
    planned = run_plan(run_draft(study_with_table(), **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 1.0}}))
    assert planned.answers == 0
    assert any("no query can be answered" in note for note in planned.notes)
