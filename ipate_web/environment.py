"""Typed settings from environment variables, with an error message for values of the wrong type.

An empty variable is treated as unset. Error messages never repeat a value, because it may be secret.
"""

import json
import math
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass
from email.utils import parseaddr
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit
from zoneinfo import available_timezones

import environ
import pyrage
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import validate_email

from common.transparency import public_check

T = TypeVar("T")

#: Minimum number of characters of a secret key; `openssl rand -hex 32` produces more.
KEY_LENGTH = 32


@dataclass(frozen=True)
class Kind(Generic[T]):
    """Type of a variable. ``wanted`` describes it, and ``parse`` raises ValueError for anything else."""

    wanted: str
    parse: Callable[[str], T]


def read(name: str, kind: Kind[T], *, default: T) -> T:
    """Return the environment variable ``name``, or ``default`` if it is empty or unset.

    Raises:
        ImproperlyConfigured: the value is of another kind; the message does not repeat it.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        return kind.parse(text)
    except ValueError:
        raise ImproperlyConfigured(f"{name} should be {kind.wanted}. See docs/operations.md.") from None


def read_key(name: str) -> str:
    """Return the secret key ``name``: the variable's value, the file ``name_FILE``, or the output of ``name_COMMAND``.

    The command, which may call a key management service, is not run by a shell. Returns "" if none of the three is set.

    Raises:
        ImproperlyConfigured: more than one is set, the file cannot be read, the command fails, or the key is short.
    """
    given = {end: value for end in ("", "_FILE", "_COMMAND") if (value := os.environ.get(name + end, "").strip())}
    if not given:
        return ""
    ((end, value), *more) = given.items()
    if more:
        raise ImproperlyConfigured(f"Set one of {', '.join(name + each for each in given)}. See docs/operations.md.")
    try:
        if end == "_FILE":
            value = Path(value).read_text().strip()
        elif end == "_COMMAND":
            done = subprocess.run(  # noqa: S603 - the environment is set by the site's own operators
                shlex.split(value), capture_output=True, text=True, timeout=60, check=True
            )
            value = done.stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        problem = f"{name}{end} provides no key ({type(error).__name__}). See docs/operations.md."
        raise ImproperlyConfigured(problem) from None
    if len(value) < KEY_LENGTH:
        raise ImproperlyConfigured(
            f"{name}{end} should provide at least {KEY_LENGTH} characters. See docs/operations.md."
        )
    return value


def file_of(suffixes: Collection[str]) -> Kind[str]:
    """Return the kind of variables whose value is the path of an existing file with one of ``suffixes``."""

    def parse(text: str) -> str:
        if not Path(text).is_file() or Path(text).suffix not in suffixes:
            raise ValueError
        return text

    return Kind(f"the path of a file with the extension {' or '.join(sorted(suffixes))}", parse)


def all_or_none(values: dict[str, object]) -> None:
    """Check that variables that belong together are either all set or all unset.

    Raises:
        ImproperlyConfigured: some are missing; the message names them.
    """
    missing = [name for name, value in values.items() if not value]
    if 0 < len(missing) < len(values):
        raise ImproperlyConfigured(f"Also set {', '.join(missing)}, or none of them. See docs/operations.md.")


# --- The kinds ------------------------------------------------------------------------------------------------------


def one_of(allowed: Collection[str], wanted: str = "") -> Kind[str]:
    """Return the kind of variables whose value is one of the ``allowed`` words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    return Kind(wanted or f"one of {', '.join(sorted(allowed))}", parse)


def address(*schemes: str, wanted: str) -> Kind[str]:
    """Return the kind of variables whose value is a URL with one of ``schemes``."""

    def parse(text: str) -> str:
        if urlsplit(text).scheme not in schemes:
            raise ValueError
        return text

    return Kind(wanted, parse)


