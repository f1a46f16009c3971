"""Composition over runs, per holder: the histories against brute force over the ledger."""

from collections import defaultdict

import numpy as np
import pytest

from accounting.models import HolderSpending, LedgerEntry, SpendingHistory
from accounting.privacy import epsilon_from_rdp
from accounting.selectors import account_consumption, standings
from consent import services as consent_services
from consent.models import ConsentForm, Study
from consent.selectors import consent_snapshot
from tests.training.runs import TABLE_RUN, consents_give, run_finish, run_start, study_with_table
from training.artifacts import arrays_load
from training.models import Run

pytestmark = pytest.mark.django_db


def voted(study: Study, **fields: object) -> Run:
    run = run_finish(run_start(study, **TABLE_RUN | fields))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def brute_force(study: Study) -> dict[int, np.ndarray]:
    """Holder → the sum of all ledger entries of the groups they were in, from who was in which teacher.

    Knows nothing of histories: of each run it reads who learned with whom, and of each entry the level and past.
    """
    totals: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(1))
    level = dict(study.consent_events.order_by("sequence").values_list("holder_id", "level"))
    for run in study.runs.filter(simulation=False, account__isnull=False).order_by("voting_at"):
        assignment = arrays_load(run.assignment)
        groups = list(run.account.groups.all())
        cost = {
            group: np.sum(list(LedgerEntry.objects.filter(group=group).values_list("rdp", flat=True)), axis=0)
            for group in groups
        }
        for holder in set(assignment["holder"].tolist()):
            (group,) = [
                group
                for group in groups
                if np.allclose(group.past_rdp, totals[holder], rtol=1e-12) and group.level == level[holder]
            ]
            totals[holder] = totals[holder] + cost[group]
    return totals


def by_histories(study: Study) -> dict[int, np.ndarray]:
    """Holder → the sum of what the groups of their history have spent, walked from the newest to the first."""
    totals = {}
    for spending in HolderSpending.objects.filter(holder__study=study):
        node: SpendingHistory | None = spending.history
        total = np.zeros(len(spending.history.group.account.orders))
        while node:
            total = total + np.array(node.group.spent_rdp)
            node = node.parent
        totals[spending.holder_id] = total
    return totals


def test_every_holders_cost_over_two_runs_is_what_the_ledger_says_and_within_their_budget() -> None:
    study = study_with_table(levels="HHAALL---", holders=36, retain_votes=True)
    first = voted(study, aggregator={"name": "gnmax", "sigma": 25.0}, wanted_labels=6)
    consents_give(study, "------HAL")
    second = voted(study, aggregator={"name": "gnmax", "sigma": 25.0}, variant="upsampling")
    assert len(second.account.groups.all()) == 6
    expected, found = brute_force(study), by_histories(study)
    assert found.keys() == expected.keys() == set(study.holders.values_list("pk", flat=True))
    promised = {"HIGH": 1.0, "AVERAGE": 2.0, "LOW": 3.0}
    for holder, curve in expected.items():
        np.testing.assert_allclose(found[holder], curve, rtol=1e-12)
        epsilon, _ = epsilon_from_rdp(curve, study.delta, np.array(first.account.orders))
        assert epsilon <= promised[study.consent_events.get(holder=holder).level]
    for group in standings(study, consent_snapshot(study)):
        for holder in group.holders.tolist():
            np.testing.assert_allclose(group.past, expected[holder], rtol=1e-12)


def test_the_histories_form_a_tree_with_one_row_for_those_alike() -> None:
    study = study_with_table(levels="HAL---", holders=30)
    first, third = voted(study, wanted_labels=1), None
    consents_give(study, "---HAL")
    second = voted(study, wanted_labels=1)
    third = voted(study, wanted_labels=1)
    nodes = SpendingHistory.objects.filter(study=study)
    per_run = [nodes.filter(group__account=run.account).count() for run in (first, second, third)]
    assert per_run == [3, 6, 6]
    depth = {node.pk: 0 for node in nodes if node.parent_id is None}
    for node in nodes.exclude(parent=None).order_by("pk"):
        assert node.parent_id in depth
        depth[node.pk] = depth[node.parent_id] + 1
    assert sorted(depth.values()).count(2) == 3, "the veterans have voted three times"
    assert HolderSpending.objects.count() == 30


def test_a_run_spends_what_earlier_runs_left_and_no_more() -> None:
    study = study_with_table(points=60)
    loud = {"name": "gnmax", "sigma": 8.0}
    voted(study, aggregator=loud, wanted_labels=1)
    run = voted(study, aggregator=loud, batch_size=10)
    before = {item.group.level: item for item in account_consumption(run.account)}
    assert all(0 < item.past < item.spent <= item.budget for item in before.values())
    assert run.stop_reason == Run.StopReason.BUDGET
    third = run_finish(run_start(study, **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 1.0}}))
    assert third.status == Run.Status.FAILED
    assert LedgerEntry.objects.filter(run=third.pk).count() == 0
    assert all(item.spent <= item.budget for item in account_consumption(third.account))


def test_who_changes_level_keeps_the_past_and_gets_the_new_budget() -> None:
    study = study_with_table(levels="HAL")
    voted(study, wanted_labels=2)
    holder = study.holders.filter(consent_events__level="LOW").earliest("pk")
    spent = by_histories(study)[holder.pk]
    form = ConsentForm.objects.get(study=study)
    consent_services.consent_give(holder=holder, level="HIGH", form=form, acting_user=None)
    (mine,) = [group for group in standings(study, consent_snapshot(study)) if holder.pk in group.holders]
    assert (mine.level, mine.epsilon, len(mine.holders)) == ("HIGH", 1.0, 1)
    np.testing.assert_array_equal(mine.past, spent)


def test_who_withdraws_and_returns_keeps_the_past() -> None:
    study = study_with_table(levels="HAL")
    voted(study, wanted_labels=2)
    holder = study.holders.earliest("pk")
    spent = by_histories(study)[holder.pk]
    consent_services.consent_withdraw(holder=holder, acting_user=None)
    assert all(holder.pk not in group.holders for group in standings(study, consent_snapshot(study)))
    form = ConsentForm.objects.get(study=study)
    consent_services.consent_give(holder=holder, level="HIGH", form=form, acting_user=None)
    (mine,) = [group for group in standings(study, consent_snapshot(study)) if holder.pk in group.holders]
    np.testing.assert_array_equal(mine.past, spent)
