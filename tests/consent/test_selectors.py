"""Whose consent is valid, with which ε, and how many people made which decision."""

import random
from collections import Counter
from datetime import date, timedelta

import numpy as np
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from consent import selectors, services
from consent.models import DataHolder, DecisionCount, Study
from consent.people import counts
from consent.people.circumstances import day_of
from consent.people.counts import holders_per_level, recruitment_history
from consent.promises.status import holder_status
from consent.selectors import consent_current, lapses_at
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide, circumstance, epsilon_of


def test_a_new_policy_never_weakens_an_old_promise(clock, study, give) -> None:
    first, second, third = (factories.holder_create(study, f"P-{n}") for n in range(3))
    give(first, "HIGH")
    give(second, "AVERAGE")
    since = clock.now()
    assert selectors.epsilons_since(study, since)["HIGH"] == np.inf
    factories.policy_approve(study, 2, 3, 4)
    assert (epsilon_of(first), epsilon_of(second)) == (1, 2), "a larger ε takes effect only with a new consent"
    give(first, "HIGH")
    assert epsilon_of(first) == 2
    factories.policy_approve(study, 0.5, 1, 1.5)
    assert (epsilon_of(first), epsilon_of(second)) == (0.5, 1), "a smaller one applies at once"
    factories.policy_approve(study, 3, 4, 5)
    assert (epsilon_of(first), epsilon_of(second)) == (0.5, 1), "and remains when a larger one follows"
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


@pytest.mark.parametrize("few", [0, 500], ids=["everyone is read", "requested by name"])
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
    status = holder_status(holder)
    assert (status.renewal, status.counts) == (None if is_new is None else form, is_new is not False)
    latest = factories.form_publish(study, {"en": "More, better said."}, renewal="not_asked")
    assert (len(selectors.consent_snapshot(study)) == 1) == takes_part, "a later optional form does not restore consent"
    status = holder_status(holder)
    assert (status.renewal, status.counts) == (None if is_new is None else latest, takes_part)
    give(holder, "LOW")
    assert len(selectors.consent_snapshot(study)) == 1
    assert holder_status(holder).renewal is None
    services.consent_withdraw(holder=holder, acting_user=None)
    factories.form_publish(study, {"en": "Yet more."}, renewal=renewal)
    assert holder_status(holder).renewal is None, "people who withdrew are not asked again"


def test_a_form_suspends_consents_from_its_date_on(clock: Clock, db: None, give: Decide) -> None:
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


def test_the_state_of_consents_changes_whenever_a_snapshot_does(clock: Clock, db: None, give: Decide) -> None:
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


def test_a_snapshot_is_read_again_only_after_a_change(db: None, give: Decide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "WORTH_KEEPING", 0)
    monkeypatch.setattr(selectors, "_kept_snapshots", {})
    study = factories.study_open("timed")
    holders = [factories.holder_create(study, name) for name in ("anna", "ben")]
    for holder in holders:
        give(holder, "LOW")
    first, _ = selectors.consent_snapshot(study), selectors.consent_snapshot(study)
    with CaptureQueriesContext(connection) as queries:
        again = selectors.consent_snapshot(study)
    assert (again.holders.tolist(), again.sequence) == (first.holders.tolist(), first.sequence)
    assert not [each for each in queries if '"level"' in each["sql"]], "no decision is read a second time"
    services.consent_withdraw(holder=holders[0], acting_user=None)
    assert selectors.consent_snapshot(study).holders.tolist() == [holders[1].pk]
    with transaction.atomic():
        services.consent_withdraw(holder=holders[1], acting_user=None)
        assert selectors.consent_snapshot(study).holders.tolist() == []
        transaction.set_rollback(True)
    assert selectors.consent_snapshot(study).holders.tolist() == [holders[1].pk]
    with pytest.raises(ValueError, match="read-only"):
        selectors.consent_snapshot(study).epsilons[0] = 9.0


#: Pairs (few, many): numbers of changes from which counts are stored, and after which they are recomputed.
LIMITS = [(1, 10_000), (1, 2), (100, 10_000)]


def counted_one_by_one(study: Study) -> dict[str, int]:
    """Count from every holder's last decision and the reason why it may not be valid."""
    numbers: Counter[str] = Counter()
    suspended = lapses_at(study, timezone.now())
    for holder in DataHolder.objects.filter(study=study):
        last = consent_current(holder)
        state = "UNDECIDED" if last is None else last.level or last.kind.upper()
        numbers["SUSPENDED" if holder.pk in suspended else state] += 1
    return dict(numbers)


@pytest.mark.parametrize(
    ("few", "many"), [(3, 5), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in LIMITS)]
)
def test_incremental_counts_equal_full_counts(clock, study, give, monkeypatch, few: int, many: int) -> None:
    monkeypatch.setattr(counts, "FEW", few)
    monkeypatch.setattr(counts, "MANY", many)
    draw = random.Random(few * many)
    holders = [factories.holder_create(study, f"P-{number}") for number in range(9)]

    for step in range(40):
        for holder in draw.sample(holders, draw.choice([0, 1, 2, 4])):
            last = consent_current(holder)
            if last is not None and last.grants and draw.random() < 0.4:
                services.consent_withdraw(holder=holder, acting_user=None)
            elif (last is None or not last.grants) and draw.random() < 0.2:
                services.consent_refuse(holder=holder, acting_user=None)
            else:
                give(holder, draw.choice(["HIGH", "AVERAGE", "LOW"]))
        if step == 10:
            factories.form_publish(study, {"en": "More."}, renewal="required")
        if step == 20:
            circumstance(study, "guardian", day_of(timezone.now()) + timedelta(days=9), "P-3")
        if step == 25:
            factories.form_publish(study, {"en": "For a while."}, valid=services.Valid(months=1))
        if step == 30:
            clock.days_pass(40)
        found = holders_per_level(study)
        assert {state: number for state, number in found.items() if number} == counted_one_by_one(study)
    assert DecisionCount.objects.filter(study=study).exists() == (few < 100)


def test_a_cached_count_is_not_recomputed(study, give, monkeypatch, django_assert_max_num_queries) -> None:
    monkeypatch.setattr(counts, "FEW", 1)
    for number in range(6):
        give(factories.holder_create(study, f"P-{number}"), "HIGH")
    assert holders_per_level(study)["HIGH"] == 6
    DecisionCount.objects.filter(study=study).update(counts=[["given", "LOW", None, None, 1000]])
    assert holders_per_level(study)["SUSPENDED"] == 1000  # the cached numbers are used
    with django_assert_max_num_queries(5):
        holders_per_level(study)


def test_counts_over_time_include_each_decision(clock: Clock, db: None, give: Decide) -> None:
    timed = factories.study_open("timed")
    first, second, third = (factories.holder_create(timed, name) for name in ("first", "second", "third"))
    give(first, "HIGH")
    give(second, "LOW")
    clock.days_pass(1)
    give(first, "LOW")
    services.consent_refuse(holder=third, acting_user=None)
    clock.days_pass(2)
    services.consent_withdraw(holder=second, acting_user=None)
    give(first, "AVERAGE")
    give(first, "HIGH")
    assert recruitment_history(timed).rows == [
        (date(2026, 1, 1), [1, 0, 1, 0, 0]),
        (date(2026, 1, 2), [0, 0, 2, 0, 1]),
        (date(2026, 1, 4), [1, 0, 0, 1, 1]),
    ]
