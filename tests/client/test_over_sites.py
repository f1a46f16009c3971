"""Runs across sites through the client, at the hub and at sites."""

import pytest
from ipate_client import ProblemError, Site

from consent.models import Role
from consent.services import membership_add
from tests.factories import user_create
from tests.training.sites.alliances import Installations, InThisProcess, finish
from training.alliances.exchange import exchange
from training.alliances.services import alliance_contact
from training.alliances.wire import Hub
from training.models import Run

pytestmark = [pytest.mark.django_db(transaction=True)]

STEPS = {"method": "sgd", "choices": {"steps": 3, "sigma": 10.0}, "student_learner": "nearest_neighbour"}


@pytest.fixture
def people(site_of, monkeypatch, settings) -> tuple[Site, Site]:
    """Return two operators of everything."""
    monkeypatch.setattr(Hub, "transport", InThisProcess())
    settings.SITES_WAIT = 0
    return site_of("otto"), site_of("olga")


def installations(count: int) -> Installations:
    there = Installations(count)
    for study in (there.hub_study, *there.studies):
        membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
    return there


@pytest.mark.exhaustive
def test_a_site_that_declines_ends_the_run_with_its_name(people: tuple[Site, Site]) -> None:
    there, (otto, olga) = installations(3), people
    run = there.propose(**STEPS)
    exchange(there.sites[1])
    slug = there.sites[1].study.slug
    (found,) = otto.alliances(slug)
    assert olga.decline(slug, found["id"], found["proposals"][0]["number"])["proposals"] == []
    with pytest.raises(ProblemError):
        private = there.dataset(there.studies[1], "private").pk
        otto.accept(slug, found["id"], run.pk.hex, private_dataset=private)
    alliance_contact(there.sites[1].pk)
    taken = there.take(run, 0)
    runs = finish([run, taken])
    assert {each.status for each in runs} == {Run.Status.FAILED}
    assert all("Clinic B has ended the run: declined" in str(each.message) for each in runs)
