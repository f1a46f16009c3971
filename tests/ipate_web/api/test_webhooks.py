"""Webhooks over the API: made, tested and removed by operators, refused to everybody else, the secret told once."""

import json
import logging
from typing import Any

import pytest
from django.test import Client as BrowserClient
from django.utils import timezone
from ipate_client import signature_verify

from consent.models import Role, Study, WebhookDelivery, WebhookEndpoint
from consent.services import membership_add, webhook_endpoints
from consent.services.webhook_endpoints import endpoint_create
from consent.services.webhooks import EVENTS, webhooks_deliver
from ipate_web.tokens.models import ApiToken
from tests.factories import holder_create, study_open, user_create
from tests.hooks import Receiver, receiver
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_runs import errors
from tests.snapshots import built_once

__all__ = ["receiver"]

pytestmark = pytest.mark.django_db

WEBHOOKS = "/api/v1/studies/ward/webhooks"
DELIVERIES = f"{WEBHOOKS}/deliveries"


@pytest.fixture
@built_once
def ward() -> Study:
    """A study with somebody in every role, and a holder who signs in."""
    study = study_open("ward")
    for role in Role.values:
        membership_add(study=study, user=user_create(role), role=role, acting_user=None)
    holder_create(study, user=user_create("holder"))
    return study


def made(study: Study, receiver: Receiver, **fields: Any) -> int:
    """Id of a webhook that was made on the page."""
    entries = {"url": receiver.url, "events": ["run.failed"], **fields}
    return endpoint_create(study=study, acting_user=user_create("operator"), **entries).endpoint.pk


def test_webhook_from_creation_to_removal(ward: Study, receiver: Receiver, client: Client) -> None:
    operator = client("operator")
    fields = {"url": receiver.url, "events": ["run.finished", "run.failed"]}
    answer = operator.post(WEBHOOKS, fields, format="json")
    assert answer.status_code == 201, answer.content
    new = answer.json()
    assert (new["url"], new["events"], new["created_by"]) == (receiver.url, fields["events"], "operator")
    (listed,) = operator.get(WEBHOOKS).json()["results"]
    assert listed == {name: value for name, value in new.items() if name != "secret"}

    sent = operator.post(f"{WEBHOOKS}/{new['id']}/test")
    assert sent.status_code == 202, sent.content
    assert (sent.json()["event"], sent.json()["state"], sent.json()["webhook"]) == ("test", "waiting", new["id"])
    assert sent.json()["next_try"] and sent.json()["sent_at"] is None
    webhooks_deliver()
    ((headers, body),) = receiver.received
    signature_verify(body, headers, new["secret"])
    assert json.loads(body)["id"] == sent.json()["id"]
    (delivery,) = operator.get(DELIVERIES).json()["results"]
    assert (delivery["state"], delivery["status"], delivery["tries"], delivery["next_try"]) == ("sent", 204, 1, None)
    assert delivery["sent_at"] and delivery["fault"] == ""

    removed = operator.delete(f"{WEBHOOKS}/{new['id']}")
    assert (removed.status_code, removed.content) == (204, b"")
    assert not WebhookEndpoint.objects.exists() and operator.get(DELIVERIES).json()["count"] == 0
    again = operator.delete(f"{WEBHOOKS}/{new['id']}")
    assert again.status_code == 404 and "lists those it has" in again.json()["detail"]


def test_the_page_and_the_api_tell_of_the_same(ward: Study, receiver: Receiver, client: Client) -> None:
    pk = made(ward, receiver)
    operator = client("operator")
    assert [each["id"] for each in operator.get(WEBHOOKS).json()["results"]] == [pk]
    operator.post(WEBHOOKS, {"url": f"{receiver.url}&made=here", "events": ["run.failed"]}, format="json")
    browser = BrowserClient()
    browser.force_login(user_create("operator"))
    assert "made=here" in browser.get("/studies/ward/webhooks/").text


def test_a_webhook_outlives_the_account_of_whoever_made_it(ward: Study, receiver: Receiver, client: Client) -> None:
    pk = made(ward, receiver)
    WebhookEndpoint.objects.update(created_by=2**30)
    (listed,) = client("operator").get(WEBHOOKS).json()["results"]
    assert (listed["id"], listed["created_by"]) == (pk, None)


def test_a_failed_delivery_shows_its_reason_and_next_try(ward: Study, receiver: Receiver, client: Client) -> None:
    pk = made(ward, receiver)
    receiver.answer = 503
    operator = client("operator")
    operator.post(f"{WEBHOOKS}/{pk}/test")
    webhooks_deliver()
    (delivery,) = operator.get(DELIVERIES).json()["results"]
    assert (delivery["state"], delivery["status"], delivery["tries"]) == ("waiting", 503, 1)
    due = timezone.localtime(WebhookDelivery.objects.get().due_at).replace(second=0, microsecond=0)
    assert delivery["next_try"] == due.isoformat().replace("+00:00", "Z"), "to the minute"


