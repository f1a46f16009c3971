"""Numbers of holders by state, counted on from where the last count ended, and their course over time."""

import random
from collections import Counter
from datetime import date, timedelta

import pytest
from django.utils import timezone

from consent import counts, services
from consent.circumstances import day_of
from consent.counts import holders_per_level
from consent.models import DataHolder, DecisionCount, Study
from consent.recruitment import recruitment_history, recruitment_overview
from consent.selectors import consent_current, lapses_at
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide, circumstance

#: Numbers of changes from which on a count is kept, and made anew.
LIMITS = [(1, 10_000), (1, 2), (100, 10_000)]


def counted_one_by_one(study: Study) -> dict[str, int]:
    """The numbers as they follow from every holder's last decision and the reason why it may not count."""
    numbers: Counter[str] = Counter()
    suspended = lapses_at(study, timezone.now())
    for holder in DataHolder.objects.filter(study=study):
        last = consent_current(holder)
        state = "UNDECIDED" if last is None else last.level or last.kind.upper()
        numbers["SUSPENDED" if holder.pk in suspended else state] += 1
    return dict(numbers)


@pytest.mark.slow
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


def test_a_count_that_is_there_is_not_made_again(study, give, monkeypatch, django_assert_max_num_queries) -> None:
    monkeypatch.setattr(counts, "FEW", 1)
    for number in range(6):
        give(factories.holder_create(study, f"P-{number}"), "HIGH")
    assert holders_per_level(study)["HIGH"] == 6
    DecisionCount.objects.filter(study=study).update(counts=[["given", "LOW", None, None, 1000]])
    assert holders_per_level(study)["SUSPENDED"] == 1000  # what was kept is what counts
    with django_assert_max_num_queries(5):
        holders_per_level(study)


def test_the_holder_count_of_a_large_study_is_cached_for_a_minute(study, monkeypatch) -> None:
    monkeypatch.setattr(counts, "MANY_REGISTERED", 2)
    for expected, name in ((1, "P-1"), (2, "P-2"), (2, "P-3")):
        factories.holder_create(study, name)
        assert holders_per_level(study)["UNDECIDED"] == expected


@pytest.fixture
def timed(clock: Clock, db: None) -> Study:
    """Made on 1 January 2026, before anybody decides."""
    return factories.study_open("timed")


def test_the_course_follows_each_decision(timed: Study, clock: Clock, give: Decide) -> None:
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


def test_the_overview_counts_where_holders_stand(study: Study, give: Decide) -> None:
    holders = [factories.holder_create(study, f"P-{number}") for number in range(5)]
    give(holders[0], "HIGH")
    give(holders[1], "LOW")
    services.consent_withdraw(holder=holders[1], acting_user=None)
    services.consent_refuse(holder=holders[2], acting_user=None)
    overview = recruitment_overview(study)
    assert (overview.people, overview.invited, overview.decided) == (5, 0, 3)
    assert overview.counts == {"HIGH": 1, "AVERAGE": 0, "LOW": 0, "WITHDRAWN": 1, "REFUSED": 1, "SUSPENDED": 0}
