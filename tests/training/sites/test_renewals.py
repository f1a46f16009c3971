"""Replacing a site's key, and requests between site and hub if clocks, versions or keys do not match."""

import time
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import translation

from accounting.models import Release
from consent.models import ConfigurationChange, Mail
from consent.selectors import consent_form_in_force
from ipate_web.run_words import translated
from learning.sites.documents import Refused, sign
from tests.factories import user_create
from tests.training.runs import run_approve
from tests.training.sites.alliances import ADDRESS, Installations, advance, finish, olga
from tests.training.sites.renewals import Renewed, renewed_make
from training.alliances import renewals, wire
from training.alliances.approvals import form_describes
from training.alliances.documents import roster
from training.alliances.exchange import exchange
from training.alliances.runs import joint_run_take
from training.alliances.selectors import participant_rows
from training.alliances.wire import Hub, Unreachable, invitation_write
from training.models import Alliance, Run
from training.verification import checks_of

pytestmark = pytest.mark.django_db

STUDENT = {"student_learner": "nearest_neighbour"}
STEPS: dict[str, Any] = STUDENT | {"method": Run.Method.SGD, "choices": {"steps": 2, "sigma": 10.0}}


@pytest.fixture
def renewed(monkeypatch: pytest.MonkeyPatch) -> Renewed:
    return renewed_make(monkeypatch)


def faults(renewed: Renewed) -> list[str]:
    studies = [renewed.there.hub_study, *renewed.there.studies]
    return [fault for study in studies for check in checks_of(study) for fault in check.faults()]


@pytest.mark.exhaustive
def test_a_key_is_replaced_and_everything_before_stays_what_it_was(renewed: Renewed) -> None:
    there = renewed.there
    runs = finish(there.start(share=0.3, **STEPS))
    assert {run.status for run in runs} == {Run.Status.FINISHED}, [str(run.message) for run in runs]
    before, forms = renewed.hub, [consent_form_in_force(study) for study in there.studies]
    fingerprint = renewed.everywhere()
    hub = renewed.hub
    for alliance in (hub, *there.sites):
        assert (alliance.content, alliance.signature) == (hub.content, hub.signature) != (before.content, "")
        assert [each["content"] for each in alliance.former] == [before.content]
        assert alliance.founding == before.document and not alliance.offered and not alliance.renewal
        changed = {name for name, key in alliance.document.sites.items() if key != before.document.sites[name]}
        assert changed == {"Clinic A"}
    assert fingerprint in {each.fingerprint for each in participant_rows(hub)}
    assert all(site.is_eligible for site in hub.sites.all())
    for site, form in zip(there.sites, forms, strict=True):
        assert form_describes(site) and consent_form_in_force(site.study) == form, "nobody is asked again"
    renewed.keeps = True
    renewed.as_first()  # all tasks run in this process, so everybody uses its keys
    later = finish(there.start(share=0.3, **STEPS))
    assert {run.status for run in later} == {Run.Status.FINISHED}, [str(run.message) for run in later]
    assert {roster(run.joint).alliance.digest() for run in later} == {hub.document.digest()}
    assert faults(renewed) == []
    for run in Run.objects.filter(pk__in=[run.pk for run in runs]):
        assert roster(run.joint).alliance == before.document, "earlier signatures can still be checked"


def test_two_operators_of_the_hub_are_needed_and_both_are_on_record(renewed: Renewed) -> None:
    renewed.lose()
    fingerprint = renewed.register()
    with pytest.raises(ValidationError, match="You requested this key yourself"):
        renewed.confirm(None, fingerprint, by="otto")
    for wrong in ("", "0000 0000 0000 0000 0000"):
        with pytest.raises(ValidationError, match="This key is not waiting for confirmation"):
            renewed.confirm(None, wrong)
    assert renewed.hub.document == renewed.hub.founding and renewed.hub.renewal
    renewed.confirm(None, fingerprint)
    for place in (1, 1, 2):
        renewed.contact(place)
    for study in (renewed.there.hub_study, *renewed.there.studies[1:]):
        assert Mail.objects.filter(kind="key_waiting", study=study).count() == 2, "one email for each operator"
    changes = ConfigurationChange.objects.filter(study=renewed.there.hub_study, after__has_key="renewal")
    people = [change.changed_by_id for change in changes.order_by("sequence")][-3:]
    assert people == [user_create("otto").pk, None, olga().pk], "requested, registered, confirmed"
    with pytest.raises(ValidationError, match="This key is not waiting for confirmation"):
        renewed.confirm(None, fingerprint)


