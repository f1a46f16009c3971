"""Fixtures of the consent tests."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from consent import selectors
from consent.models import ConsentEvent, DataHolder, Study
from tests import factories
from tests.clock import Clock

Decide = Callable[[DataHolder, str], ConsentEvent]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock.now)
    return clock


@pytest.fixture
def study(db: None) -> Study:
    """Open for decisions, with ε 1, 2, 3."""
    return factories.study_open()


@pytest.fixture
def hanna(db: None) -> User:
    return factories.user_create("hanna")


@pytest.fixture
def holder(study: Study, hanna: User) -> DataHolder:
    return factories.holder_create(study, user=hanna)


@pytest.fixture
def give() -> Decide:
    """A holder takes part at a level, having read the form in force, and says yes to what it means."""

    def give(holder: DataHolder, level: str) -> ConsentEvent:
        form = selectors.consent_form_in_force(holder.study)
        assert form is not None
        return factories.consent_choose(holder=holder, level=level, form=form)

    return give
