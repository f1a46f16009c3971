"""Tests of settings from environment variables."""

import os
import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ipate_web import environment as env


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
def test_variables_are_read_as_their_kind(
    monkeypatch: pytest.MonkeyPatch, kind: env.Kind[Any], text: str, value: Any
) -> None:
    monkeypatch.setenv("IPATE_X", text)
    assert env.read("IPATE_X", kind, default=None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (env.YES_OR_NO, "maybe"),
        (env.POSITIVE, "nan"),
        (env.POSITIVE, "0"),
        (env.POSITIVE, "inf"),
        (env.SECONDS, "1.5"),
        (env.SECONDS, "-1"),
        (env.RATE, "60"),
        (env.RATE, "0/min"),
        (env.OPTIONS, "[1]"),
        (env.OPTIONS, "{location"),
        (env.SITE, "ipate.example"),
        (env.SITE, "https://ipate.example/below"),
        (env.DATABASE, "mysql://secret@host/name"),
        (env.DATABASE, "postgres://user:secret@host:5432/"),
        (env.DATABASE, "secret"),
        (env.BROKER, "localhost:6379"),
        (env.CACHE, "secret"),
        (env.LOG_LEVEL, "loud"),
        (env.ZONE, "Berlin"),
        (env.MAIL, "smtp://user:secret@host"),
        (env.MAIL, "smtp+tls://"),
        (env.MAIL, "secret"),
        (env.MAIL_ADDRESS, "secret"),
        (env.HTTP_URL, "login.example"),
    ],
)
def test_settings_of_the_wrong_kind_are_refused_by_name_and_not_printed(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, kind: env.Kind[Any], text: str
) -> None:
    monkeypatch.setenv("IPATE_X", text)
    with pytest.raises(ImproperlyConfigured) as error:
        env.read("IPATE_X", kind, default=None)
    assert str(error.value) == f"IPATE_X should be {kind.wanted}. See docs/operations.md."
    assert not recwarn.list


def test_a_variable_that_is_empty_or_missing_leaves_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.read("IPATE_X", env.POSITIVE, default=7.0) == 7.0
    monkeypatch.setenv("IPATE_X", " ")
    assert env.read("IPATE_X", env.POSITIVE, default=7.0) == 7.0


def test_dependent_variables_are_set_together() -> None:
    env.all_or_none({"IPATE_X": "", "IPATE_Y": ""})
    env.all_or_none({"IPATE_X": "secret", "IPATE_Y": "b"})
    with pytest.raises(ImproperlyConfigured, match=r"^Set IPATE_Y, too, or none of them. See docs/operations.md.$"):
        env.all_or_none({"IPATE_X": "secret", "IPATE_Y": ""})


@pytest.mark.slow
def test_a_command_says_which_setting_is_wrong_in_one_line() -> None:
    command = [sys.executable, "manage.py", "check"]
    environment = os.environ | {
        "DATABASE_URL": "postgress://user:hush@host/name",
        "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
    }
    ended = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "DATABASE_URL should be postgres://" in ended.stderr
    assert "hush" not in ended.stderr