def test_a_key_is_registered_once_and_is_new_to_the_alliance(renewed: Renewed) -> None:
    code = renewals.renewal_propose(alliance=renewed.hub, site="Clinic A", acting_user=user_create("otto"))
    invitation = invitation_write(renewed.hub, code, ADDRESS)
    with pytest.raises(ValidationError, match="Give the site another IPATE_SECRET_KEY, and keep the current"):
        renewals.identity_renew(alliance=renewed.first, invitation=invitation, acting_user=olga())
    with pytest.raises(ValidationError, match="A key replacement is already pending"):
        renewals.renewal_propose(alliance=renewed.hub, site="Clinic B", acting_user=olga())
    renewed.as_first()
    fingerprint = renewals.identity_renew(alliance=renewed.first, invitation=invitation, acting_user=olga())
    assert fingerprint == renewals.identity_renew(alliance=renewed.first, invitation=invitation, acting_user=olga())
    renewed.as_first("a third")
    with pytest.raises(ValidationError, match="A different key was registered with this code"):
        renewals.identity_renew(alliance=renewed.first, invitation=invitation, acting_user=olga())
    renewed.as_others()
    renewals.renewal_drop(alliance=renewed.hub, acting_user=olga())
    with pytest.raises(ValidationError, match="A different key was registered with this code"):
        renewed.as_first()
        renewals.identity_renew(alliance=renewed.first, invitation=invitation, acting_user=olga())
    with pytest.raises(ValidationError, match="to a different alliance"):
        renewals.identity_renew(alliance=renewed.first, invitation=f"{ADDRESS}/#{'0' * 32}.{code}", acting_user=olga())
    renewed.as_others()
    assert renewed.contact(0).problem == "", "the current key stays in force"


def test_before_it_is_confirmed_the_former_key_counts_and_after_it_is_refused_in_words(renewed: Renewed) -> None:
    renewed.lose()
    with pytest.raises(Unreachable, match="Compare the fingerprints"):
        renewed.contact(0)
    fingerprint = renewed.register()
    with pytest.raises(Unreachable, match="has not confirmed Clinic A's new key yet"):
        renewed.contact(0)
    renewed.lost = False  # someone with the former key
    assert renewed.contact(0).problem == ""
    renewed.confirm(None, fingerprint)
    with pytest.raises(Unreachable, match="has replaced Clinic A's key"):
        renewed.contact(0)
    renewed.lose()
    assert renewed.contact(0).offered


@pytest.mark.parametrize("until", ["taken up", pytest.param("asking", marks=pytest.mark.exhaustive)])
def test_runs_under_way_end_everywhere_with_a_reason(renewed: Renewed, until: str) -> None:
    there = renewed.there
    hub = there.propose(**STEPS)
    sites = []
    if until == "taken up":
        exchange(there.sites[1])
        private = there.dataset(there.studies[1], "private")
        joint_run_take(
            alliance=there.sites[1], number=hub.pk.hex, private_dataset=private, acting_user=user_create("otto")
        )
    else:
        sites = [there.take(hub, place) for place in range(3)]
        for run in (*sites, hub, *sites):
            advance(run)
    renewed.lose()
    fingerprint = renewed.register()
    renewed.confirm(None, fingerprint)
    assert advance(hub).status == Run.Status.FAILED
    hub.refresh_from_db()
    assert "The key of Clinic A was replaced after this run was proposed" in str(hub.message)
    assert not any(renewed.contact(place).open_proposals for place in (0, 1, 2))
    for run in sites[1:]:
        ended = advance(run)
        assert ended.status == Run.Status.FAILED and "The key of Clinic A was replaced" in str(ended.message)
    assert not Release.objects.filter(kind="sums").exists()
    assert faults(renewed) == []


def test_a_site_confirms_before_it_takes_up_another_run(renewed: Renewed) -> None:
    there = renewed.there
    renewed.lose()
    fingerprint = renewed.register()
    renewed.confirm(None, fingerprint)
    there.hub = renewed.hub
    with pytest.raises(ValidationError, match="not confirmed the new one yet: Clinic A, Clinic B, Clinic C"):
        there.propose(**STEPS, sites=there.names)
    for place in (0, 1):
        renewed.confirm(place, fingerprint)
        renewed.contact(place)
    with pytest.raises(ValidationError, match="At least 3 sites"):
        there.propose(**STEPS)
    waiting = [each.name for each in participant_rows(renewed.hub) if each.waits]
    assert waiting == ["Clinic C"]
    run = there.propose(**STEPS, sites=["Clinic A", "Clinic B"], mode="separate")
    there.sites[1] = renewed.contact(1)
    assert there.take(run, 1).status == Run.Status.APPROVED
    # the third site has heard of it but does not check
    alliance = renewed.contact(2)
    assert [each.fingerprint for each in renewals.renewals_waiting(alliance)] == [fingerprint]
    with pytest.raises(ValidationError, match="fingerprint and confirm it first"):
        proposals = {run.pk.hex: {"content": run.joint.content, "signature": run.joint.signature, "told": "{}"}}
        Alliance.objects.filter(pk=alliance.pk).update(proposals=proposals)
        alliance.refresh_from_db()
        private = there.dataset(alliance.study, "private")
        joint_run_take(alliance=alliance, number=run.pk.hex, private_dataset=private, acting_user=user_create("otto"))


