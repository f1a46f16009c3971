"""Webhooks over the API: only operators create, test and remove them, and the secret is shown once."""

import json
import logging
from typing import Any

import pytest
from django.utils import timezone
from ipate_client import signature_verify

from consent.models import Role, Study, WebhookDelivery, WebhookEndpoint
from consent.services import membership_add
from consent.services.webhooks import endpoint_create, webhooks_deliver
from ipate_web.tokens.models import ApiToken, Scope
from tests.factories import holder_create, study_open, user_create
from tests.hooks import Receiver, receiver
from tests.ipate_web.api.conftest import Client
from tests.ipate_web.api.test_runs import errors
from tests.pages import as_, roles_fill
from tests.snapshots import built_once

__all__ = ["receiver"]

pytestmark = pytest.mark.django_db

WEBHOOKS = "/api/v1/studies/ward/webhooks"
DELIVERIES = f"{WEBHOOKS}/deliveries"


@pytest.fixture
@built_once
def ward() -> Study:
    """Return a study with someone in every role, and a holder who signs in."""
    study = roles_fill(study_open("ward"))
    holder_create(study, user=user_create("holder"))
    return study


def made(study: Study, receiver: Receiver, **fields: Any) -> int:
    """Create a webhook on the page and return its id."""
    entries = {"url": receiver.url, "events": ["run.failed"], **fields}
    return endpoint_create(study=study, acting_user=user_create("operator"), **entries).endpoint.pk


def test_webhook_from_creation_to_removal(ward, receiver, client, caplog) -> None:
    operator = client("operator")
    fields = {"url": receiver.url, "events": ["run.finished", "run.failed"]}
    with caplog.at_level(logging.DEBUG):
        answer = operator.post(WEBHOOKS, fields, format="json")
        assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
        new = answer.json()
        secret, address = new.pop("secret"), f"{WEBHOOKS}/{new['id']}"
        assert secret.startswith("whsec_") and len(secret) > 40
        assert (new["url"], new["events"], new["created_by"]) == (receiver.url, fields["events"], "operator")
        listed = operator.get(WEBHOOKS)
        assert listed.json()["results"] == [new]
        assert receiver.url in as_("operator").get("/studies/ward/webhooks/").text

        sent = operator.post(f"{address}/test")
        assert sent.status_code == 202, sent.content
        test = sent.json()
        assert (test["event"], test["state"], test["webhook"]) == ("test", "waiting", new["id"])
        assert test["next_try"] and test["sent_at"] is None
        webhooks_deliver()
    ((headers, body),) = receiver.received
    signature_verify(body, headers, secret)
    assert json.loads(body)["id"] == test["id"]
    deliveries = operator.get(DELIVERIES)
    (delivery,) = deliveries.json()["results"]
    assert (delivery["state"], delivery["status"], delivery["tries"], delivery["next_try"]) == ("sent", 204, 1, None)
    assert delivery["sent_at"] and delivery["fault"] == ""
    assert not any(secret.encode() in each.content for each in (listed, sent, deliveries)), "it is shown once"
    assert f"created webhook {new['id']}" in caplog.text, "otherwise nothing was logged"
    assert secret not in caplog.text and receiver.url not in caplog.text

    WebhookEndpoint.objects.update(created_by=2**30)  # the account was deleted
    assert operator.get(WEBHOOKS).json()["results"] == [new | {"created_by": None}]
    removed = operator.delete(address)
    assert (removed.status_code, removed.content) == (204, b"")
    assert not WebhookEndpoint.objects.exists() and operator.get(DELIVERIES).json()["count"] == 0
    assert operator.delete(address).status_code == 404


def test_other_studies_and_tokens_without_the_scope_have_no_access_to_webhooks(ward, receiver, client) -> None:
    """A token that only reads has no access, either, because an address can contain another program's key."""
    elsewhere = study_open("elsewhere")
    membership_add(study=elsewhere, user=user_create("operator elsewhere"), role=Role.OPERATOR, acting_user=None)
    pk, good, operator = made(ward, receiver), {"url": receiver.url, "events": ["run.failed"]}, client("operator")
    ApiToken.objects.update(scopes=[scope for scope in Scope.values if scope != Scope.WEBHOOKS])
    stranger = client("operator elsewhere")
    for asking, status, words in ((stranger, 404, "no such study"), (operator, 403, "not have the scope “webhooks”")):
        for answer in (
            asking.get(WEBHOOKS),
            asking.post(WEBHOOKS, good, format="json"),
            asking.get(DELIVERIES),
            asking.post(f"{WEBHOOKS}/{pk}/test"),
            asking.delete(f"{WEBHOOKS}/{pk}"),
        ):
            assert answer.status_code == status and words in answer.json()["detail"]
    assert WebhookEndpoint.objects.get().pk == pk and not WebhookDelivery.objects.exists()


def test_a_closed_study_gets_no_webhook(ward: Study, receiver: Receiver, client: Client) -> None:
    Study.objects.filter(pk=ward.pk).update(closed_at=timezone.now())
    answer = client("operator").post(WEBHOOKS, {"url": receiver.url, "events": ["run.failed"]}, format="json")
    assert answer.status_code == 400 and "This study is closed" in errors(answer)[""]
    assert not WebhookEndpoint.objects.exists()
