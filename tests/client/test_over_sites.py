"""Runs over sites through the client, at the hub and at sites."""

from collections.abc import Callable

import pytest
from django.conf import LazySettings
from ipate_client import ProblemError, Site

from accounting.models import Release
from consent.models import Mail, Role
from consent.services import membership_add
from tests.factories import user_create
from tests.training.sites.alliances import Installations, InThisProcess, advance, finish
from training.alliances.exchange import exchange
from training.alliances.services import alliance_contact, silences_tell
from training.alliances.wire import Hub
from training.models import Run

pytestmark = [pytest.mark.django_db(transaction=True)]

STEPS = {"method": "sgd", "choices": {"steps": 3, "sigma": 10.0}, "student_learner": "nearest_neighbour"}


@pytest.fixture
def people(
    site_of: Callable[[str], Site], monkeypatch: pytest.MonkeyPatch, settings: LazySettings
) -> tuple[Site, Site]:
    """Two operators of everything."""
    monkeypatch.setattr(Hub, "transport", InThisProcess())
    settings.SITES_WAIT = 0
    return site_of("otto"), site_of("olga")


def installations(count: int) -> Installations:
    there = Installations(count)
    for study in (there.hub_study, *there.studies):
        membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
    return there


def mails(kind: str) -> int:
    return Mail.objects.filter(kind=kind).count()


@pytest.mark.exhaustive
def test_a_run_is_proposed_taken_up_followed_and_goes_on_without_a_silent_site(
    people: tuple[Site, Site], settings: LazySettings
) -> None:
    there, (otto, olga) = installations(4), people
    (hub,) = olga.alliances("hub")
    assert ([each["name"] for each in hub["sites"]], hub["own_name"]) == (there.names, "")
    assert all(each["fingerprint"] and each["last_contact"] for each in hub["sites"])
    public = there.dataset(there.hub_study, "public").pk
    run = otto.propose_over_sites("hub", hub["id"], title="Joint", public_dataset=public, **STEPS)
    olga.approve(run, share=0.5)
    runs = [Run.objects.get(pk=run.id)]
    for alliance in there.sites:
        before = mails("joint_proposed")
        exchange(alliance)
        assert mails("joint_proposed") - before == 2, "both operators are told, once"
        exchange(alliance)
        (found,) = otto.alliances(alliance.study.slug)
        assert found["own_name"] == alliance.own_name and found["hub_fingerprint"] == hub["hub_fingerprint"]
        (proposal,) = found["proposals"]
        private = there.dataset(alliance.study, "private").pk
        draft = otto.take_up(alliance.study.slug, found["id"], proposal["number"], private_dataset=private)
        olga.approve(draft, share=0.5)
        runs.append(Run.objects.get(pk=draft.id))
    assert olga.over_sites(run)["missing"] == there.names

    runs = [advance(runs[0]), *map(advance, runs[1:])]
    for _ in range(3):  # everybody but the first site
        runs = [advance(runs[0]), runs[1], *map(advance, runs[2:])]
    document = olga.over_sites(run)
    waiting = [each["name"] for each in document["waits_for"]]
    assert waiting == there.names[:1] and document["questions"][0]["state"] == "open"
    settings.SITES_SILENCE = 0
    silences_tell()
    silences_tell()
    mail_counts = [
        Mail.objects.filter(kind="site_silent", study=each).count() for each in (there.hub_study, *there.studies)
    ]
    assert mail_counts == [2] * 5, "the operators of every installation, once"
    with pytest.raises(ProblemError):
        olga.go_on(run, without="Clinic X")
    olga.go_on(run, without=waiting[0])
    assert list(olga.over_sites(run)["dropped"]) == waiting
    runs = finish(runs)
    assert {each.status for each in runs} == {Run.Status.FINISHED}, [str(each.message) for each in runs]
    document = olga.over_sites(run)
    assert [each["state"] for each in document["questions"]] == ["ended", "total", "total", "total"]
    at_site = olga.over_sites(str(runs[-1].pk))
    assert all(each["charge"] > 0 for each in at_site["questions"] if each["answered_at"])
    assert Release.objects.filter(run=runs[-1].pk, kind="sums").count() == 3, "not all had endorsed the first question"


def test_a_site_that_declines_ends_the_run_with_its_name(people: tuple[Site, Site]) -> None:
    there, (otto, olga) = installations(3), people
    run = there.propose(**STEPS)
    exchange(there.sites[1])
    slug = there.sites[1].study.slug
    (found,) = otto.alliances(slug)
    assert olga.decline(slug, found["id"], found["proposals"][0]["number"])["proposals"] == []
    with pytest.raises(ProblemError):
        private = there.dataset(there.studies[1], "private").pk
        otto.take_up(slug, found["id"], run.pk.hex, private_dataset=private)
    alliance_contact(there.sites[1].pk)
    taken = there.take(run, 0)
    runs = finish([run, taken])
    assert {each.status for each in runs} == {Run.Status.FAILED}
    assert all("Clinic B has ended the run: declined" in str(each.message) for each in runs)