def test_documents_that_do_not_follow_are_refused_and_old_ones_cannot_be_replayed(renewed, monkeypatch) -> None:
    forgery = {}
    site = renewed.there.sites[1]
    former = renewed.contact(1)
    post = Hub.post

    def lying(hub: Hub, path: str, document: Any, *, signed: bool = True) -> Any:
        answer = post(hub, path, document, signed=signed)
        answer["alliance"] |= forgery
        return answer

    renewed.everywhere()
    site = renewed.contact(1)
    monkeypatch.setattr(Hub, "post", lying)
    forgery |= {"content": former.content, "signature": former.signature, "former": []}
    with pytest.raises(Refused, match="The hub is sending an earlier alliance document, probably"):
        renewed.contact(1)
    hub, key = renewed.hub, wire.identity(renewed.hub)
    sites, other = hub.document.sites, "ab" * 32
    more = "The new alliance document changes more than the key"
    joined = "This installation joined the alliance with a different secret"
    for change, message in [
        ({}, "signature of the hub"),
        ({"colluding": 0}, more),
        ({"sites": {**sites, "Clinic X": other}}, more),
        ({"sites": dict.fromkeys(sites, other)}, more),
        ({"sites": {**sites, "Clinic C": sites["Clinic A"]}}, "already registered in"),
        ({"sites": {**sites, "Clinic B": other}}, joined),
        ({"hub": other}, more),
    ]:
        document = replace(hub.document, **change)
        signed = sign(document, key if change else wire.identity(site))
        forgery |= {"content": document.content().decode(), "signature": signed.signature.hex()}
        forgery["former"] = [*hub.former, {"content": hub.content, "signature": hub.signature}]
        with pytest.raises(Refused, match=message):
            renewed.contact(1)
    forgery["former"] = []
    with pytest.raises(Refused, match="The hub has signed a different alliance from the"):
        renewed.contact(1)
    forgery.clear()
    assert renewed.contact(1).content == site.content and not renewed.contact(1).offered


def problem(site: Any) -> tuple[str, str]:
    """Return the reason why the hub could not be asked, as the alliance's page shows it in English and German."""
    with pytest.raises(Unreachable):
        exchange(site)
    site.refresh_from_db()
    problems = []
    for language in ("en", "de"):
        with translation.override(language):
            problems.append(translated(site.problem))
    return problems[0], problems[1]


def test_clocks_and_versions_that_differ_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    (site, *_others), post = Installations().sites, Hub.post

    def late(name: str, key: Any, method: str, path: str, body: bytes) -> str:
        at = int(time.time()) - 400
        return f"Site {name.encode().hex()}:{at}:{key.sign(wire.request_content(method, path, at, body)).hex()}"

    def older(hub: Hub, path: str, document: Any, *, signed: bool = True) -> Any:
        return post(hub, path, document | {"protocol": "ipate-sites-0"}, signed=signed)

    with monkeypatch.context() as patched:
        patched.setattr(wire, "request_authorization", late)
        english, german = problem(site)
    assert "The hub has refused (401): The clocks of the site and the hub differ by 4" in english
    assert "Die Zentrale hat abgelehnt (401): Die Uhren von Standort und Zentrale weichen um 4" in german
    monkeypatch.setattr(Hub, "post", older)
    english, german = problem(site)
    assert "The hub uses ipate-sites-1 and the site uses ipate-sites-0. Update the older" in english
    assert "Aktualisieren Sie die ältere Version" in german


def test_a_site_that_tells_impossible_head_counts_stops_no_plan_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    there, post, said = Installations(), Hub.post, dict[str, Any]()
    run = there.draft(method=Run.Method.SGD, student_learner="nearest_neighbour")

    def lying(hub: Hub, path: str, document: Any, *, signed: bool = True) -> Any:
        return post(hub, path, document | {"head_counts": [said]}, signed=signed)

    monkeypatch.setattr(Hub, "post", lying)
    wrongs = ({"epsilon": 800.0}, {"epsilon": -1.0}, {"epsilon": float("nan")}, {"count": -500}, {"level": "OTHER"})
    for wrong in wrongs:
        said = {"level": "HIGH", "epsilon": 1.0, "count": 5} | wrong
        assert "The hub has refused (409): The site's message cannot be read" in problem(there.sites[0])[0], wrong
    assert run_approve(run=Run.objects.get(pk=run.pk), acting_user=olga()).status == Run.Status.APPROVED
