"""What the installation watches of itself: parts that are wrong are mailed, and signs of life end."""

import ssl
import threading
from collections import namedtuple
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.contrib.auth.models import User
from django.utils import timezone

from common.models import BackupRecord, Pulse
from consent.models import Administrator, Mail
from consent.services.mail import mail_render
from ipate_web import watching
from ipate_web.tasks import watch
from tests.factories import study_create, user_create

pytestmark = pytest.mark.django_db

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def _all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    BackupRecord.objects.create(made_at=timezone.now(), encrypted=True)
    monkeypatch.setattr(watching.shutil, "disk_usage", lambda path: Usage(100, 50, 50))


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch, settings: Any) -> list[str]:
    """Addresses that got a sign of life."""
    requests: list[str] = []

    def post(url: str, body: bytes, headers: object) -> int:
        requests.append(url)
        return 200

    settings.SIGN_OF_LIFE_URL = "https://monitor.example/ping/{name}?clinic"
    monkeypatch.setattr(watching, "post", post)
    return requests


def later(monkeypatch: pytest.MonkeyPatch, **passed: float) -> None:
    now = timezone.now() + timedelta(**passed)
    monkeypatch.setattr(watching.timezone, "now", lambda: now)


def test_every_part_that_is_well_gives_a_sign_of_life(signs: list[str]) -> None:
    watch()
    parts = ["backup", "beat", "certificate", "disk", "verification"]
    assert sorted(signs) == [f"https://monitor.example/ping/{name}?clinic" for name in parts]
    assert not Mail.objects.exists()


def test_a_part_that_is_wrong_gives_none(signs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching.shutil, "disk_usage", lambda path: Usage(100, 91, 9))
    BackupRecord.objects.all().delete()
    watch()
    assert sorted(url.split("/")[-1] for url in signs) == ["beat?clinic", "certificate?clinic", "verification?clinic"]


def test_a_monitor_that_does_not_answer_stops_nothing(signs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def post(*_: object) -> int:
        raise OSError("no route")

    monkeypatch.setattr(watching, "post", post)
    watch()
    assert Pulse.objects.filter(name="beat").exists()


def test_silence_of_beat_is_noticed_from_the_first_study_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watching.PARTS["beat"].state() == "ok", "nothing is there to be done"
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


def test_the_mail_says_what_is_wrong_and_nothing_when_it_is_mended() -> None:
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
def tls(tmp_path: Path) -> Iterator[Any]:
    """Starts a server whose certificate, signed by nobody known, ends after so long; its port."""
    stops = []

    def serve(valid: timedelta) -> int:
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        made = (
            builder.not_valid_before(now - timedelta(days=90)).not_valid_after(now + valid).sign(key, hashes.SHA256())
        )
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        (tmp_path / "both.pem").write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "both.pem")
        listener = create_server(("127.0.0.1", 0))
        stops.append(listener)

        def answer() -> None:
            try:
                with context.wrap_socket(listener.accept()[0], server_side=True) as secure:
                    secure.recv(1)
            except OSError:
                return

        threading.Thread(target=answer, daemon=True).start()
        return listener.getsockname()[1]

    yield serve
    for listener in stops:
        listener.close()


@pytest.mark.parametrize(("days", "state"), [(15, "ok"), (13, "ends soon"), (-1, "ends soon")])
def test_a_certificate_that_ends_soon_is_seen(tls: Any, settings: Any, days: int, state: str) -> None:
    settings.SITE_URL = f"https://127.0.0.1:{tls(timedelta(days=days))}"
    watch()
    assert watching.PARTS["certificate"].state() == state
    # It is not looked at again within the hour: the server takes one connection alone.
    watch()
    assert watching.PARTS["certificate"].state() == state


def test_a_site_that_does_not_answer_has_no_certificate_to_judge(settings: Any) -> None:
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings.SITE_URL = f"https://127.0.0.1:{port}"
    watch()
    assert watching.PARTS["certificate"].state() == "ok" and not Pulse.objects.filter(name="certificate").exists()
