"""Webhooks through a real HTTPS server: what is sent and signed, refused addresses, and retries."""

import json
import logging
import re
import socket
import threading
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone
from ipate_client import SignatureError, signature_verify

from common import outbound
from consent import services
from consent.models import Study, WebhookDelivery, WebhookEndpoint
from consent.services.webhooks import (
    EVENTS,
    KEPT,
    TRIES,
    MadeEndpoint,
    endpoint_create,
    endpoint_test,
    webhooks_deliver,
)
from tests import factories
from tests.factories import user_create
from tests.hooks import Receiver, certificate_make, receiver, serving
from tests.pages import as_
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_with_table
from training.models import Run
from training.services.runs import run_cancel, run_fail

__all__ = ["receiver"]

pytestmark = pytest.mark.django_db


def made(study: Study, url: str, events: list[str] | None = None) -> MadeEndpoint:
    olga = user_create("olga")
    return endpoint_create(study=study, url=url, events=events or list(EVENTS), acting_user=olga)


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _headers, body in receiver.received]


def sent(receiver: Receiver) -> None:
    """Retry waiting messages now, even if they are not due."""
    WebhookDelivery.objects.update(due_at=timezone.now())
    webhooks_deliver()


def test_a_message_is_signed_so_that_the_client_knows_it(study: Study, receiver: Receiver) -> None:
    new = made(study, receiver.url)
    delivery = endpoint_test(endpoint=new.endpoint)
    webhooks_deliver()
    ((headers, body),) = receiver.received
    signature_verify(body, headers, new.secret)
    told, address = json.loads(body), "http://127.0.0.1:8000/studies/digits/webhooks/"
    assert told == {"id": str(delivery.pk), "event": "test", "at": told["at"], "study": study.slug, "url": address}
    assert (headers["X-IPATE-Event"], headers["X-IPATE-Delivery"]) == ("test", str(delivery.pk))
    stored = WebhookDelivery.objects.get()
    assert (stored.state, stored.status, stored.tries, stored.fault) == ("sent", 204, 1, "")
    webhooks_deliver()
    assert len(receiver.received) == 1, "a delivered message is not sent again"

    for changed, also, secret, words in (
        (body + b" ", {}, new.secret, "changed"),
        (body, {}, new.secret + "x", "secret"),
        (body, {"X-IPATE-Timestamp": "1"}, new.secret, "changed"),
        (body, {"X-IPATE-Timestamp": "٣"}, new.secret, "timestamp"),
        (body, {"X-IPATE-Signature": "v1=é"}, new.secret, "secret"),
        (body, {"X-IPATE-Timestamp": ""}, new.secret, "timestamp"),
    ):
        with pytest.raises(SignatureError, match=words):
            signature_verify(changed, headers | also, secret)
    with pytest.raises(SignatureError, match="too old"):
        signature_verify(body, headers, new.secret, now=int(headers["X-IPATE-Timestamp"]) + 301)

    guide = Path(__file__).parents[2].joinpath("docs/webhooks.md").read_text()
    scope: dict[str, Any] = {"SECRET": new.secret}
    for code in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
        exec(code, scope)
    assert (scope["receive"](body, headers), scope["receive"](body + b" ", headers)) == (204, 403)
    assert (scope["is_genuine"](body, headers), scope["is_genuine"](body + b" ", headers)) == (True, False)


def test_proposals_and_approvals_reveal_nothing_about_people(study: Study, receiver: Receiver) -> None:
    made(study, receiver.url)
    made(study, receiver.url, ["run.failed"])
    made(factories.study_open("elsewhere"), receiver.url)
    factories.holder_create(study, "P-secret")
    factories.policy_approve(study, high=0.5)
    proposal = factories.form_propose(study, {"en": "More is asked.", "de": "Mehr."})
    services.consent_form_approve(proposal=proposal, acting_user=user_create("conrad"))
    webhooks_deliver()
    entries = [(each["study"], each["event"]) for each in bodies(receiver)]
    # The other study's policy and form existed before it had a webhook.
    told = ("policy.proposed", "policy.approved", "form.proposed", "form.published")
    assert entries == [(study.slug, event) for event in told]
    text = json.dumps(bodies(receiver))
    for secret in ("P-secret", "olga", "carla", "conrad", "HIGH", "More is asked"):
        assert secret not in text


