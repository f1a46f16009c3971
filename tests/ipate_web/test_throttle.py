"""Failed sign-ins and wrong invitation codes are limited across all processes."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from django.conf import settings as site_settings
from django.db import transaction
from django.test import Client, RequestFactory
from django.utils import timezone

from common.models import ThrottleEntry
from common.requests import client_address
from common.tasks import throttle_sweep
from common.throttle import Counter, TooManyTriesError, attempt_begin, counters_check, keyed_hash
from tests import factories
from tests.training.test_concurrency import at_once

TRIES = 5
SIGN_IN, JOIN = "/sign-in/", "/join/"


def statuses(path: str, fields: dict[str, str], times: int) -> list[int]:
    """Submit a page's form ``times`` times; return the status codes (the page's own if it shows no form)."""
    client = Client(enforce_csrf_checks=True)
    page = client.get(path)
    if page.status_code != 200:
        return [page.status_code] * times
    sent = {**fields, "csrfmiddlewaretoken": client.cookies["csrftoken"].value}
    return [client.post(path, sent).status_code for _ in range(times)]


@pytest.fixture
def fields(transactional_db: None, settings) -> dict[str, dict[str, str]]:
    """Return the wrong values for each page."""
    settings.SIGN_IN_TRIES = settings.INVITATION_TRIES = TRIES
    factories.user_create("root", is_superuser=True, is_staff=True)
    return {SIGN_IN: {"login": "root", "password": "wrong"}, JOIN: {"code": "a" * 32}}


def test_tries_at_the_same_time_do_not_exceed_the_limit(fields: dict[str, dict[str, str]]) -> None:
    for path, wrong in fields.items():
        first, second = at_once([partial(statuses, path, wrong, 2 * TRIES)] * 2)
        codes = first + second
        # If two requests compete for the last attempt, both may be refused.
        assert 0 < len(codes) - codes.count(429) <= TRIES


@pytest.fixture
def limits(settings) -> None:
    settings.SIGN_IN_TRIES, settings.SIGN_IN_TRIES_NAME, settings.SIGN_IN_TRIES_ADDRESS = 2, 4, 6


def sign_in(name: str = "hanna", password: str = "wrong", *, address: str = "203.0.113.7"):
    return Client(REMOTE_ADDR=address).post(SIGN_IN, {"login": name, "password": password})


@pytest.mark.django_db
def test_the_answer_says_how_long_to_wait(limits: None) -> None:
    for _ in range(2):
        sign_in()
    recorded = ThrottleEntry.objects.count()
    answer = sign_in()
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= 900
    assert "Wait 15 minutes, then try again." in answer.text
    assert ThrottleEntry.objects.count() == recorded, "further tries do not prolong it"


@pytest.mark.django_db
def test_a_lock_is_for_one_name_from_one_address(limits: None) -> None:
    """The name and address of an account count as the same, in any spelling."""
    factories.user_create("hanna", email="hanna@example.org")
    factories.user_create("otto")
    for name in ("hanna", "Hanna@example.org"):
        sign_in(name)
    for name in ("hanna", "HANNA", "hanna@example.org"):
        assert sign_in(name, factories.PASSWORD).status_code == 429, name
    assert sign_in("otto", factories.PASSWORD).status_code == 302
    assert sign_in("hanna", factories.PASSWORD, address="198.51.100.1").status_code == 302


@pytest.mark.django_db
def test_guesses_from_many_addresses_or_for_many_names_are_limited(limits: None) -> None:
    factories.user_create("hanna")
    for n in range(4):
        assert sign_in(address=f"198.51.100.{n}").status_code == 200
    assert sign_in("hanna", factories.PASSWORD, address="192.0.2.1").status_code == 429
    ThrottleEntry.objects.all().delete()
    for n in range(6):
        assert sign_in(f"somebody{n}").status_code == 200
    assert sign_in("hanna", factories.PASSWORD).status_code == 429


@pytest.mark.django_db
def test_guesses_by_others_do_not_lock_out_a_known_address(limits: None) -> None:
    factories.user_create("hanna")
    home = "192.0.2.1"
    assert sign_in("hanna", factories.PASSWORD, address=home).status_code == 302
    for n in range(5):
        sign_in("hanna", address=f"198.51.100.{n}")
    for n in range(7):
        sign_in(f"neighbour{n}", address=home)
    assert sign_in("hanna", address="198.51.100.9").status_code == 429
    assert sign_in("otto", address=home).status_code == 429
    assert sign_in("hanna", factories.PASSWORD, address=home).status_code == 302


@pytest.mark.django_db
def test_signing_in_resets_only_the_users_own_failures(limits: None) -> None:
    """Guessers with an account cannot reset the count for other names."""
    for name in ("hanna", "mallory"):
        factories.user_create(name)
    for _ in range(3):
        assert sign_in("hanna").status_code == 200
        assert sign_in("hanna", factories.PASSWORD).status_code == 302
    for _ in range(2):
        assert sign_in("otto").status_code == 200
        assert sign_in("mallory", factories.PASSWORD).status_code == 302
    assert sign_in("otto").status_code == 429


@pytest.mark.django_db
def test_responses_do_not_reveal_whether_an_account_exists(limits: None) -> None:
    factories.user_create("hanna")
    factories.user_create("olga-1", is_staff=True)
    factories.user_create("former-2", is_active=False)

    def page(name: str) -> tuple[int, str]:
        client = Client(REMOTE_ADDR=f"198.51.100.{len(name)}")
        answer = client.post(SIGN_IN, {"login": name, "password": "wrong"})
        return answer.status_code, re.sub(r'value="\w{64}"', "TOKEN", answer.text.replace(name, "NAME"))

    for _ in range(3):
        answers = {page(name) for name in ("hanna", "olga-1", "former-2", "nobody-3")}
        assert len(answers) == 1
    assert answers.pop()[0] == 429


@pytest.mark.django_db
def test_nothing_secret_is_recorded(limits: None) -> None:
    factories.user_create("hanna")
    sign_in("hanna", "a mistyped pass phrase")
    sign_in("my pass phrase in the wrong field", "x")
    sign_in("hanna", factories.PASSWORD)
    recorded = str(list(ThrottleEntry.objects.values()))
    for secret in ("hanna", "pass phrase", "203.0.113.7", factories.PASSWORD):
        assert secret not in recorded


@pytest.mark.django_db
def test_the_sweep_deletes_expired_failures(limits: None) -> None:
    sign_in()
    throttle_sweep()
    assert ThrottleEntry.objects.count() == 3
    ThrottleEntry.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    throttle_sweep()
    assert not ThrottleEntry.objects.exists()
    scheduled = [entry["task"] for entry in site_settings.CELERY_BEAT_SCHEDULE.values()]
    assert throttle_sweep.name in scheduled


@pytest.mark.django_db(transaction=True)
def test_a_try_is_not_recorded_inside_of_a_transaction_that_others_cannot_see() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        attempt_begin([Counter(keyed_hash("x"), 1, timedelta(minutes=1))])


@pytest.mark.django_db
def test_the_time_to_wait_is_until_the_oldest_of_the_counted_failures_expires(settings) -> None:
    counter = Counter(keyed_hash("x"), 2, timedelta(minutes=1))
    now = timezone.now()
    for minutes in (1, 2, 3):
        ThrottleEntry.objects.create(key=counter.key, expires_at=now + timedelta(minutes=minutes))
    with pytest.raises(TooManyTriesError) as error:
        attempt_begin([counter])
    assert error.value.until == now + timedelta(minutes=2)


@pytest.mark.parametrize(
    ("remote", "forwarded", "behind_proxy", "address"),
    [
        ("203.0.113.7", "", False, "203.0.113.7"),
        ("203.0.113.7", "192.0.2.1", False, "203.0.113.7"),
        ("127.0.0.1", "192.0.2.1", True, "192.0.2.1"),
        ("127.0.0.1", "10.1.1.1, 192.0.2.1", True, "192.0.2.1"),
        ("127.0.0.1", "", True, "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "", False, "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "", False, "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "", False, "192.0.2.1"),
        ("", "", False, ""),
    ],
)
def test_the_address_is_the_proxys_word_only_behind_a_proxy(settings, remote, forwarded, behind_proxy, address) -> None:
    settings.BEHIND_PROXY = behind_proxy
    headers = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    assert client_address(RequestFactory().get("/", REMOTE_ADDR=remote, **headers)) == address


@pytest.mark.django_db
def test_the_next_try_is_possible_once_every_limit_has_room() -> None:
    now, hour = timezone.now(), timedelta(hours=1)
    for key, minutes in (("address", 10), ("address", 30), ("address", 20), ("account", 15)):
        ThrottleEntry.objects.create(key=key, expires_at=now + timedelta(minutes=minutes))
    with pytest.raises(TooManyTriesError) as refused:
        counters_check([Counter("address", 1, hour), Counter("account", 1, hour)])
    assert refused.value.until == now + timedelta(minutes=30)


@pytest.mark.exhaustive
@pytest.mark.skipif(not site_settings.BROKER_URL.startswith("redis"), reason="processes share counts over Redis")
def test_processes_that_share_redis_count_requests_together() -> None:
    query = f"""
import django; django.setup()
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory
from rest_framework.throttling import AnonRateThrottle
class Limit(AnonRateThrottle):
    scope, rate = "{uuid4()}", "3/min"
print([Limit().allow_request(Request(APIRequestFactory().get("/")), None) for _ in range(2)])
"""
    environment = {"IPATE_CACHE_URL": site_settings.BROKER_URL, "DJANGO_SETTINGS_MODULE": "ipate_web.settings"}
    command, own = [sys.executable, "-c", query], os.environ | environment
    said = [subprocess.run(command, env=own, capture_output=True, text=True).stdout for _process in range(2)]
    assert said == ["[True, True]\n", "[True, False]\n"]
