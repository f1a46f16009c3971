"""Tests of the consent queries."""

from collections.abc import Callable

import numpy as np
import pytest

from consent import selectors, services
from consent.counts import holders_per_level
from consent.models import DataHolder, Study
from consent.standing import standing
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide


@pytest.fixture
def epsilon_of(study: Study) -> Callable[[DataHolder], float]:
    """The ε that a run would promise a holder now."""

    def epsilon_of(holder: DataHolder) -> float:
        return float(selectors.consent_snapshot(study).of([holder.pk]).epsilons[0])

    return epsilon_of


def test_a_new_policy_never_weakens_an_old_promise(clock, study, give, epsilon_of) -> None:
    first, second, third = (factories.holder_create(study, f"P-{n}") for n in range(3))
    give(first, "HIGH")
    give(second, "AVERAGE")
    since = clock.now()
    assert selectors.epsilons_since(study, since)["HIGH"] == np.inf
    factories.policy_approve(study, 2, 3, 4)
    assert (epsilon_of(first), epsilon_of(second)) == (1, 2), "a larger ε waits for a new consent"
    give(first, "HIGH")
    assert epsilon_of(first) == 2
    factories.policy_approve(study, 0.5, 1, 1.5)
    assert (epsilon_of(first), epsilon_of(second)) == (0.5, 1), "a smaller one applies at once"
    factories.policy_approve(study, 3, 4, 5)
    assert (epsilon_of(first), epsilon_of(second)) == (0.5, 1), "and stays when a larger one follows"
    assert selectors.epsilons_since(study, since)["HIGH"] == 0.5
    give(third, "AVERAGE")
    assert epsilon_of(third) == 4, "a smaller one from before the consent does not count"
    start = clock.moment
    clock.days_pass(1)
    effective = clock.now()
    clock.moment = start
    factories.policy_approve(study, 0.1, 0.2, 0.3, effective_from=effective)
    assert epsilon_of(third) == 4
    clock.days_pass(2)
    assert epsilon_of(third) == 0.2, "from its date on"


def test_a_snapshot_has_who_takes_part_and_nobody_else(study: Study, give: Decide) -> None:
    takes_part, changed, withdrew, refused, undecided = (
        factories.holder_create(study, name) for name in ("takes part", "changed", "withdrew", "refused", "undecided")
    )
    give(takes_part, "LOW")
    give(changed, "LOW")
    give(changed, "HIGH")
    give(withdrew, "AVERAGE")
    services.consent_withdraw(holder=withdrew, acting_user=None)
    services.consent_refuse(holder=refused, acting_user=None)
    give(factories.holder_create(factories.study_open("other"), "elsewhere"), "HIGH")

    assert holders_per_level(study) == {
        "HIGH": 1, "AVERAGE": 0, "LOW": 1, "WITHDRAWN": 1, "REFUSED": 1, "SUSPENDED": 0, "UNDECIDED": 1
    }  # fmt: skip
    snapshot = selectors.consent_snapshot(study)
    part = snapshot.of([takes_part.pk, 10**9])
    assert (part.holders.tolist(), part.epsilons.tolist()) == ([takes_part.pk], [3])
    assert snapshot.holders.tolist() == [takes_part.pk, changed.pk]
    assert [selectors.LEVELS[level] for level in snapshot.levels] == ["LOW", "HIGH"]
    assert snapshot.epsilons.tolist() == [3, 1]
    assert (len(snapshot), snapshot.sequence) == (2, 6)
    assert undecided.pk not in snapshot.holders


@pytest.mark.parametrize("few", [0, 500], ids=["everyone is read", "asked for by name"])
def test_a_snapshot_among_some_holders_is_that_part_of_the_whole(study, give, few: int, monkeypatch) -> None:
    monkeypatch.setattr(selectors, "FEW_HOLDERS", few)
    holders = [factories.holder_create(study, f"among-{number}") for number in range(4)]
    for holder, level in zip(holders, ("HIGH", "LOW", "AVERAGE"), strict=False):
        give(holder, level)
    positions = np.array([holders[0].pk, holders[2].pk, holders[3].pk])
    part, whole = selectors.consent_snapshot(study, among=positions), selectors.consent_snapshot(study).of(positions)
    assert part.holders.tolist() == whole.holders.tolist() == [holders[0].pk, holders[2].pk]
    assert part.epsilons.tolist() == whole.epsilons.tolist() == [1.0, 2.0]


