"""Failed sign-ins and wrong invitation codes are limited, in all processes together."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.conf import settings as site_settings
from django.db import transaction
from django.test import Client, RequestFactory
from django.utils import timezone

from common.models import ThrottleEntry
from common.requests import client_address
from common.tasks import throttle_sweep
from common.throttle import Counter, TooManyTriesError, attempt_begin, keyed_hash
from consent.services.invitations import invitations_create
from tests import factories
from tests.databases import database_url

pytestmark = pytest.mark.slow

TRIES = 5
SIGN_IN, JOIN = "/sign-in/", "/join/"


def time_passes() -> None:
    """The cool-off ends for all that is recorded."""
    ThrottleEntry.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


# --- Two processes --------------------------------------------------------------------------------------------------


class BrowserProcess:
    """Drives tests/ipate_web/browser_process.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._line() == "ready\n"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def begin(self, path: str, fields: dict[str, str], times: int = 1) -> None:
        """Send the requests without waiting for the answers."""
        assert self.process.stdin is not None
        print(json.dumps([path, fields, times]), file=self.process.stdin, flush=True)

    def end(self) -> list[int]:
        """The status codes of what was begun."""
        return json.loads(self._line())

    def post(self, path: str, fields: dict[str, str], times: int = 1) -> list[int]:
        self.begin(path, fields, times)
        return self.end()


@pytest.fixture(scope="module")
def processes(django_db_setup: None, django_db_blocker) -> Iterator[tuple[BrowserProcess, BrowserProcess]]:
    """Two processes of the site, on the tests' database."""
    with django_db_blocker.unblock():
        url = database_url()
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": url,
        "IPATE_SIGN_IN_TRIES": str(TRIES),
        "IPATE_INVITATION_TRIES": str(TRIES),
    }
    command = [sys.executable, "-m", "tests.ipate_web.browser_process"]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=site_settings.BASE_DIR,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for _ in range(2)
        ]
        yield BrowserProcess(started[0]), BrowserProcess(started[1])


@pytest.fixture
def fields(transactional_db: None) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """For each page: what is wrong, and what is right."""
    factories.user_create("root", is_superuser=True, is_staff=True)
    study = factories.study_open()
    (invitation,) = invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    wrong = {"login": "root", "password": "wrong"}
    right = {"login": "root", "password": factories.PASSWORD}
    return {
        SIGN_IN: (wrong, right),
        JOIN: ({"code": "a" * 32}, {"code": invitation.code}),
    }


@pytest.mark.parametrize("path", [SIGN_IN, JOIN])
def test_the_limit_holds_across_processes_and_ends(processes, fields, path: str) -> None:
    one, other = processes
    wrong, right = fields[path]
    judged = 422 if path == JOIN else 200
    assert one.post(path, wrong, 3) == [judged] * 3
    assert other.post(path, wrong, 2) == [judged] * 2
    for process in processes:
        assert process.post(path, wrong) == [429]
        assert process.post(path, right) == [429]
    time_passes()
    assert one.post(path, wrong) == [judged]
    assert other.post(path, right) == [302]


@pytest.mark.parametrize("path", [SIGN_IN, JOIN])
def test_tries_at_the_same_time_do_not_exceed_the_limit(processes, fields, path: str) -> None:
    wrong, _right = fields[path]
    for process in processes:
        process.begin(path, wrong, 3 * TRIES)
    codes = [code for process in processes for code in process.end()]
    # Two that meet at the last place may both be refused.
    assert 0 < len(codes) - codes.count(429) <= TRIES


# --- Who is locked, and who is not ----------------------------------------------------------------------------------


@pytest.fixture
def limits(settings) -> None:
    settings.SIGN_IN_TRIES, settings.SIGN_IN_TRIES_NAME, settings.SIGN_IN_TRIES_ADDRESS = 2, 4, 6


def sign_in(name: str = "hanna", password: str = "wrong", *, address: str = "203.0.113.7"):
    return Client(REMOTE_ADDR=address).post(SIGN_IN, {"login": name, "password": password})