def test_webhooks_receive_the_states_of_runs_and_each_limit_of_a_share_once(receiver: Receiver) -> None:
    study = study_with_table()
    made(study, receiver.url)
    run = run_finish(run_start(study, share=0.5, **TABLE_RUN))
    assert run.stop_reason == Run.StopReason.SHARE
    failing = run_start(study, share=0.1, **TABLE_RUN)
    run_fail(failing.pk, "A reason for staff.")
    run_cancel(run=run_draft(study, **TABLE_RUN), acting_user=user_create("olga"))
    webhooks_deliver()
    sent = bodies(receiver)
    states = [(each["event"], each["run"]["status"]) for each in sent if each["event"] != "share.used"]
    until_run = [("run.proposed", "draft"), ("run.approved", "approved")]
    assert states == [
        *(*until_run, ("run.finished", "finished")),
        *(*until_run, ("run.failed", "failed")),
        *(("run.proposed", "draft"), ("run.cancelled", "cancelled")),
    ]
    assert sent[0]["url"] == f"http://127.0.0.1:8000/studies/table/runs/{run.pk}/"
    assert "A reason for staff." not in json.dumps(sent)
    used = [group for each in sent if each["event"] == "share.used" for group in each["groups"]]
    shares = [(group["group"], group["share"]) for group in used]
    assert shares, "a run that used all of its share has passed every limit"
    assert len(shares) == len(set(shares)) and 1.0 in {share for _group, share in shares}
    assert {group for group, _share in shares} <= {group["name"] for group in run.plan["groups"]}


def test_failed_deliveries_are_repeated_until_they_arrive_or_are_dropped(study, receiver, caplog) -> None:
    new = made(study, receiver.url)
    receiver.answer, receiver.headers = 302, {"Location": receiver.url}
    delivery = endpoint_test(endpoint=new.endpoint)
    waits = []
    with caplog.at_level(logging.DEBUG):
        for _ in range(TRIES):
            begun = timezone.now()
            sent(receiver)
            waits.append(WebhookDelivery.objects.get().due_at - begun)
    assert len(receiver.received) == TRIES, "a redirection is not followed"
    assert len({body for _headers, body in receiver.received}) == 1
    for wait, minutes in zip(waits, (1, 2, 4, 8), strict=False):
        assert timedelta(minutes=minutes) <= wait < 1.3 * timedelta(minutes=minutes)
    stored = WebhookDelivery.objects.get(pk=delivery.pk)
    assert (stored.state, stored.status, stored.tries) == ("failed", 302, TRIES)
    sent(receiver)
    assert len(receiver.received) == TRIES

    receiver.answer, receiver.headers = 503, {"Retry-After": "7200"}
    asked = endpoint_test(endpoint=new.endpoint)
    begun = timezone.now()
    webhooks_deliver()
    wait = WebhookDelivery.objects.get(pk=asked.pk).due_at - begun
    assert timedelta(hours=2) <= wait < timedelta(hours=3)
    asked.delete()
    for secret in (new.secret, new.endpoint.secret, receiver.url):
        assert secret not in caplog.text

    receiver.received.clear()
    receiver.answer = 503
    delivery = endpoint_test(endpoint=new.endpoint)
    webhooks_deliver()
    webhooks_deliver()  # not due yet
    receiver.answer = 200
    sent(receiver)
    assert [WebhookDelivery.objects.get(pk=delivery.pk).state, len(receiver.received)] == ["sent", 2]
    first, second = receiver.received
    assert first[1] == second[1]
    signature_verify(*reversed(second), new.secret)


def test_an_unavailable_receiver_delays_no_other(study: Study, receiver: Receiver) -> None:
    new = made(study, receiver.url)
    with socket.socket() as deaf:  # it occupies the port, but does not listen
        deaf.bind(("127.0.0.1", 0))
        gone = made(study, f"https://localhost:{deaf.getsockname()[1]}/")
        for each in (gone, new):
            endpoint_test(endpoint=each.endpoint)
        webhooks_deliver()
    assert len(receiver.received) == 1
    assert WebhookDelivery.objects.get(endpoint=gone.endpoint).fault == "ConnectionRefusedError"


def test_a_certificate_for_another_host_is_refused(study, receiver, tmp_path, monkeypatch) -> None:
    pem = certificate_make(tmp_path, "elsewhere.example")
    with serving(Receiver(), pem) as other:
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        endpoint_test(endpoint=made(study, other.url).endpoint)
        webhooks_deliver()
        assert other.received == []
    assert WebhookDelivery.objects.get().fault == "SSLCertVerificationError"


def test_an_endless_response_is_aborted(study, receiver, monkeypatch) -> None:
    """The server accepts the connection and then sends nothing for longer than the limit."""
    monkeypatch.setattr(outbound, "WHOLE", 0.2)
    held = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connected, _ = server.accept()
            with connected:
                held.wait(30)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        endpoint_test(endpoint=made(study, f"https://localhost:{server.getsockname()[1]}/").endpoint)
        monkeypatch.setattr(outbound, "STEP", 0.6)
        webhooks_deliver()
        held.set()
        thread.join()
    assert WebhookDelivery.objects.get().state == "waiting"
    assert WebhookDelivery.objects.get().fault


