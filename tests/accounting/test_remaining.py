"""What remains for each group, counted in the database, is what the holders one by one add up to."""

import pytest

from accounting.selectors import remaining_by_group, standings
from consent import services
from consent.models import ConsentForm, Renewal
from consent.selectors import consent_snapshot
from tests.factories import FORM, form_publish, holder_create, policy_approve, study_open
from tests.training.runs import TABLE_RUN, consents_give, run_finish, run_start, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db


def test_counted_in_the_database_or_holder_by_holder_is_the_same() -> None:
    study = study_with_table(levels="HAL---", holders=30)
    fields = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 30.0}, "wanted_labels": 2}
    assert run_finish(run_start(study, **fields)).status == Run.Status.FINISHED
    policy_approve(study, 0.8, 2.5, 3.5)
    consents_give(study, "---HAL")
    policy_approve(study, 0.9, 1.5, 3.5)
    first, second, third, *_ = study.holders.order_by("pk")
    form = ConsentForm.objects.get(study=study)
    services.consent_give(holder=first, level="LOW", form=form, acting_user=None)
    services.consent_withdraw(holder=second, acting_user=None)
    assert run_finish(run_start(study, **fields)).status == Run.Status.FINISHED
    services.consent_withdraw(holder=third, acting_user=None)
    expected = [
        (group.name, group.level, group.epsilon, len(group.holders), group.spent, group.remaining)
        for group in standings(study, consent_snapshot(study))
    ]
    found = [
        (group.name, group.level, group.epsilon, group.holders, group.spent, group.remaining)
        for group in remaining_by_group(study)
    ]
    assert len(expected) > 6
    assert found == expected


def test_who_has_to_answer_a_new_form_first_is_not_counted() -> None:
    study = study_open()
    for name in ("P-1", "P-2", "P-3"):
        holder_create(study, name)
    consents_give(study, "HHH")
    second = form_publish(study, FORM | {"en": "# What we ask now"}, renewal=Renewal.REQUIRED)
    assert remaining_by_group(study) == []
    first, *_ = study.holders.all()
    services.consent_give(holder=first, level="LOW", form=second, acting_user=None)
    assert [(group.level, group.holders) for group in remaining_by_group(study)] == [("LOW", 1)]


def test_nothing_remains_for_nobody() -> None:
    assert remaining_by_group(study_open()) == []