@pytest.mark.django_db
def test_the_answer_says_how_long_to_wait(limits: None) -> None:
    for _ in range(2):
        sign_in()
    answer = sign_in()
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= 900
    assert "Wait 15 minutes, then try again." in answer.text
    assert "Go to the start page" in answer.text


@pytest.mark.django_db
def test_the_admin_has_no_sign_in_of_its_own(limits: None) -> None:
    factories.user_create("root", is_superuser=True, is_staff=True)
    sent = Client().post("/admin/login/", {"username": "root", "password": factories.PASSWORD})
    assert sent.url == "/sign-in/?next=%2Fadmin%2Flogin%2F"


@pytest.mark.django_db
def test_name_and_address_of_an_account_count_as_one(limits: None) -> None:
    factories.user_create("hanna", email="hanna@example.org")
    sign_in("hanna")
    sign_in("Hanna@example.org")
    for name in ("hanna", "hanna@example.org"):
        assert sign_in(name, factories.PASSWORD).status_code == 429


@pytest.mark.django_db
def test_the_answer_is_in_the_readers_language(limits: None) -> None:
    client = Client(headers={"accept-language": "de"})
    for _ in range(3):
        answer = client.post(SIGN_IN, {"login": "hanna", "password": "wrong"})
    assert "Warten Sie 15 Minuten und versuchen Sie es dann noch einmal." in answer.text


@pytest.mark.django_db
def test_a_lock_is_for_one_name_from_one_address(limits: None) -> None:
    for name in ("hanna", "otto"):
        factories.user_create(name)
    for _ in range(2):
        sign_in("hanna")
    assert sign_in("hanna", factories.PASSWORD).status_code == 429
    assert sign_in("HANNA").status_code == 429
    assert sign_in("otto", factories.PASSWORD).status_code == 302
    assert sign_in("hanna", factories.PASSWORD, address="198.51.100.1").status_code == 302


@pytest.mark.django_db
def test_guesses_from_many_addresses_are_limited(limits: None) -> None:
    factories.user_create("hanna")
    for n in range(4):
        assert sign_in(address=f"198.51.100.{n}").status_code == 200
    assert sign_in("hanna", factories.PASSWORD, address="192.0.2.1").status_code == 429


@pytest.mark.django_db
def test_guesses_for_many_names_are_limited(limits: None) -> None:
    factories.user_create("hanna")
    for n in range(6):
        assert sign_in(f"somebody{n}").status_code == 200
    assert sign_in("hanna", factories.PASSWORD).status_code == 429


@pytest.mark.django_db
def test_guesses_of_others_do_not_lock_out_a_known_browser(limits: None) -> None:
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
def test_waiting_is_not_prolonged_by_further_tries(limits: None) -> None:
    factories.user_create("hanna")
    for _ in range(2):
        sign_in()
    recorded = ThrottleEntry.objects.count()
    assert sign_in().status_code == 429
    assert ThrottleEntry.objects.count() == recorded


@pytest.mark.django_db
def test_signing_in_forgives_ones_own_mistakes_and_no_others(limits: None) -> None:
    """A guesser with an account of their own cannot set the count for other names back."""
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
def test_answers_do_not_tell_whether_there_is_an_account(limits: None) -> None:
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
def test_the_sweep_deletes_what_counts_no_more(limits: None) -> None:
    sign_in()
    throttle_sweep()
    assert ThrottleEntry.objects.count() == 3
    time_passes()
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


# --- Where a request comes from -------------------------------------------------------------------------------------


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
def test_the_address_is_the_proxys_word_only_behind_a_proxy(
    settings, remote: str, forwarded: str, behind_proxy: bool, address: str
) -> None:
    settings.BEHIND_PROXY = behind_proxy
    headers = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    assert client_address(RequestFactory().get("/", REMOTE_ADDR=remote, **headers)) == address


@pytest.mark.django_db
def test_a_forged_header_does_not_evade_the_limit(limits: None) -> None:
    codes = [
        Client(REMOTE_ADDR="203.0.113.7", HTTP_X_FORWARDED_FOR=f"10.0.0.{n}")
        .post(SIGN_IN, {"login": "hanna", "password": "wrong"})
        .status_code
        for n in range(3)
    ]
    assert codes == [200, 200, 429]