REFUSED = {
    "starts with https://": ["http://hooks.example.org/", "ftp://hooks.example.org/"],
    "without a password": [
        *("https://user:word@hooks.example.org/", "https:///path", "https://localhost:99999/"),
        "https://localhost/#part",
    ],
    "private address": [
        *("https://127.0.0.1/", "https://localhost/", "https://0.0.0.0/", "https://10.1.2.3/", "https://2130706433/"),
        *("https://169.254.169.254/latest/meta-data", "https://[::1]/", "https://[::ffff:10.0.0.1]/"),
        *("https://[64:ff9b::a00:1]/", "https://[2002:a00:1::]/"),
    ],
    "This host name is unknown": ["https://nowhere.invalid/"],
    "port 443": ["https://8.8.8.8:8443/"],
}


def test_webhooks_go_to_public_addresses_and_those_that_are_allowed(study: Study, settings: Any) -> None:
    for words, urls in REFUSED.items():
        for url in urls:
            with pytest.raises(ValidationError, match=words):
                made(study, url)
    with pytest.raises(ValidationError, match="at least one event"):
        made(study, "https://8.8.8.8/", ["run.exploded"])
    assert not WebhookEndpoint.objects.exists()
    settings.WEBHOOK_NETWORKS = [ip_network("10.1.0.0/16")]
    allowed = ("8.8.8.8", "2606:4700:4700::1111", "10.1.2.3", "::ffff:8.8.8.8", "::ffff:10.1.2.3")
    refused = ("10.2.0.1", "192.168.1.1", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "fd00::1", "::")
    refused += ("fec0::1", "3fff::1", "192.88.99.1", "::ffff:192.88.99.1")
    assert [each for each in allowed if not outbound.is_allowed(ip_address(each))] == []
    assert [each for each in refused if outbound.is_allowed(ip_address(each))] == []


def test_a_host_name_that_changes_to_a_private_address_is_refused(study, receiver, settings, monkeypatch) -> None:
    """A resolver returns a public address at first, and a private one for each later request."""
    endpoint = made(study, receiver.url).endpoint
    settings.WEBHOOK_NETWORKS = []
    monkeypatch.setattr(outbound, "_PORT", urlsplit(receiver.url).port)
    endpoint_test(endpoint=endpoint)
    webhooks_deliver()
    assert WebhookDelivery.objects.get().fault == "address not allowed"
    requests, connected = [], []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        requests.append(host)
        address = "93.184.215.14" if len(requests) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def connect(address: tuple[str, int], **_: Any) -> Any:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(outbound.socket, "getaddrinfo", resolve)
    monkeypatch.setattr(outbound.socket, "create_connection", connect)
    sent(receiver)
    assert (len(requests), connected) == (1, ["93.184.215.14"])


def test_a_secret_is_stored_encrypted_and_shown_once(study: Study, receiver: Receiver) -> None:
    client, path = as_("olga"), "/studies/digits/webhooks/"
    for sent, says in (
        ({"url": "http://x"}, "Choose at least one event."),
        ({"url": "https://10.0.0.1/", "events": ["run.failed"]}, "This host has a private address."),
    ):
        refused = client.post(path, sent)
        assert refused.status_code == 422 and says in refused.text
    page = client.post(path, {"url": receiver.url, "events": ["run.failed"]})
    assert "no-store" in page["Cache-Control"]
    (secret,) = re.findall(r"whsec_[\w-]{43}", page.text)
    assert secret not in client.get(path).text
    with connection.cursor() as cursor:
        cursor.execute("SELECT secret FROM consent_webhookendpoint")
        assert secret not in cursor.fetchone()[0]
    endpoint = WebhookEndpoint.objects.get()
    assert client.post(f"{path}{endpoint.pk}/test/").status_code == 302
    webhooks_deliver()
    headers, body = receiver.received[0]
    signature_verify(body, headers, secret)
    client.post(f"{path}{endpoint.pk}/remove/")
    assert not WebhookDelivery.objects.exists()


def test_old_deliveries_are_forgotten(study: Study, receiver: Receiver) -> None:
    endpoint = made(study, receiver.url).endpoint
    old = endpoint_test(endpoint=endpoint)
    webhooks_deliver()
    WebhookDelivery.objects.filter(pk=old.pk).update(created_at=timezone.now() - KEPT - timedelta(days=1))
    new = endpoint_test(endpoint=endpoint)
    webhooks_deliver()
    assert WebhookDelivery.objects.get() == new


def test_a_secret_survives_a_new_secret_key(study: Study, receiver: Receiver, settings: Any) -> None:
    new = made(study, receiver.url)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    endpoint_test(endpoint=new.endpoint)
    webhooks_deliver()
    signature_verify(*reversed(receiver.received[0]), new.secret)
    settings.SECRET_KEY_FALLBACKS = []
    endpoint_test(endpoint=new.endpoint)
    webhooks_deliver()
    assert WebhookDelivery.objects.get(state="waiting").fault == "InvalidToken"
