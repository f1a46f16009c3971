"""Accounts and charges, without any vote: what is refused, what is added up."""

from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from accounting.limits import Limits, limits_of
from accounting.models import HolderSpending, LedgerEntry, RunAccount, SpendingHistory
from accounting.privacy import DEFAULT_ORDERS, epsilon_from_rdp, gaussian_rdp
from accounting.selectors import account_consumption, epsilon_by_batch, past_curves, standings
from accounting.services import BudgetExceeded, GroupOpening, account_open, batch_charge, groups_retire
from consent.models import Study
from consent.selectors import consent_snapshot
from consent.services import holders_register
from tests.factories import study_open
from tests.training.runs import consents_give

pytestmark = pytest.mark.django_db

NOTHING = np.zeros(len(DEFAULT_ORDERS))
LABEL = gaussian_rdp(20.0, orders=DEFAULT_ORDERS)


@pytest.fixture
def study() -> Study:
    study = study_open("accounts", delta=1e-4)
    holders_register(study=study, pseudonyms=[f"p-{place}" for place in range(9)])
    consents_give(study, "HAL")
    return study


def account(study: Study, *, simulation: bool = False) -> RunAccount:
    openings = [
        GroupOpening(group.name, group.level, group.epsilon, group.holders, group.past)
        for group in standings(study, consent_snapshot(study), fresh=simulation)
    ]
    return account_open(
        study=study,
        run=uuid4(),
        at=timezone.now(),
        simulation=simulation,
        orders=DEFAULT_ORDERS,
        method="data_independent",
        conversion="improved",
        groups=openings,
    )


@transaction.atomic
def charge(account: RunAccount, batch: int, *rdp: np.ndarray, limits: Limits | None = None) -> None:
    batch_charge(
        account=account,
        batch=batch,
        mechanism={"name": "gnmax", "sigma": 20.0},
        sensitivities=[1.0] * len(rdp),
        rdp=np.array(rdp),
        published_rdp=2 * np.array(rdp),
        limits=limits or limits_of(account),
        queries=3,
        labels=2,
        acting_user_id=None,
    )


def test_what_is_charged_is_added_up_and_recorded_with_its_parameters(study: Study) -> None:
    opened = account(study)
    charge(opened, 0, LABEL, 2 * LABEL, NOTHING)
    charge(opened, 1, LABEL, NOTHING, NOTHING)
    spent = [group.spent_rdp for group in opened.groups.all()]
    np.testing.assert_allclose(spent, [2 * LABEL, 2 * LABEL, NOTHING], rtol=1e-14)
    published = [group.published_rdp for group in opened.groups.all()]
    np.testing.assert_allclose(published, [4 * LABEL, 4 * LABEL, NOTHING], rtol=1e-14)
    entry = LedgerEntry.objects.filter(group__name="AVERAGE").earliest("sequence")
    assert (entry.run, entry.batch, entry.queries, entry.labels) == (opened.run, 0, 3, 2)
    assert entry.mechanism == {"name": "gnmax", "sigma": 20.0}
    assert (entry.method, entry.delta, entry.sensitivity) == ("data_independent", 1e-4, 1.0)
    assert entry.rdp == (2 * LABEL).tolist()
    assert entry.orders == list(DEFAULT_ORDERS)


def test_consumption_and_the_history_by_batch_agree_with_the_conversion(study: Study) -> None:
    opened = account(study)
    for batch in range(3):
        charge(opened, batch, LABEL, 2 * LABEL, 3 * LABEL)
    by_batch = epsilon_by_batch(opened)
    for place, item in enumerate(account_consumption(opened)):
        expected = [
            float(epsilon_from_rdp(batches * (place + 1) * LABEL, 1e-4, DEFAULT_ORDERS)[0]) for batches in (1, 2, 3)
        ]
        assert by_batch[place] == pytest.approx(expected, rel=1e-12)
        assert item.spent == pytest.approx(expected[-1], rel=1e-12)
        assert item.published == pytest.approx(
            float(epsilon_from_rdp(6 * (place + 1) * LABEL, 1e-4, DEFAULT_ORDERS)[0]), rel=1e-12
        )
        assert (item.past, item.budget) == (0.0, place + 1.0)