def test_the_secret_appears_once_and_in_no_log(
    ward: Study, receiver: Receiver, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    operator = client("operator")
    with caplog.at_level(logging.DEBUG):
        answer = operator.post(WEBHOOKS, {"url": receiver.url, "events": ["run.failed"]}, format="json")
        secret = answer.json()["secret"]
        pk = answer.json()["id"]
        later = [
            operator.get(WEBHOOKS),
            operator.post(f"{WEBHOOKS}/{pk}/test"),
            operator.get(DELIVERIES),
            operator.delete(f"{WEBHOOKS}/{pk}"),
        ]
        webhooks_deliver()
    assert answer["Cache-Control"] == "no-store"
    assert secret.startswith("whsec_") and len(secret) > 40
    for each in later:
        assert b"secret" not in each.content and secret.encode() not in each.content
    assert f"made webhook {pk}" in caplog.text, "else nothing was logged"
    assert secret not in caplog.text and receiver.url not in caplog.text


@pytest.mark.parametrize(
    ("role", "status"),
    [
        *((role, 403) for role in Role.values if role != Role.OPERATOR),
        *((who, 404) for who in ("holder", "stranger", "operator elsewhere")),
        ("", 401),
    ],
)
def test_nobody_but_an_operator_of_the_study_is_let_in(
    ward: Study, receiver: Receiver, client: Client, role: str, status: int
) -> None:
    elsewhere = study_open("elsewhere")
    membership_add(study=elsewhere, user=user_create("operator elsewhere"), role=Role.OPERATOR, acting_user=None)
    pk = made(ward, receiver)
    asking, good = client(role), {"url": receiver.url, "events": ["run.failed"]}
    answers = [
        asking.get(WEBHOOKS),
        asking.post(WEBHOOKS, good, format="json"),
        asking.get(DELIVERIES),
        asking.post(f"{WEBHOOKS}/{pk}/test"),
        asking.delete(f"{WEBHOOKS}/{pk}"),
    ]
    assert [answer.status_code for answer in answers] == [status] * 5
    mails = {401: "Authorization: Bearer", 403: "“consent.manage_webhooks”. Ask", 404: "no such study"}[status]
    assert all(mails in answer.json()["detail"] for answer in answers)
    assert WebhookEndpoint.objects.get().pk == pk and not WebhookDelivery.objects.exists()


def test_a_webhook_is_found_in_its_own_study_alone(ward: Study, receiver: Receiver, client: Client) -> None:
    elsewhere = study_open("elsewhere")
    theirs = made(elsewhere, receiver)
    operator = client("operator")
    for answer in (operator.post(f"{WEBHOOKS}/{theirs}/test"), operator.delete(f"{WEBHOOKS}/{theirs}")):
        assert answer.status_code == 404 and "no such webhook" in answer.json()["detail"]
    assert operator.get(WEBHOOKS).json()["results"] == []
    assert WebhookEndpoint.objects.filter(pk=theirs).exists() and not WebhookDelivery.objects.exists()


@pytest.mark.parametrize("scope", ["read", "propose", "predict", "decide", "rehearse"])
def test_a_token_for_something_else_does_not_reach_them(ward: Study, client: Client, scope: str) -> None:
    """Nor does one that only reads: an address can hold a key of another program."""
    operator = client("operator")
    ApiToken.objects.update(scopes=[scope])
    for answer in (operator.get(WEBHOOKS), operator.get(DELIVERIES), operator.delete(f"{WEBHOOKS}/1")):
        assert answer.status_code == 403
        assert "no scope “webhooks”" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"url": "http://hooks.example.org/"}, "url", "begins with https://"),
        ({"url": "https://127.0.0.1/"}, "url", "private address"),
        ({"url": "https://user:word@hooks.example.org/"}, "url", "without a password"),
        ({"url": "https://nowhere.invalid/"}, "url", "Check the spelling"),
        ({"url": "https://" + "a" * 500}, "url", "no more than 500"),
        ({"url": 7}, "url", "in quotation marks"),
        ({"url": None}, "url", "may not be null"),
        ({"events": []}, "events", "Choose at least one event."),
        ({"events": ["run.exploded"]}, "events.0", "Use: run.proposed, run.approved"),
        ({"events": ["test"]}, "events.0", "There is no event “test”"),
        ({"events": "run.failed"}, "events", "list"),
        ({"secret": "mine"}, "secret", "There is no such field. Use: url, events."),
    ],
)
def test_the_answer_names_the_wrong_field(
    ward: Study, client: Client, sent: dict[str, Any], field: str, words: str
) -> None:
    good = {"url": "https://127.0.0.1/", "events": list(EVENTS)}
    answer = client("operator").post(WEBHOOKS, good | sent, format="json")
    assert answer.status_code == 400, answer.content
    assert words in errors(answer)[field]
    assert not WebhookEndpoint.objects.exists()


def test_there_is_a_limit_and_a_closed_study_gets_none(
    ward: Study, receiver: Receiver, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_endpoints, "MOST", 1)
    operator, good = client("operator"), {"url": receiver.url, "events": ["run.failed"]}
    assert operator.post(WEBHOOKS, good, format="json").status_code == 201
    answer = operator.post(WEBHOOKS, good, format="json")
    assert answer.status_code == 400 and "Remove one first." in errors(answer)[""]
    Study.objects.filter(pk=ward.pk).update(closed_at=timezone.now())
    answer = operator.post(WEBHOOKS, good, format="json")
    assert answer.status_code == 400 and "This study is closed" in errors(answer)[""]
    assert WebhookEndpoint.objects.count() == 1
