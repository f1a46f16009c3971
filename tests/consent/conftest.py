"""Fixtures for tests of consent."""

from collections.abc import Callable
from datetime import date

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from consent import selectors
from consent.models import Circumstance, ConsentEvent, DataHolder, Study
from consent.people.pseudonyms import Invited
from consent.services.holders import circumstance_record
from consent.services.invitations import invitations_create
from tests import factories
from tests.pages import as_

Decide = Callable[[DataHolder, str], ConsentEvent]


@pytest.fixture
def study(db: None) -> Study:
    """Return a study that is open for decisions, with ε 1, 2, 3."""
    return factories.study_open()


@pytest.fixture
def hanna(db: None) -> User:
    return factories.user_create("hanna")


@pytest.fixture
def browser(hanna: User) -> Client:
    return as_(hanna)


def url(name: str, study: Study | None = None, *args: object) -> str:
    """Return the address of a page for holders."""
    return reverse(f"consent:{name}", args=[study.slug, *args] if study else [])


@pytest.fixture
def holder(study: Study, hanna: User) -> DataHolder:
    return factories.holder_create(study, user=hanna)


@pytest.fixture
def give() -> Decide:
    """Let a holder who has read the current form take part at a level, and agree to what it means."""
    return factories.decide


def answer(study: Study, choice: str = "LOW", **more: object) -> dict[str, object]:
    """Return the data that a study's page sends with a choice."""
    form, policy = selectors.consent_form_in_force(study), selectors.policy_in_force(study)
    assert form is not None and policy is not None
    return {"form_version": form.version, "policy_version": policy.version, "choice": choice, **more}


def link_opened(study: Study, person: str | Invited = "P-1") -> Client:
    """Return a browser in which someone has opened the link of a new invitation."""
    (issued,) = invitations_create(study=study, acting_user=None, pseudonyms=[person])
    client = Client()
    client.get(reverse("open_link", args=[issued.code]))
    return client


def circumstance(study: Study, kind: str, until: date | None = None, pseudonym: str = "P-1") -> Circumstance:
    """Record, as ``olga``, who answers for a person."""
    olga = factories.user_create("olga")
    if kind == "guardian" and until is None:
        until = date(2040, 1, 1)
    return circumstance_record(
        study=study, pseudonym=pseudonym, kind=kind, until=until, reason="Register.", acting_user=olga
    )


def events(holder: DataHolder) -> list[tuple[str, str]]:
    """Return kind and level of each decision, in order."""
    return list(ConsentEvent.objects.filter(holder=holder).order_by("sequence").values_list("kind", "level"))


def words(parts: list) -> str:
    """Return the text of a tree of `consent.documents.typeset`."""
    found = [part if isinstance(part, str) else words(part["parts"]) for part in parts]
    return " ".join(" ".join(found).split())


def epsilon_of(holder: DataHolder) -> float:
    """Return the ε that a run would now promise a holder."""
    return float(selectors.consent_snapshot(holder.study).of([holder.pk]).epsilons[0])
