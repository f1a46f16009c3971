"""Tests of the recruitment statistics."""

from datetime import date

import pytest

from consent import recruitment, services
from consent.models import Study
from consent.recruitment import recruitment_history, recruitment_overview
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide


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


def test_first_and_last_day_of_a_long_course_are_shown(timed, clock, give, monkeypatch) -> None:
    monkeypatch.setattr(recruitment, "DAYS_SHOWN", 3)
    for number in range(6):
        give(factories.holder_create(timed, f"P-{number}"), "HIGH")
        clock.days_pass(1)
    history = recruitment_history(timed)
    assert [day.day for day in history.days][::2] == [1, 6]
    assert history.holders[-1].tolist() == [6, 0, 0, 0, 0]


def test_without_decisions_there_is_no_course(study: Study) -> None:
    assert recruitment_history(study).rows == []


def test_the_overview_counts_where_holders_stand(study: Study, give: Decide) -> None:
    holders = [factories.holder_create(study, f"P-{number}") for number in range(5)]
    give(holders[0], "HIGH")
    give(holders[1], "LOW")
    services.consent_withdraw(holder=holders[1], acting_user=None)
    services.consent_refuse(holder=holders[2], acting_user=None)
    overview = recruitment_overview(study)
    assert (overview.people, overview.invited, overview.decided) == (5, 0, 3)
    assert overview.counts == {"HIGH": 1, "AVERAGE": 0, "LOW": 0, "WITHDRAWN": 1, "REFUSED": 1, "SUSPENDED": 0}
