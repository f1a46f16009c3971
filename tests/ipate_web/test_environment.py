"""Settings from environment variables, and keys that each have only one purpose."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.mfa.utils import decrypt
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.core.management import CommandError, call_command

from common.journal import acts_read
from common.keys import public_keys
from common.sealed_storage import SealError
from consent.documents.receipts import receipt_event, receipt_number
from consent.models import ChainHead
from consent.services import consent_withdraw
from ipate_web import environment as env
from tests.factories import user_create
from tests.training.runs import study_with_table
from training.engine.records import records_load


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (env.YES_OR_NO, "True", True),
        (env.YES_OR_NO, "off", False),
        (env.LIST, "a, b,,c", ["a", "b", "c"]),
        (env.POSITIVE, "0.5", 0.5),
        (env.SECONDS, "30", 30),
        (env.RATE, "600/min", "600/min"),
        (env.OPTIONS, '{"location": "/srv"}', {"location": "/srv"}),
        (env.SITE, "https://ipate.example/", "https://ipate.example"),
        (env.BROKER, "redis://h:6379/0", "redis://h:6379/0"),
        (env.LOG_LEVEL, "DEBUG", "DEBUG"),
        (env.ZONE, "Europe/Berlin", "Europe/Berlin"),
        (env.MAIL, "console://", {"BACKEND": "console"}),
        (env.MAIL, "file:///srv/mail", {"BACKEND": "filebased", "FILE_PATH": "/srv/mail"}),
        (
            env.MAIL,
            "smtp+tls://site%40clinic:p%2Fw@mail.example",
            {
                **{"BACKEND": "smtp", "HOST": "mail.example", "PORT": 587, "USE_TLS": True, "USE_SSL": False},
                **{"HOST_USER": "site@clinic", "HOST_PASSWORD": "p/w"},
            },
        ),
        (env.MAIL_ADDRESS, "iPATE <noreply@ipate.example>", "iPATE <noreply@ipate.example>"),
    ],
)
def test_variables_are_read_as_their_kind(monkeypatch, kind, text, value) -> None:
    monkeypatch.setenv("IPATE_X", text)
    assert env.read("IPATE_X", kind, default=None) == value


WRONG: list[tuple[env.Kind[Any], tuple[str, ...]]] = [
    (env.YES_OR_NO, ("maybe",)),
    (env.POSITIVE, ("nan", "0", "inf")),
    (env.SECONDS, ("1.5", "-1")),
    (env.RATE, ("60", "0/min")),
    (env.OPTIONS, ("[1]", "{location")),
    (env.SITE, ("ipate.example", "https://ipate.example/below")),
    (env.DATABASE, ("mysql://secret@host/name", "postgres://user:secret@host:5432/", "secret")),
    (env.BROKER, ("localhost:6379",)),
    (env.CACHE, ("secret",)),
    (env.LOG_LEVEL, ("loud",)),
    (env.ZONE, ("Berlin",)),
    (env.MAIL, ("smtp://user:secret@host", "smtp+tls://", "secret")),
    (env.MAIL_ADDRESS, ("secret",)),
    (env.HTTP_URL, ("login.example",)),
]


def test_settings_of_the_wrong_kind_are_refused_by_name_and_not_printed(monkeypatch, recwarn) -> None:
    for kind, text in ((kind, text) for kind, texts in WRONG for text in texts):
        monkeypatch.setenv("IPATE_X", text)
        with pytest.raises(ImproperlyConfigured) as error:
            env.read("IPATE_X", kind, default=None)
        assert str(error.value) == f"IPATE_X should be {kind.wanted}. See docs/operations.md.", text
    assert not recwarn.list


def test_a_variable_that_is_empty_or_missing_leaves_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.read("IPATE_X", env.POSITIVE, default=7.0) == 7.0
    monkeypatch.setenv("IPATE_X", " ")
    assert env.read("IPATE_X", env.POSITIVE, default=7.0) == 7.0


def test_dependent_variables_are_set_together() -> None:
    env.all_or_none({"IPATE_X": "", "IPATE_Y": ""})
    env.all_or_none({"IPATE_X": "secret", "IPATE_Y": "b"})
    with pytest.raises(ImproperlyConfigured, match=r"^Also set IPATE_Y, or none of them. See docs/operations.md.$"):
        env.all_or_none({"IPATE_X": "secret", "IPATE_Y": ""})


def test_a_command_says_which_setting_is_wrong_in_one_line() -> None:
    wrong = {"DATABASE_URL": "postgress://user:hush@host/name", "DJANGO_SETTINGS_MODULE": "ipate_web.settings"}
    command, folder = [sys.executable, "manage.py", "check"], settings.BASE_DIR
    ended = subprocess.run(command, cwd=folder, env=os.environ | wrong, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "DATABASE_URL should be postgres://" in ended.stderr and "hush" not in ended.stderr


KEYS = {"SIGNING_KEY": "signs" * 8, "FACTOR_KEY": "factors" * 6, "RECORDS_KEY": "records" * 6}


@pytest.fixture
def installed(settings: Any, storages_apart: None, tmp_path: Path) -> Any:
    settings.JOURNAL_DIR = str(tmp_path / "journal")
    for name, key in KEYS.items():
        setattr(settings, name, key)
    return settings


@pytest.mark.django_db(transaction=True)
def test_every_key_is_changed_without_a_loss(installed: Any) -> None:
    study = study_with_table()
    holder, dataset = study.holders.earliest("pk"), study.datasets.get(kind="private")
    consent_withdraw(holder=holder, acting_user=None)
    app, before = TOTP.activate(user_create("hanna"), generate_totp_secret()).instance, records_load(dataset)
    secret, number = decrypt(app.data["secret"]), receipt_number(holder.consent_events.latest("pk").hash)
    acts, known = list(acts_read(study.pk)), public_keys()
    for name in ("empty.npz", f"{Path(dataset.artifact).name}.new"):  # whose writers have died
        Path(storages["private"].path(dataset.artifact)).with_name(name).touch()
    for name, key in KEYS.items():
        setattr(installed, name, f"new {key}")
        setattr(installed, f"{name}_FALLBACKS", [key])
    call_command("rotate_keys", stdout=StringIO())
    assert public_keys()[1:] == known
    assert receipt_event(number) == holder.consent_events.latest("pk")
    for name in KEYS:
        setattr(installed, f"{name}_FALLBACKS", [])
    app.refresh_from_db()
    assert decrypt(app.data["secret"]) == secret
    assert all((records_load(dataset)[name] == array).all() for name, array in before.items())
    assert list(acts_read(study.pk)) == acts and acts
    assert all(head.is_genuine for head in ChainHead.objects.all())


@pytest.mark.django_db
def test_one_key_cannot_decrypt_anothers_data(installed: Any) -> None:
    study = study_with_table()
    dataset = study.datasets.get(kind="private")
    secret = TOTP.activate(user_create("hanna"), generate_totp_secret()).instance.data["secret"]
    installed.SECRET_KEY = "of sessions " * 5
    assert np.isfinite(records_load(dataset)["x"]).all() and decrypt(secret), "nothing can be derived from it"
    installed.RECORDS_KEY = KEYS["SIGNING_KEY"]
    with pytest.raises(SealError, match="IPATE_RECORDS_KEY_FALLBACKS"):
        records_load(dataset)
    installed.FACTOR_KEY = KEYS["SIGNING_KEY"]
    with pytest.raises(InvalidToken):
        decrypt(secret)
    with pytest.raises(CommandError, match="fallbacks"):
        call_command("rotate_keys", stdout=StringIO())


def test_a_key_comes_from_the_environment_a_file_or_a_command(monkeypatch, tmp_path) -> None:
    file = tmp_path / "key"
    file.write_text("k" * 40 + "\n")
    for end, value in (("", "k" * 40), ("_FILE", str(file)), ("_COMMAND", f"cat {file}")):
        with monkeypatch.context() as patch:
            patch.setenv(f"IPATE_RECORDS_KEY{end}", value)
            assert env.read_key("IPATE_RECORDS_KEY") == "k" * 40
    assert env.read_key("IPATE_RECORDS_KEY") == ""


def test_a_key_that_is_missing_or_short_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[tuple[dict[str, str], str]] = [
        ({"": "k" * 31}, "at least 32"),
        ({"_FILE": "/nowhere"}, "provides no key"),
        ({"_COMMAND": "false"}, "provides no key"),
        ({"_COMMAND": "echo short"}, "at least 32"),
        ({"": "k" * 40, "_FILE": "/nowhere"}, "Set one of"),
    ]
    for given, message in wrong:
        with monkeypatch.context() as patch:
            for end, value in given.items():
                patch.setenv(f"IPATE_RECORDS_KEY{end}", value)
            with pytest.raises(ImproperlyConfigured, match=message) as refused:
                env.read_key("IPATE_RECORDS_KEY")
            assert "kkk" not in str(refused.value)
