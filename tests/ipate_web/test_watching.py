"""Self-monitoring of the installation: problems are mailed, and signs of life end."""

import ssl
import threading
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from common.models import BackupRecord, Pulse
from common.outbound import Response
from consent.models import Administrator, Mail
from consent.services import study_update
from consent.services.mail import mail_render
from ipate_web import watching
from ipate_web.watching import watch
from tests.clock import later
from tests.factories import study_create, user_create
from tests.hooks import certificate_make
from tests.training.runs import TABLE_RUN, run_start, study_with_table
from training.services.runs import run_cancel
from training.watch import budgets_watch

pytestmark = pytest.mark.django_db

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def _all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    MigrationRecorder.Migration.objects.update(applied=timezone.now() - timedelta(days=3))
    BackupRecord.objects.create(made_at=timezone.now(), encrypted=True)
    monkeypatch.setattr(watching.shutil, "disk_usage", lambda path: Usage(100, 50, 50))


@pytest.mark.parametrize(("hours", "state"), [(0.1, "ok"), (25.9, "ok"), (26.1, "overdue")])
def test_a_new_installation_has_26_hours_for_its_first_backup(hours: float, state: str) -> None:
    BackupRecord.objects.all().delete()
    MigrationRecorder.Migration.objects.update(applied=timezone.now() - timedelta(hours=hours))
    assert watching.PARTS["backup"].state() == state
    BackupRecord.objects.create(made_at=timezone.now() - timedelta(hours=27), encrypted=True)
    assert watching.PARTS["backup"].state() == "overdue"


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch, settings: Any) -> list[str]:
    """Return the names of the parts that send a sign of life; sending the disk's fails."""
    named: list[str] = []

    def post(url: str, body: bytes, headers: object) -> Response:
        name = url.removeprefix("https://monitor.example/ping/").removesuffix("?clinic")
        named.append(name)
        if name == "disk":
            raise OSError("no route")
        return Response(200)

    settings.SIGN_OF_LIFE_URL = "https://monitor.example/ping/{name}?clinic"
    monkeypatch.setattr(watching, "post", post)
    return named


def test_operators_get_one_mail_for_each_group_that_falls_below_the_threshold() -> None:
    study = study_with_table()
    olga = user_create("olga")
    EmailAddress.objects.create(user=olga, email="olga@example.org", verified=True, primary=True)

    def told() -> int:
        budgets_watch()
        return Mail.objects.filter(kind="budget_low", user=olga).count()

    run_start(study, share=0.5, **TABLE_RUN)
    assert told() == 0, "the study has no threshold"
    study_update(study=study, budget_warning=0.5)
    assert told() == 0, "exactly the threshold is left"
    run = run_start(study, share=0.25, **TABLE_RUN)
    assert [told(), told()] == [1, 1]
    message = mail_render(Mail.objects.get(kind="budget_low", user=olga))
    assert message is not None and "High protection, policy 1: 25.0 %" in message.body
    run_cancel(run=run, acting_user=olga)
    assert told() == 1
    run_start(study, share=0.25, **TABLE_RUN)
    assert told() == 2, "it has risen in the meantime"


def test_parts_without_problems_give_a_sign_of_life(signs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    watch()
    assert sorted(signs) == ["backup", "beat", "certificate", "disk", "verification"]
    assert not Mail.objects.exists() and Pulse.objects.filter(name="beat").exists()
    signs.clear()
    monkeypatch.setattr(watching.shutil, "disk_usage", lambda path: Usage(100, 91, 9))
    BackupRecord.objects.all().delete()
    watch()
    assert sorted(signs) == ["beat", "certificate", "verification"]


def test_silence_of_beat_is_noticed_from_the_first_study_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watching.PARTS["beat"].state() == "ok", "there is nothing to do"
    study_create("one")
    assert watching.PARTS["beat"].state() == "ok"
    later(monkeypatch, minutes=16)
    assert watching.PARTS["beat"].state() == "silent"
    watch()
    assert watching.PARTS["beat"].state() == "ok"


def test_administrators_are_mailed_once_a_day_and_of_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    ada, root = user_create("ada"), User.objects.create_superuser("root")
    Administrator.objects.create(user=ada)
    user_create("olga")
    closed = User.objects.create_superuser("closed", is_active=False)

    def mailed() -> int:
        watch()
        found = Mail.objects.filter(kind="alarm")
        assert set(found.values_list("user_id", flat=True)) <= {ada.pk, root.pk} - {closed.pk}
        return found.count()

    assert mailed() == 0
    BackupRecord.objects.all().delete()
    assert (mailed(), mailed()) == (2, 2)
    monkeypatch.setattr(watching.shutil, "disk_usage", lambda path: Usage(100, 99, 1))
    assert (mailed(), mailed()) == (4, 4), "the disk is new"
    later(monkeypatch, hours=25)
    assert (mailed(), mailed()) == (6, 6)
    BackupRecord.objects.create(made_at=watching.timezone.now(), encrypted=True)
    monkeypatch.setattr(watching.shutil, "disk_usage", lambda path: Usage(100, 50, 50))
    assert mailed() == 6
    BackupRecord.objects.all().delete()
    assert mailed() == 8, "it was well in between"


def test_problems_are_mailed_and_their_end_is_not() -> None:
    ada = user_create("ada")
    EmailAddress.objects.create(user=ada, email="ada@example.org", verified=True, primary=True)
    BackupRecord.objects.all().delete()
    mail = Mail.objects.create(user=ada, kind="alarm")
    message = mail_render(mail)
    assert message is not None and "- No backup has succeeded for 26 hours." in message.body
    assert "disk" not in message.body
    BackupRecord.objects.create(made_at=timezone.now(), encrypted=True)
    assert mail_render(mail) is None


@pytest.fixture
def site_with_tls(tmp_path: Path, settings: Any) -> Iterator[None]:
    """Start a site that accepts one connection, with a certificate valid for a day and signed by nobody known."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate_make(tmp_path))
    with create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True) as secure:
                secure.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        settings.SITE_URL = f"https://127.0.0.1:{listener.getsockname()[1]}"
        yield


def test_a_certificate_that_ends_soon_is_seen(site_with_tls: None, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, days=-14)  # 15 days before it expires
    watch()
    assert watching.PARTS["certificate"].state() == "ok"
    watch()  # which is not checked again within the hour
    for days in (2, 14):  # 13 days before it expires, and a day after
        later(monkeypatch, days=days)
        assert watching.PARTS["certificate"].state() == "ends soon"


def test_a_site_that_does_not_answer_has_no_certificate_to_judge(settings: Any) -> None:
    settings.SITE_URL = "https://127.0.0.1:1"
    watch()
    assert watching.PARTS["certificate"].state() == "ok" and not Pulse.objects.filter(name="certificate").exists()