def test_a_charge_above_a_budget_is_refused_and_nothing_is_written(study: Study) -> None:
    opened = account(study)
    charge(opened, 0, LABEL, LABEL, LABEL)
    before = list(opened.groups.values_list("spent_rdp", flat=True))
    with pytest.raises(BudgetExceeded, match="would bring AVERAGE above what may be spent"):
        charge(opened, 1, LABEL, 1000 * LABEL, LABEL)
    assert list(opened.groups.values_list("spent_rdp", flat=True)) == before
    assert LedgerEntry.objects.count() == 3


def test_past_spending_counts_against_the_budget(study: Study) -> None:
    first = account(study)
    nearly = 0.9 * _multiple(1.0) * LABEL
    charge(first, 0, nearly, NOTHING, NOTHING)
    second = account(study)
    with pytest.raises(BudgetExceeded, match="HIGH"):
        charge(second, 0, nearly, NOTHING, NOTHING)


def _multiple(epsilon: float) -> float:
    """How many labels ε is good for."""
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        if epsilon_from_rdp(middle * LABEL, 1e-4, DEFAULT_ORDERS)[0] <= epsilon:
            low = middle
        else:
            high = middle
    return low


def test_a_group_that_pays_nothing_is_no_obstacle_even_above_its_budget(study: Study) -> None:
    opened = account(study)
    charge(opened, 0, LABEL, LABEL, LABEL)
    high = opened.groups.get(name="HIGH")
    groups_retire(groups=[high])
    charge(opened, 1, NOTHING, LABEL, LABEL, limits=replace(limits_of(opened), epsilon=np.array([1e-6, 2.0, 3.0])))
    assert opened.groups.get(name="HIGH").spent_rdp == LABEL.tolist()
    assert opened.groups.get(name="HIGH").retired_at


def test_the_same_batch_cannot_be_charged_twice(study: Study) -> None:
    opened = account(study)
    charge(opened, 0, LABEL, LABEL, LABEL)
    before = list(opened.groups.values_list("spent_rdp", flat=True))
    with pytest.raises(Exception, match=r"(?i)unique"):
        charge(opened, 0, LABEL, LABEL, LABEL)
    assert list(opened.groups.values_list("spent_rdp", flat=True)) == before


def test_a_simulation_is_charged_outside_the_ledger_and_the_histories(study: Study) -> None:
    charge(account(study, simulation=True), 0, LABEL, LABEL, LABEL)
    assert not LedgerEntry.objects.exists()
    assert not SpendingHistory.objects.exists()
    assert not HolderSpending.objects.exists()
    assert all(group.spent == 0.0 for group in standings(study, consent_snapshot(study)))


def test_accounts_kept_at_other_orders_are_not_added_up(study: Study) -> None:
    charge(account(study), 0, LABEL, LABEL, LABEL)
    with pytest.raises(ValueError, match="Use the orders that the study began with"):
        past_curves(study, np.array([2.0, 3.0]))


def test_a_budget_of_nothing_is_no_group(study: Study) -> None:
    opening = GroupOpening("HIGH", "HIGH", 0.0, np.array([], dtype=np.int64), NOTHING)
    with pytest.raises(ValidationError):
        account_open(
            study=study,
            run=uuid4(),
            at=timezone.now(),
            simulation=True,
            orders=DEFAULT_ORDERS,
            method="exact",
            conversion="improved",
            groups=[opening],
        )


def test_holders_of_one_history_share_a_row_and_equal_costs_are_one_group(study: Study) -> None:
    account(study)  # never charged
    assert SpendingHistory.objects.count() == 3
    assert HolderSpending.objects.count() == 9
    charge(account(study), 0, LABEL, LABEL, LABEL)
    assert SpendingHistory.objects.count() == 6
    names = [group.name for group in standings(study, consent_snapshot(study))]
    assert names == ["HIGH", "AVERAGE", "LOW"]
    newcomers = holders_register(study=study, pseudonyms=["new"])
    consents_give(study, "---------H")
    groups = standings(study, consent_snapshot(study))
    assert [(group.level, len(group.holders)) for group in groups if group.level == "HIGH"] in (
        [("HIGH", 1), ("HIGH", 3)],
        [("HIGH", 3), ("HIGH", 1)],
    )
    fresh = next(group for group in groups if group.holders.tolist() == list(newcomers.values()))
    assert (fresh.spent, fresh.remaining) == (0.0, pytest.approx(1.0))