def _yes_or_no(text: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if text.lower() not in words:
        raise ValueError
    return words[text.lower()]


def _site(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ValueError
    return text.rstrip("/")


def _database(text: str) -> dict[str, Any]:
    if urlsplit(text).scheme not in ("postgres", "postgresql", "sqlite"):
        raise ValueError
    database = environ.Env.db_url_config(text)
    if not database["NAME"]:
        raise ValueError
    return database


def _mail(text: str) -> dict[str, Any]:
    """Return Django's settings for an email back end."""
    parts = urlsplit(text)
    if parts.scheme == "console":
        return {"BACKEND": "console"}
    if parts.scheme == "file" and not parts.netloc and parts.path.strip("/"):
        return {"BACKEND": "filebased", "FILE_PATH": parts.path}
    ports = {"smtp": 25, "smtp+tls": 587, "smtp+ssl": 465}
    if parts.scheme not in ports or not parts.hostname or parts.path.strip("/"):
        raise ValueError
    if parts.username and parts.scheme == "smtp":  # a password in plain text
        raise ValueError
    return {
        "BACKEND": "smtp",
        "HOST": parts.hostname,
        "PORT": parts.port or ports[parts.scheme],
        "HOST_USER": unquote(parts.username or ""),
        "HOST_PASSWORD": unquote(parts.password or ""),
        "USE_TLS": parts.scheme == "smtp+tls",
        "USE_SSL": parts.scheme == "smtp+ssl",
    }


def _mail_address(text: str) -> str:
    try:
        validate_email(parseaddr(text)[1])
    except ValidationError:
        raise ValueError from None
    return text


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


def _positive_or_none(text: str) -> float | None:
    return None if text == "none" else _positive(text)


def _whole(text: str) -> int:
    if (number := int(text)) <= 0:
        raise ValueError
    return number


def _token(text: str) -> str:
    if not re.fullmatch(r"[!-~]{32,}", text):
        raise ValueError
    return text


def _note_keys(text: str) -> list[str]:
    keys = [part.strip() for part in text.split(",") if part.strip()]
    for key in keys:
        public_check(key)
    return keys


def _rate(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*/(s|sec|second|m|min|minute|h|hour|d|day)", text):
        raise ValueError
    return text


def _options(text: str) -> dict[str, Any]:
    options = json.loads(text)
    if not isinstance(options, dict):
        raise ValueError
    return options


def _sign_of_life(text: str) -> str:
    if urlsplit(text).scheme != "https" or "{name}" not in text:
        raise ValueError
    return text


def _recipients(text: str) -> list[str]:
    recipients = LIST.parse(text)
    for each in recipients:
        try:
            pyrage.x25519.Recipient.from_str(each)
        except pyrage.RecipientError:
            raise ValueError from None
    return recipients


TEXT = Kind("a text", str)
LIST = Kind("a comma-separated list", lambda text: [part.strip() for part in text.split(",") if part.strip()])
NETWORKS = Kind(
    "comma-separated networks, such as 10.1.2.0/24, fd00:1::/64",
    lambda text: [ip_network(part.strip()) for part in text.split(",") if part.strip()],
)
RECIPIENTS = Kind("one or more comma-separated age public keys, such as age1… (see ipate backup_key)", _recipients)
YES_OR_NO = Kind("true or false", _yes_or_no)
POSITIVE = Kind("a number above 0", _positive)
POSITIVE_OR_NONE: Kind[float | None] = Kind("a number above 0, or none", _positive_or_none)
SECONDS = Kind("a whole number of seconds above 0", _whole)
COUNT = Kind("a whole number above 0", _whole)
COUNT_OR_NONE: Kind[int | None] = Kind(
    "a whole number above 0, or none", lambda text: None if text == "none" else _whole(text)
)
TOKEN = Kind("at least 32 characters without spaces, such as the output of `openssl rand -hex 32`", _token)
NOTE_KEYS = Kind("comma-separated public keys as printed by ipate checkpoint_key", _note_keys)
RATE = Kind("a number of requests per period, such as 600/min", _rate)
OPTIONS = Kind('a JSON object, such as {"location": "/srv/ipate"}', _options)
SITE = Kind("the site's address without a path, such as https://ipate.example", _site)
DATABASE = Kind(
    "postgres://user:password@host:5432/name, with @ in the password written as %40, or sqlite:////folder/file",
    _database,
)
MAIL = Kind(
    "smtp+tls://user:password@host:587, smtp+ssl://…, smtp://host:25 without a password, file:///folder or console:// "
    "(write @ in the password as %40)",
    _mail,
)
MAIL_ADDRESS = Kind("an e-mail address, such as iPATE <noreply@ipate.example>", _mail_address)
HTTP_URL = address("http", "https", wanted="an address such as https://login.example/realms/clinic")
SIGN_OF_LIFE = Kind("an https address that contains {name}, such as https://monitor.example/ping/{name}", _sign_of_life)
BROKER = address("filesystem", "redis", "rediss", "redis+socket", wanted="filesystem:// or redis://host:6379/0")
CACHE = address("locmemcache", "redis", "rediss", wanted="redis://host:6379/1, or unset")
LOG_LEVEL = one_of(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
LOG_FORMATS = one_of(["json", "plain"])
ZONE = one_of(available_timezones(), "the name of a time zone, such as Europe/Berlin")