def test_a_snapshot_costs_the_same_queries_for_any_number_of_holders(study, give, django_assert_num_queries) -> None:
    for n in range(5):
        give(factories.holder_create(study, f"P-{n}"), "HIGH")
    with django_assert_num_queries(5):
        selectors.consent_snapshot(study)


@pytest.mark.parametrize(
    ("renewal", "takes_part", "is_new"), [("not_asked", True, None), ("asked", True, True), ("required", False, False)]
)
def test_the_renewal_of_a_form_decides_which_consents_count(study, holder, give, renewal, takes_part, is_new) -> None:
    give(holder, "LOW")
    form = factories.form_publish(study, {"en": "More is asked now."}, renewal=renewal)
    assert (len(selectors.consent_snapshot(study)) == 1) == takes_part
    counts = holders_per_level(study)
    assert (counts["LOW"], counts["SUSPENDED"]) == (int(takes_part), int(not takes_part))
    stands = standing(holder)
    assert (stands.renewal, stands.counts) == (None if is_new is None else form, is_new is not False)
    latest = factories.form_publish(study, {"en": "More, better said."}, renewal="not_asked")
    assert (len(selectors.consent_snapshot(study)) == 1) == takes_part, "a later optional form revives nothing"
    assert (standing(holder).renewal, standing(holder).counts) == (None if is_new is None else latest, takes_part)
    give(holder, "LOW")
    assert len(selectors.consent_snapshot(study)) == 1
    assert standing(holder).renewal is None
    services.consent_withdraw(holder=holder, acting_user=None)
    factories.form_publish(study, {"en": "Yet more."}, renewal=renewal)
    assert standing(holder).renewal is None, "nobody who withdrew is asked again"


def test_a_form_sets_consents_aside_from_its_moment_on(clock: Clock, db: None, give: Decide) -> None:
    study = factories.study_open("timed")
    holder = factories.holder_create(study)
    give(holder, "LOW")
    before = clock.now()
    factories.form_publish(study, {"en": "More is asked now."}, renewal="required")
    assert selectors.consent_snapshot(study, before).holders.tolist() == [holder.pk]
    assert selectors.holders_lapsed_since(study, before).tolist() == [holder.pk]
    assert selectors.holders_lapsed_since(study, clock.now()).tolist() == []
    give(holder, "LOW")
    assert selectors.holders_lapsed_since(study, before).tolist() == []


def test_the_state_of_consents_changes_with_whatever_changes_a_snapshot(clock: Clock, db: None, give: Decide) -> None:
    study = factories.study_open("timed")
    holder = factories.holder_create(study)
    give(holder, "LOW")
    give(factories.holder_create(factories.study_open("other"), "elsewhere"), "HIGH")
    state = selectors.consent_state(study)
    clock.days_pass(1)
    assert selectors.consent_state(study) == state

    start = clock.moment
    clock.days_pass(1)
    tomorrow = clock.now()
    clock.moment = start
    factories.policy_approve(study, 0.5, 1, 1.5, effective_from=tomorrow)
    services.consent_withdraw(holder=holder, acting_user=None)
    withdrawn = selectors.consent_state(study)
    assert withdrawn != state
    clock.days_pass(2)
    stricter = selectors.consent_state(study)
    assert stricter not in (state, withdrawn)
    factories.form_publish(study, {"en": "More is asked now."}, renewal="required")
    assert selectors.consent_state(study) not in (state, withdrawn, stricter)


def test_a_decision_that_another_clock_dates_in_the_future_counts_from_then_on(clock, db: None, give) -> None:
    study = factories.study_open("timed")
    start = clock.moment
    clock.days_pass(1)
    give(factories.holder_create(study, "ahead"), "LOW")
    clock.moment = start
    give(factories.holder_create(study, "on time"), "LOW")
    state = selectors.consent_state(study)
    assert len(selectors.consent_snapshot(study)) == 1
    clock.days_pass(2)
    assert len(selectors.consent_snapshot(study)) == 2
    assert selectors.consent_state(study) != state
