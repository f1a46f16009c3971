"""Keys for one purpose each: what one opens no other does, and how each is changed."""

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from allauth.mfa.utils import decrypt
from cryptography.fernet import InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.core.management import CommandError, call_command

from common.journal import acts_read
from common.sealed_storage import SealError
from common.signing import public_keys
from consent.models import ChainHead
from consent.receipts import receipt_event, receipt_number
from consent.services import consent_withdraw
from ipate_web import environment as env
from tests.factories import user_create
from tests.training.runs import study_with_table
from training.engine.records import records_load

KEYS = {"SIGNING_KEY": "signs" * 8, "FACTOR_KEY": "factors" * 6, "RECORDS_KEY": "records" * 6}


@pytest.fixture
def installed(settings: Any, storages_apart: None, tmp_path: Path) -> Any:
    settings.JOURNAL_DIR = str(tmp_path / "journal")
    for name, key in KEYS.items():
        setattr(settings, name, key)
    return settings


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_every_key_is_changed_without_a_loss(installed: Any) -> None:
    study = study_with_table()
    holder, dataset = study.holders.earliest("pk"), study.datasets.get(kind="private")
    consent_withdraw(holder=holder, acting_user=None)
    app, before = TOTP.activate(user_create("hanna"), generate_totp_secret()).instance, records_load(dataset)
    secret, number = decrypt(app.data["secret"]), receipt_number(holder.consent_events.latest("pk").hash)
    acts, known = list(acts_read(study.pk)), public_keys()
    for name in ("empty.npz", f"{Path(dataset.artifact).name}.new"):  # whose writers died
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


@pytest.mark.slow
@pytest.mark.django_db
def test_one_key_opens_nothing_of_another(installed: Any) -> None:
    study = study_with_table()
    dataset = study.datasets.get(kind="private")
    secret = TOTP.activate(user_create("hanna"), generate_totp_secret()).instance.data["secret"]
    installed.SECRET_KEY = "of sessions " * 5
    assert np.isfinite(records_load(dataset)["x"]).all() and decrypt(secret), "nothing of it follows from that"
    installed.RECORDS_KEY = KEYS["SIGNING_KEY"]
    with pytest.raises(SealError, match="IPATE_RECORDS_KEY_FALLBACKS"):
        records_load(dataset)
    installed.FACTOR_KEY = KEYS["SIGNING_KEY"]
    with pytest.raises(InvalidToken):
        decrypt(secret)
    with pytest.raises(CommandError, match="fallbacks"):
        call_command("rotate_keys", stdout=StringIO())


def test_a_key_stands_in_the_environment_in_a_file_or_comes_from_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("k" * 40 + "\n")
    for end, value in (("", "k" * 40), ("_FILE", str(file)), ("_COMMAND", f"cat {file}")):
        with monkeypatch.context() as patch:
            patch.setenv(f"IPATE_RECORDS_KEY{end}", value)
            assert env.read_key("IPATE_RECORDS_KEY") == "k" * 40
    assert env.read_key("IPATE_RECORDS_KEY") == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"": "k" * 31}, "at least 32"),
        ({"_FILE": "/nowhere"}, "gives no key"),
        ({"_COMMAND": "false"}, "gives no key"),
        ({"_COMMAND": "echo short"}, "at least 32"),
        ({"": "k" * 40, "_FILE": "/nowhere"}, "Set one of"),
    ],
)
def test_a_key_that_is_missing_or_short_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], message: str
) -> None:
    for end, value in given.items():
        monkeypatch.setenv(f"IPATE_RECORDS_KEY{end}", value)
    with pytest.raises(ImproperlyConfigured, match=message) as refused:
        env.read_key("IPATE_RECORDS_KEY")
    assert "kkk" not in str(refused.value)
