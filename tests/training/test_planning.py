"""What a run would do, before it does it."""

import numpy as np
import pytest

from consent import services
from consent.models import ConsentForm, DataHolder
from consent.selectors import consent_snapshot
from tests.factories import form_publish, policy_approve, study_create
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    consents_give,
    run_draft,
    run_finish,
    run_start,
    study_with_table,
    table_rows,
)
from training.pate import PlanError
from training.services.datasets import dataset_import
from training.services.planning import plan_from_json, plan_to_json, run_plan

pytestmark = pytest.mark.django_db


def test_teachers_follow_the_sizes_of_the_groups_and_cover_all_holders() -> None:
    planned = run_plan(run_draft(study_with_table(levels="HAALLL"), **TABLE_RUN))
    assert [(group.name, len(group.holders), group.epsilon) for group in planned.standings] == [
        ("HIGH", 5, 1.0),
        ("AVERAGE", 10, 2.0),
        ("LOW", 15, 3.0),
    ]
    assert [group.teachers for group in planned.plan.groups] == [1, 2, 3]
    assert planned.group_of == [0, 1, 2]
    weights = planned.plan.teacher_weights()
    assert weights.sum() == pytest.approx(6)
    assert weights[0] < weights[1] < weights[3]


def test_a_plan_survives_its_way_through_the_database() -> None:
    planned = run_plan(run_draft(study_with_table(), **TABLE_RUN))
    restored = plan_from_json(plan_to_json(planned))
    assert restored.groups == planned.plan.groups
    assert restored.aggregator == planned.plan.aggregator
    assert "holders" not in plan_to_json(planned)


def test_without_an_approved_policy_there_is_no_plan() -> None:
    study = study_create("unready")
    for kind, rows in (("private", table_rows(9, ["a", "b", "c"] * 3)), ("public", table_rows(3))):
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
    run = run_draft(study, **TABLE_RUN | {"teachers": 2})
    with pytest.raises(PlanError, match=r"no approved ε policy\. Ask its ethics committee"):
        run_plan(run)
    form_publish(study)
    policy_approve(study)
    with pytest.raises(PlanError, match="No holder of the private dataset has given consent"):
        run_plan(run)


def test_only_holders_who_consented_take_part() -> None:
    study = study_with_table(levels="H-A-")
    planned = run_plan(run_draft(study, **TABLE_RUN))
    consented = set(consent_snapshot(study).holders.tolist())
    assert {pk for group in planned.standings for pk in group.holders.tolist()} == consented
    assert len(consented) == 15


def test_a_group_too_small_for_a_teacher_is_merged_or_left_out_as_the_operator_chose() -> None:
    study = study_with_table(levels="HHHHHAAAAL", holders=20)  # 2 LOW holders; a teacher has 20 / 4 = 5
    merged = run_plan(run_draft(study, **TABLE_RUN | {"teachers": 4}))
    assert [group.merged for group in merged.plan.groups] == [(), ("LOW",)]
    assert merged.group_of == [0, 1, 1]
    assert any("too few holders for one teacher" in note and "merged into AVERAGE" in note for note in merged.notes)
    without = run_plan(run_draft(study, **TABLE_RUN | {"teachers": 4, "small_groups": "leave_out"}))
    assert without.plan.left_out == ("LOW",)
    assert [group.name for group in without.standings] == ["HIGH", "AVERAGE"]
    assert any("left out" in note for note in without.notes)


def test_after_a_first_run_newcomers_and_veterans_are_groups_of_their_own() -> None:
    study = study_with_table(levels="HHHHHAAAAAL--L--", holders=32)
    first = run_finish(run_start(study, **TABLE_RUN | {"wanted_labels": 1}))
    assert first.labels == 1
    form = ConsentForm.objects.get(study=study)
    for holder in DataHolder.objects.filter(study=study, consent_events__isnull=True):
        services.consent_give(holder=holder, level="LOW", form=form, acting_user=None)
    planned = run_plan(run_draft(study, **TABLE_RUN))
    spent = {group.name: group.spent for group in planned.standings}
    assert len(spent) == 4
    low = sorted((group for group in planned.standings if group.level == "LOW"), key=lambda group: group.spent)
    assert [len(group.holders) for group in low] == [8, 4]
    assert low[0].spent == 0.0 < low[1].spent
    assert low[0].remaining == pytest.approx(3.0)
    assert 0 < low[1].remaining < low[0].remaining
    assert {group.name for group in low} == {"LOW", "LOW 2"}
    simulated = run_plan(run_draft(study, **TABLE_RUN, simulation=True))
    assert [group.spent for group in simulated.standings] == [0.0] * 3


def test_a_group_with_nothing_left_takes_no_part_and_the_plan_says_so() -> None:
    study = study_with_table(levels="HAL")
    run_finish(run_start(study, **TABLE_RUN | {"wanted_labels": 1}))
    policy_approve(study, high=1e-4, average=2.0, low=3.0)  # far below what HIGH has spent
    planned = run_plan(run_draft(study, **TABLE_RUN))
    assert [group.level for group in planned.standings] == ["AVERAGE", "LOW"]
    assert "Group HIGH has nothing left of its ε = 0.0001, so its holders (10) are left out." in planned.notes
    policy_approve(study, high=1e-4, average=2e-4, low=3e-4)
    with pytest.raises(PlanError, match=r"No group has any budget left\. Only new consents would change that"):
        run_plan(run_draft(study, **TABLE_RUN))


def test_a_larger_epsilon_does_not_reach_those_who_consented_before() -> None:
    study = study_with_table(levels="HAL")
    policy_approve(study, high=1.5, average=2.5, low=3.5)
    before = run_plan(run_draft(study, **TABLE_RUN))
    assert [group.epsilon for group in before.standings] == [1.0, 2.0, 3.0]
    consents_give(study, "H--")
    after = run_plan(run_draft(study, **TABLE_RUN))
    assert [group.epsilon for group in after.standings] == [1.5, 2.0, 3.0]


def test_a_threshold_above_the_number_of_teachers_is_a_warning() -> None:
    aggregator = {"name": "confident_gnmax", "sigma": 2.0, "sigma_threshold": 2.0, "threshold": 50.0}
    planned = run_plan(run_draft(study_with_table(), **TABLE_RUN | {"aggregator": aggregator}))
    assert any("T = 50 lies above the number of votes (6)" in note for note in planned.notes)


def test_weights_are_calibrated_for_the_conversion_of_the_run() -> None:
    study = study_with_table()
    weights = [
        run_plan(run_draft(study, **TABLE_RUN | {"conversion": conversion})).plan.teacher_weights()
        for conversion in ("improved", "classic")
    ]
    assert not np.allclose(*weights)
