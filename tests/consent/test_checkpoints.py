"""Signed checkpoints of whole histories: what they prove to holders and auditors, and which tampering they reveal."""

import json
import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings, settings
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import QuerySet
from django.urls import reverse
from ipate_client import checkpoints as client

from accounting.verification import study_faults
from common.append_only import triggers_remove
from common.transparency import SigningKey
from consent import services
from consent.documents.receipts import receipt_json, receipt_number
from consent.models import ChainHead, Checkpoint, ConsentEvent, DataHolder, Mail, RoleChange, Study
from consent.services.checkpoints import (
    CheckpointError,
    checkpoint_extension,
    checkpoint_make,
    checkpoint_state_store,
    log_faults,
    proof_of,
    signing_key,
    state_of,
)
from consent.tasks import checkpoints_make
from ipate_web.apps import key_check
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide
from tests.factories import user_create
from tests.pages import as_

SCRIPT = Path(client.__file__)


@pytest.fixture(autouse=True)
def key(clock: Clock, settings: LazySettings, tmp_path: Path) -> SigningKey:
    """Create a private key for the signing process, and a second location."""
    return key_change(settings, tmp_path / "first.key")


def key_change(settings: LazySettings, file: Path) -> SigningKey:
    output = StringIO()
    call_command("checkpoint_key", str(file), stdout=output)
    settings.CHECKPOINT_KEY_FILE = str(file)
    settings.CHECKPOINT_KEYS = [output.getvalue().split("\n")[1], *settings.CHECKPOINT_KEYS]
    backend, place = "django.core.files.storage.FileSystemStorage", {"location": str(file.parent / "2nd")}
    settings.STORAGES = settings.STORAGES | {"checkpoints": {"BACKEND": backend, "OPTIONS": place}}
    return signing_key()


@pytest.fixture
def public(key: SigningKey) -> str:
    return key.public


@pytest.fixture
def event(holder: DataHolder, give: Decide) -> ConsentEvent:
    return give(holder, "HIGH")


def signed(clock: Clock) -> Checkpoint:
    """Return the next day's checkpoint, made by the task."""
    clock.days_pass(1)
    checkpoints_make()
    return Checkpoint.objects.latest("number")


def verified(*arguments: object) -> str:
    """Return the output of ``verify_checkpoints``."""
    output = StringIO()
    call_command("verify_checkpoints", *map(str, arguments), stdout=output)
    return output.getvalue()


def mailed(checkpoint: Checkpoint, folder: Path) -> Path:
    """Save an email with a checkpoint."""
    path = folder / f"mail-{checkpoint.number}.txt"
    path.write_text(f"Keep this mail.\n\n{checkpoint_extension(checkpoint)}\n-- \nNobody reads answers.\n")
    return path


