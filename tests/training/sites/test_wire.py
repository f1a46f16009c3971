"""What site and hub say to each other where clocks, versions, keys or certificates do not fit."""

import time
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.exceptions import ValidationError
from django.utils import translation

from ipate_web.staff.templatetags.run_words import said
from tests.factories import study_create
from tests.training.sites.alliances import ADDRESS, Installations, finish, olga
from training.models import Run
from training.services import alliances
from training.services.runs import run_approve
from training.sites import wire
from training.sites.exchange import exchange
from training.sites.invitations import invitation_write
from training.sites.wire import Hub, Unreachable

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def problem(site: Any) -> tuple[str, str]:
    """Why the hub could not be asked, as the alliance's page says it in English and in German."""
    with pytest.raises(Unreachable):
        exchange(site)
    site.refresh_from_db()
    problems = []
    for language in ("en", "de"):
        with translation.override(language):
            problems.append(said(site.problem))
    return problems[0], problems[1]


def test_clocks_that_differ_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    (site, *_others) = Installations().sites

    def late(name: str, key: Any, method: str, path: str, body: bytes) -> str:
        at = int(time.time()) - 400
        return f"Site {name.encode().hex()}:{at}:{key.sign(wire.request_content(method, path, at, body)).hex()}"

    monkeypatch.setattr(wire, "request_authorization", late)
    english, german = problem(site)
    assert "The hub refuses (401): The clocks of site and hub differ by 40" in english
    assert "Die Zentrale weigert sich (401): Die Uhren von Standort und Zentrale gehen um 40" in german


def test_versions_that_differ_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    (site, *_others) = Installations().sites
    post = Hub.post

    def older(hub: Hub, path: str, document: Any, *, signed: bool = True) -> Any:
        return post(hub, path, document | {"protocol": "ipate-sites-0"}, signed=signed)

    monkeypatch.setattr(Hub, "post", older)
    english, german = problem(site)
    assert "The hub speaks ipate-sites-1 and the site ipate-sites-0: update the older one" in english
    assert "Aktualisieren Sie die ältere Seite" in german


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 800.0}, {"epsilon": -1.0}, {"epsilon": float("nan")}, {"count": -500}, {"level": "OTHER"}]
)
def test_a_site_that_tells_impossible_head_counts_stops_no_plan_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    there, post = Installations(), Hub.post
    run = there.draft(method=Run.Method.SGD, student_learner="nearest_neighbour")
    said = {"head_counts": [{"level": "HIGH", "epsilon": 1.0, "count": 5} | wrong]}

    def lying(hub: Hub, path: str, document: Any, *, signed: bool = True) -> Any:
        return post(hub, path, document | said, signed=signed)

    monkeypatch.setattr(Hub, "post", lying)
    english, _german = problem(there.sites[0])
    assert "The hub refuses (409): What the site sends cannot be read" in english
    assert run_approve(run=Run.objects.get(pk=run.pk), acting_user=olga()).status == Run.Status.APPROVED


def test_a_secret_key_is_rotated_and_the_alliance_goes_on(settings: LazySettings) -> None:
    there, secret = Installations(), settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another " * 8, [secret]
    choices = {"steps": 2, "sigma": 10.0}
    runs = finish(there.start(method=Run.Method.SGD, choices=choices, student_learner="nearest_neighbour"))
    assert {run.status for run in runs} == {Run.Status.FINISHED}, [str(run.message) for run in runs]


@pytest.mark.parametrize("certificate", ["no certificate", "ä"])
def test_invalid_certificates_are_refused_at_their_field(certificate: str) -> None:
    there = Installations(joined=False)
    invitation = invitation_write(there.hub, there.codes["Clinic A"], ADDRESS)
    with pytest.raises(ValidationError) as refused:
        alliances.alliance_connect(
            study=study_create("other"), invitation=invitation, acting_user=olga(), certificate=certificate
        )
    assert "certificate" in refused.value.message_dict