def script(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Return the stand-alone script, which needs only Python's standard library."""
    command = [sys.executable, "-I", "-S", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def own_proof(event: ConsentEvent, checkpoint: Checkpoint) -> dict[str, Any]:
    return proof_of(event, checkpoint, state_of(checkpoint))


def test_every_later_checkpoint_covers_a_decision(study, event, give, clock, public, tmp_path) -> None:
    for n in range(5):
        give(factories.holder_create(study, f"other-{n}"), "LOW")
    first = signed(clock)
    services.consent_withdraw(holder=event.holder, acting_user=None)
    second = signed(clock)
    for checkpoint in (first, second):
        given = client.verify_checkpoint(mailed(checkpoint, tmp_path).read_text(), public)
        receipt = receipt_json([event])
        found = client.verify_decision(own_proof(event, checkpoint), public, receipt=receipt, checkpoint=given)
        assert (found.content["protection_level"], found.content["epsilon"]) == ("HIGH", 1.0)
        assert found.checkpoint.size == checkpoint.number
    checkpoint_state_store()
    assert proof_of(event, second) == own_proof(event, second), "proof from the worker's cached checkpoint"
    earlier = client.verify_checkpoint(first.note, public)
    later = client.verify_extension(checkpoint_extension(second), earlier, public)
    assert (earlier.size, later.size) == (1, 2)
    assert verified(mailed(first, tmp_path), mailed(second, tmp_path)).startswith("2 checkpoints")
    assert list(study_faults(study)) == []


def test_every_kind_of_decision_of_several_studies_has_its_proof(study, holder, give, clock, public) -> None:
    other = factories.study_open("letters")
    stranger = factories.holder_create(other, "P-9")
    withdraw, refuse = services.consent_withdraw, services.consent_refuse
    events = [give(holder, "LOW"), give(holder, "AVERAGE"), withdraw(holder=holder, acting_user=None)]
    events += [refuse(holder=stranger, acting_user=None), give(stranger, "HIGH")]
    checkpoint = signed(clock)
    state = state_of(checkpoint)
    for event in events:
        own = ConsentEvent.objects.filter(holder=event.holder, sequence__lte=event.sequence).order_by("sequence")
        proof = proof_of(event, checkpoint, state)
        found = client.verify_decision(proof, public, receipt=json.loads(json.dumps(receipt_json(list(own)))))
        assert found.content["study"] == event.study.slug


def test_the_script_runs_without_other_packages(event: ConsentEvent, clock: Clock, public: str, tmp_path: Path) -> None:
    first, second = mailed(signed(clock), tmp_path), mailed(signed(clock), tmp_path)
    proof, receipt = tmp_path / "proof.json", tmp_path / "receipt.json"
    proof.write_text(json.dumps(own_proof(event, Checkpoint.objects.get(number=2))))
    receipt.write_text(json.dumps(receipt_json([event])))
    done = script("decision", proof, "--key", public, "--receipt", receipt, "--checkpoint", second)
    assert (done.returncode, done.stderr) == (0, "")
    assert "protection_level: HIGH" in done.stdout
    assert "This is the checkpoint that you gave." in done.stdout
    extends = script("checkpoint", second, "--after", first, "--key", public)
    assert "extends the checkpoint of 1 entries" in extends.stdout
    for arguments, error in (
        (("decision", proof, "--key", public, "--checkpoint", first), "for a different checkpoint"),
        (("checkpoint", first, "--after", second, "--key", public), "fewer|does not start"),
        (("checkpoint", receipt, "--key", public), "no signed checkpoint"),
        (("checkpoint", tmp_path / "none", "--key", public), "cannot be read"),
        (("decision", first, "--key", public), "not a JSON"),
        (("decision", proof, "--key", "nonsense"), "NAME\\+ID\\+KEY"),
    ):
        done = script(*arguments)
        assert done.returncode == 1
        assert re.search(error, done.stderr), done.stderr
        assert "Traceback" not in done.stderr


def test_a_receipt_that_says_something_else_is_found(event: ConsentEvent, clock: Clock, public: str) -> None:
    proof = own_proof(event, signed(clock))
    for field, value in (("protection_level", "LOW"), ("epsilon", 3.0), ("delta", 1e-3), ("answered_by", "proxy")):
        receipt = receipt_json([event])
        receipt["consent_record"]["events"][0]["extension"][field] = value
        with pytest.raises(client.CheckpointError, match=field):
            client.verify_decision(proof, public, receipt=receipt)
    later = services.consent_withdraw(holder=event.holder, acting_user=None)
    with pytest.raises(client.CheckpointError, match="another decision"):
        client.verify_decision(proof, public, receipt=receipt_json([later]))


def test_changing_any_part_of_a_proof_is_found(event: ConsentEvent, clock: Clock, public: str) -> None:
    proof = own_proof(event, signed(clock))
    client.verify_decision(proof, public)
    other = SigningKey.made("testserver/checkpoints")
    changed = {
        "schema": "other",
        "content": proof["content"].replace("HIGH", "LOW"),
        "nonce": proof["nonce"][::-1],
        "place": proof["place"] ^ 1,
        "path": [*proof["path"][:-1], proof["path"][0]],
        "entry": proof["entry"].replace('"number":1', '"number":2'),
        "log": proof["log"].replace("index 0", "index 1"),
    }
    assert set(changed) == set(proof)
    for name, value in changed.items():
        with pytest.raises(client.CheckpointError):
            client.verify_decision(proof | {name: value}, public)
        with pytest.raises(client.CheckpointError, match="cannot be read"):
            client.verify_decision({part: proof[part] for part in proof if part != name}, public)
    with pytest.raises(client.CheckpointError, match="not in the format"):
        client.verify_decision(proof | {"log": proof["log"].replace("index 0", "index ²")}, public)
    with pytest.raises(client.CheckpointError, match="not signed with this key"):
        client.verify_decision(proof, other.public)


@pytest.fixture
def history(study: Study, give: Decide, clock: Clock, tmp_path: Path) -> list[Path]:
    """Return six decisions, a checkpoint, two more decisions, a checkpoint, and their emails, without triggers."""
    for n in range(6):
        give(factories.holder_create(study, f"P-{n}"), "LOW" if n % 2 else "HIGH")
    first = mailed(signed(clock), tmp_path)
    for n in range(6, 8):
        give(factories.holder_create(study, f"P-{n}"), "LOW")
    second = mailed(signed(clock), tmp_path)
    triggers_remove(connection)
    return [first, second]


def raw(model: type) -> QuerySet:
    """Return the rows of a table, which can be changed as at an SQL prompt."""
    return QuerySet(model)


def chain_rewrite(study: Study) -> None:
    """Recompute and sign a chain, as someone with the database and the site's secret key can."""
    previous = "0" * 64
    for sequence, event in enumerate(ConsentEvent.chain(study.pk), 1):
        event.sequence, event.previous_hash = sequence, previous
        event.hash = previous = event.computed_hash()
        changed = {"sequence": sequence, "previous_hash": event.previous_hash, "hash": event.hash}
        raw(ConsentEvent).filter(pk=event.pk).update(**changed)
    head_set(ConsentEvent, study, event)
    assert list(ConsentEvent.chain_faults(study.pk)) == []


def level_change(study: Study) -> None:
    raw(ConsentEvent).filter(study=study, sequence=3).update(level="LOW")
    chain_rewrite(study)


def head_set(model: Any, study: Study, last: Any) -> None:
    """Sign the head of a chain that ends with the row ``last``."""
    head = model.head(study.pk)
    head.sequence, head.hash = last.sequence, last.hash
    head.sign()
    head.save()


def event_remove(study: Study) -> None:
    raw(ConsentEvent).filter(study=study, sequence=4).delete()
    chain_rewrite(study)


def events_swap(study: Study) -> None:
    rows = raw(ConsentEvent).filter(study=study)
    for old, new in ((2, 1000), (3, 2), (1000, 3)):
        rows.filter(sequence=old).update(sequence=new)
    chain_rewrite(study)


def role_change_remove(study: Study) -> None:
    last = RoleChange.chain(study.pk).last()
    raw(RoleChange).filter(pk=last.pk).delete()
    head_set(RoleChange, study, RoleChange.chain(study.pk).last())


@pytest.mark.parametrize(
    "tamper",
    [
        *(level_change, event_remove, events_swap, role_change_remove),
        lambda study: raw(ConsentEvent).filter(study=study, sequence=3).update(level="LOW"),
        lambda study: raw(Study).filter(pk=study.pk).update(delta=1e-3),
    ],
)
def test_changed_records_are_found_by_a_kept_checkpoint(history, study, clock, tamper: Any) -> None:
    verified(*history)
    tamper(study)
    for mail in history:
        with pytest.raises(CommandError, match=r"the records differ from those of|were removed or changed"):
            verified(mail)
    with pytest.raises(CommandError):
        verified()


def test_a_rewritten_chain_is_found_each_night_and_stops_signing(history, study, clock) -> None:
    assert list(study_faults(study)) == []
    level_change(study)
    (fault,) = [fault for fault in study_faults(study) if "checkpoint" in fault]
    assert fault == "consent events: rows covered by the checkpoint of 2026-01-02 were removed or changed."
    clock.days_pass(1)
    with pytest.raises(CommandError, match="No checkpoint was signed"):
        call_command("checkpoint_sign")
    with pytest.raises(CheckpointError):
        checkpoints_make()
    assert Checkpoint.objects.count() == 2


def test_forger_who_also_changes_stored_checkpoints_is_found(history, study, settings) -> None:
    """The forgers have the database and the secret key, and recompute everything that depends on them."""
    level_change(study)
    forged = ChainHead.objects.filter(chain="consent.consentevent")
    heads = {str(head.study_id): {head.chain: [head.sequence, head.hash]} for head in forged}
    for checkpoint in Checkpoint.objects.all():
        raw(Checkpoint).filter(pk=checkpoint.pk).update(heads=heads)
    for mail in history:
        with pytest.raises(CommandError, match="the records differ from those of"):
            verified(mail)
    # … also with their own entries and their own key
    raw(Checkpoint).filter().delete()
    own = SigningKey.made("testserver/checkpoints")
    settings.CHECKPOINT_KEYS = [*settings.CHECKPOINT_KEYS, own.public]
    storage = storages["checkpoints"]
    for name in storage.listdir("")[1]:
        storage.delete(name)
    assert checkpoint_make(key=own) is not None
    assert list(study_faults(study)) == []
    with pytest.raises(CommandError, match="differs from the one in the database"):
        verified(history[0])
    with pytest.raises(CommandError, match="ends with checkpoint 1"):
        verified(history[1])


def test_a_forged_entry_or_signature_is_found(history: list[Path]) -> None:
    entry = Checkpoint.objects.get(number=1).entry
    raw(Checkpoint).filter(number=1).update(entry=entry.replace("2026-01-02", "2026-01-01"))
    (fault,) = log_faults()
    assert fault.startswith("Checkpoint 1 was changed")
    raw(Checkpoint).filter(number=1).update(entry=entry)
    assert list(log_faults()) == []
    raw(Checkpoint).filter(number=1).delete()
    assert list(log_faults()) == ["Checkpoint 1 is missing."]


def test_a_database_that_was_put_back_is_found_and_logged(history, study, clock, public, tmp_path) -> None:
    # Database and journal are old copies, from after the first checkpoint.
    shutil.rmtree(settings.JOURNAL_DIR, ignore_errors=True)
    raw(Checkpoint).filter(number=2).delete()
    event = ConsentEvent.objects.get(study=study, sequence=6)
    raw(ConsentEvent).filter(study=study, sequence__gt=6).delete()
    head_set(ConsentEvent, study, event)
    assert [*ConsentEvent.chain_faults(study.pk), *study_faults(study)] == []  # nothing in it says so
    clock.days_pass(1)
    with pytest.raises(CommandError, match="Checkpoint 2 was signed, but the database ends with checkpoint 1"):
        verified(history[1])
    with pytest.raises(CommandError, match="restored to an earlier state"):
        call_command("checkpoint_sign")
    assert Checkpoint.objects.count() == 1
    call_command("checkpoint_sign", "--after-restore", stdout=StringIO())
    third = Checkpoint.objects.get(number=3)
    assert third.content["adopted"] == 2
    earlier = client.verify_checkpoint(history[1].read_text(), public)
    client.verify_extension(checkpoint_extension(third), earlier, public)
    verified(history[0], mailed(third, tmp_path))
    with pytest.raises(CommandError, match="lost when a backup was restored"):
        verified(history[1])
    assert signed(clock).content.get("adopted") is None
    with pytest.raises(CommandError, match="has no checkpoint that the database lacks"):
        call_command("checkpoint_sign", "--after-restore")


def test_it_is_made_and_mailed_once_a_day_however_often_the_task_runs(study: Study, clock: Clock) -> None:
    readers = {"anna": "auditor", "carla": "committee", "chris": "chair"}
    for each in (study, factories.study_create("letters")):  # one email to each, for any number of studies
        for name, role in {**readers, "rosa": "researcher", "stefan": "steward"}.items():
            factories.member(each, name, role)
    for _ in range(3):
        checkpoints_make()
    assert Checkpoint.objects.count() == 1
    assert sorted(Mail.objects.filter(kind="checkpoint").values_list("user__username", flat=True)) == sorted(readers)
    output = StringIO()
    call_command("checkpoint_sign", stdout=output)
    assert "already been signed" in output.getvalue()
    signed(clock)
    assert Mail.objects.filter(kind="checkpoint").count() == 2 * len(readers)


def test_a_missing_file_of_the_second_place_is_written_and_a_changed_one_found(study, key, clock, tmp_path) -> None:
    made = signed(clock)
    assert checkpoint_make(key=key) is None, "another process made the checkpoint first"
    for path in (tmp_path / "2nd").iterdir():
        path.unlink()
    checkpoints_make()
    assert (tmp_path / "2nd/checkpoint-00000001.txt").read_text() == checkpoint_extension(made)
    entry = tmp_path / "2nd/entry-00000001.json"
    assert entry.read_text() == made.entry
    entry.write_text(entry.read_text().replace("2026-01-02", "2026-01-01"))
    with pytest.raises(CommandError, match="Checkpoint 1 at the second location differs"):
        verified()


def test_old_checkpoints_are_checked_with_the_old_key(study, clock, key, settings, tmp_path) -> None:
    first = signed(clock)
    new = key_change(settings, tmp_path / "second.key")
    second = signed(clock)
    assert client.verify_checkpoint(first.note, key.public).size == 1
    with pytest.raises(client.CheckpointError, match="not signed with this key"):
        client.verify_checkpoint(second.note, key.public)
    earlier = client.verify_checkpoint(first.note, [new.public, key.public])
    assert client.verify_extension(checkpoint_extension(second), earlier, [new.public, key.public]).size == 2
    verified(mailed(first, tmp_path), mailed(second, tmp_path))
    with pytest.raises(CommandError, match="not signed"):
        verified(mailed(first, tmp_path), "--key", new.public)


def test_the_site_must_not_be_able_to_read_the_key(settings: LazySettings) -> None:
    assert [fault.id for fault in key_check(None)] == ["ipate.E001"]
    file = settings.CHECKPOINT_KEY_FILE
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings", "IPATE_CHECKPOINT_KEY_FILE": file}
    command = [sys.executable, "-c", "import ipate_web.wsgi"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "The site can read the private key" in done.stderr
    for unread in ("", f"{file}.none"):
        settings.CHECKPOINT_KEY_FILE = unread
        assert list(key_check(None)) == []


def shape(text: str) -> str:
    """Return a text without its hashes and signatures, which are random numbers for its readers."""
    return re.sub(r"[A-Za-z0-9+/]{43,}=*", "#", re.sub(r"\b[0-9a-f]{64}\b", "#", text))


def test_a_checkpoint_reveals_nothing_about_records(study, event, give, clock) -> None:
    """On a day without events and on one with many decisions, the emails differ only in date and number."""
    days = [signed(clock), signed(clock)]
    for n in range(20):
        give(factories.holder_create(study, f"other-{n}"), "LOW")
    days.append(signed(clock))
    days.append(signed(clock))
    entries = [shape(day.entry) for day in days]
    undated = {re.sub(r"2026-01-0\d|\"number\":\d", "", entry) for entry in entries}
    assert undated == {'{"at":"T00:00:00+00:00",,"state":"#"}'}
    assert len({day.content["state"] for day in days}) == 4  # nor does an equal root say that nothing happened
    name = "127.0.0.1:8000/checkpoints"
    assert [shape(day.note) for day in days] == [f"{name}\n{n}\n#\n\n\u2014 {name} #\n" for n in (1, 2, 3, 4)]
    # A proof that would let its holder count others, or find out whether anybody decided.
    proofs = [own_proof(event, day) for day in days]
    assert {len(proof["path"]) for proof in proofs} == {48}
    hashes = [set(proof["path"]) for proof in proofs]
    assert not any(hashes[one] & hashes[other] for one in range(4) for other in range(one))
    assert len({proof["place"] for proof in proofs}) == 4
    assert {proof["content"] for proof in proofs} == {proofs[0]["content"]}
    text = json.dumps(proofs)
    assert event.hash not in text and event.previous_hash not in text
    others = DataHolder.objects.exclude(pk=event.holder_id).values_list("public_id", flat=True)
    assert not any(str(other) in text for other in others)


def test_pages_and_a_command_give_proofs_of_decisions(study, holder, hanna, give, clock, public, tmp_path) -> None:
    browser, event = as_(hanna), give(holder, "HIGH")
    page, file = (reverse(f"consent:{name}", args=[study.slug, 1]) for name in ("receipt", "receipt_proof"))
    number, saved = receipt_number(event.hash), tmp_path / "proof.json"
    assert browser.get(file).status_code == 404
    with pytest.raises(CommandError, match="No checkpoint has been signed"):
        call_command("verify_receipt", number, "--proof", str(saved), stdout=StringIO())
    signed(clock)
    call_command("verify_receipt", number, "--proof", str(saved), stdout=StringIO())
    assert client.verify_decision(json.loads(saved.read_text()), public).content["protection_level"] == "HIGH"
    assert file in browser.get(page).text
    answer = browser.get(file)
    receipt = browser.get(reverse("consent:receipt_json", args=[study.slug, 1])).json()
    found = client.verify_decision(answer.json(), public, receipt=receipt)
    assert found.content["entity_id"] == str(event.holder.public_id)
    give(holder, "LOW")
    later = browser.get(reverse("consent:receipt_proof", args=[study.slug, 2]))
    assert later.status_code == 404, "no checkpoint covers it yet"
    assert browser.get(file).json()["content"] == answer.json()["content"]
    assert as_(user_create("stranger")).get(file).status_code in (302, 404)
