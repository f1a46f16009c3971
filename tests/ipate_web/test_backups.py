"""``manage.py backup`` and ``restore``: made while a worker is busy, restored, locked, settled, deleted."""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyrage
import pytest
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from django.utils import timezone

from accounting.accounts import account_balances, balances, charges_of
from accounting.models import Release
from accounting.restores import missing_rows
from common import __version__
from common.models import BackupRecord, WorkerHeartbeat
from common.noise import SimulationNoise
from consent.models import ConsentEvent, Study
from consent.selectors import consent_current
from consent.services import consent_withdraw
from consent.services.paper import scan_delete, scan_load, scan_store
from ipate_web.backups import MANIFEST, STORAGES
from ipate_web.backups.archives import archive_open, archive_write, identities_read
from ipate_web.backups.files import FIELDS, member_add, names_in
from ipate_web.tokens.models import ApiToken
from tests.databases import database_url
from tests.factories import user_create
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, STEPS_RUN, run_ask
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from tests.workers import wait_until, worker
from training.engine.records import owners_of, records_load
from training.models import Run, Verification
from training.services.drawings import head_counts_draw
from training.services.erasures import records_erase

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages_apart")]

required = os.environ.get("IPATE_REQUIRE_SERVICES") == "1"
if connection.vendor == "postgresql" and not shutil.which("pg_dump") and not required:
    pytestmark.append(pytest.mark.skip("PostgreSQL's client programs are not installed"))


KEYS = "ipate-keys.tar.age"
IDENTITY = pyrage.x25519.Identity.generate()
RECIPIENT = str(IDENTITY.to_public())
NOT_WRITTEN = r"could not be written|pg_dump failed"


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    """Return the file with the private key of backups, whose public key the installation has."""
    file = tmp_path / "identity"
    file.write_text(f"# of backups\n{IDENTITY}\n")
    return file


@built_once
def study_with_run(**fields: Any) -> Study:
    study = study_with_table(**fields)
    run_finish(run_start(study, share=0.25, **TABLE_RUN))
    return study


def backup_say(folder: Path, *options: str) -> str:
    """Return the command's output."""
    out = StringIO()
    with override_settings(BACKUP_RECIPIENTS=[RECIPIENT]):
        call_command("backup", str(folder), *options, stdout=out)
    return out.getvalue()


def backup(folder: Path) -> Path:
    """Return the file that the command made in ``folder``."""
    before = set(folder.glob("ipate-2*"))
    said = backup_say(folder)
    (made,) = set(folder.glob("ipate-2*")) - before
    assert f"{made} is complete" in said
    return made


def restore(file: Path, *options: str) -> str:
    out = StringIO()
    with TemporaryDirectory() as folder:
        identity = Path(folder) / "identity"
        identity.write_text(str(IDENTITY))
        call_command("restore", str(file), "--yes", "--replace", "--identity", str(identity), *options, stdout=out)
    return out.getvalue()


def site() -> dict[str, str]:
    """Return the environment of another process of this installation."""
    folders = {alias: json.dumps({"location": storages[alias].path("")}) for alias in (*STORAGES, "keys")}
    places = {f"IPATE_{alias.upper()}_STORAGE_OPTIONS": folder for alias, folder in folders.items()}
    return places | {"IPATE_JOURNAL_DIR": str(settings.JOURNAL_DIR)}


@contextmanager
def no_room() -> Iterator[None]:
    """Prevent files from growing beyond some kilobytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def another_database(name: str) -> Iterator[str]:
    """Return the address of a new database of a PostgreSQL user without rights; empty if the tests use SQLite."""
    if connection.vendor != "postgresql":
        yield ""
        return
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {name} LOGIN NOSUPERUSER NOCREATEDB PASSWORD 'of-the-test'")
        cursor.execute(f"CREATE DATABASE {name} OWNER {name}")
    try:
        given = connection.settings_dict
        yield f"postgres://{name}:of-the-test@{given['HOST']}:{given['PORT']}/{name}"
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")
            cursor.execute(f"DROP ROLE {name}")


def content_of(file: Path) -> dict[str, bytes]:
    with archive_open(file, [IDENTITY]) as members:
        return {name: content.read() for name, content in members}


def manifest_of(file: Path) -> dict[str, Any]:
    return json.loads(content_of(file)[MANIFEST])


def changed(file: Path, at: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None]) -> Path:
    """Return another backup whose contents and manifest ``change`` has changed."""
    content = content_of(file)
    manifest = json.loads(content.pop(MANIFEST))
    change(content, manifest)
    content[MANIFEST] = json.dumps(manifest).encode()
    with at.open("wb") as target, archive_write(target, [str(IDENTITY.to_public())]) as archive:
        for name, data in content.items():
            member_add(archive, name, len(data), BytesIO(data))
    return at


def names_of(file: Path) -> set[str]:
    """Return the names of the files in a backup."""
    manifest = manifest_of(file)
    return set(manifest["files"]) - {manifest["database"]}


def stored_names() -> set[str]:
    return {f"{alias}/{name}" for alias, name in files()}


def files() -> dict[tuple[str, str], bytes]:
    found = {}
    for alias in STORAGES:
        for name in names_in(storages[alias]):
            with storages[alias].open(name) as file:
                found[alias, name] = file.read()
    return found


def rows() -> dict[Any, list]:
    found = {}
    for model in apps.get_models():
        if model._meta.managed:
            found[model] = list(model._default_manager.order_by("pk").values_list())
    return found


def settle(slug: str, *options: str) -> None:
    call_command("settle_restore", slug, "--user", "olga", *options, stdout=StringIO())
    call_command("verify_ledger", stdout=StringIO())


@pytest.mark.both
@pytest.mark.parametrize(
    "worker_is_up", [False, pytest.param(True, marks=[pytest.mark.worker, pytest.mark.exhaustive])]
)
def test_a_backup_during_a_run_is_whole_and_locked_until_settled(tmp_path: Path, worker_is_up: bool) -> None:
    study = study_with_table(holders=12, points=60, retain_votes=True)
    run, log, folder = run_start(study, share=0.5, **ASKING_RUN), tmp_path / "worker.log", tmp_path / "backups"
    with worker(log, **site()) if worker_is_up else nullcontext():
        if worker_is_up:
            wait_until(lambda: Run.objects.get(pk=run.pk).position > 0, log)
        else:
            run = run_ask(run, batches=2)
        made = backup(folder)
        copied = Release.objects.count()
        left = study.holders.first()
        consent_withdraw(holder=left, acting_user=None)
        if worker_is_up:
            wait_until(lambda: Run.objects.get(pk=run.pk).has_ended, log)
        else:
            run_ask(run, batches=5)
    WorkerHeartbeat.objects.all().delete()
    charged, events = balances(study), ConsentEvent.objects.count()
    manifest = manifest_of(made)
    kept = manifest["heads"]["table"]["accounting.release"][0]
    assert 0 < kept <= copied < Release.objects.count(), "the backup came too early or too late"
    for path in [folder, made, folder / KEYS]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert set(folder.iterdir()) == {made, folder / KEYS} and not (Path(settings.VAR_DIR) / "backup").exists()

    said = restore(made)

    assert "table is locked" in said and "FAULT" not in said
    assert Verification.objects.get().locked, "before anyone looked at what is missing"
    assert Release.objects.count() == kept and ConsentEvent.objects.count() == events - 1
    for release in Release.objects.exclude(charges=""):
        charges_of(release)
    assert stored_names() == names_of(made)
    with pytest.raises(ValidationError, match="locked"):
        head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(2))

    settle("table")
    assert not consent_current(left).grants, "the withdrawal is recorded again"  # type: ignore[union-attr]
    assert (account_balances(study, charged.holders) >= charged.spent * (1 - 1e-12)).all()
    assert Run.objects.get(pk=run.pk).status == Run.Status.FAILED
    head_counts_draw(study=study, acting_user=user_create("otta"), noise=SimulationNoise(2))


def test_restore_without_loss_locks_and_changes_nothing(tmp_path: Path) -> None:
    study = study_with_run()
    call_command("verify_ledger", stdout=StringIO())
    before, counts = files(), {model: len(found) for model, found in rows().items()}
    assert {alias for alias, _ in before} == set(STORAGES)
    made = backup(tmp_path / "backup")
    storages["private"].save("later", ContentFile(b"not in the backup"))
    storages["models"].delete(study.runs.get().student.artifact)  # type: ignore[union-attr]
    said = restore(made)
    assert files() == before
    assert {model: len(found) for model, found in rows().items()} == counts
    assert "locked" not in said and "FAULT" not in said
    with pytest.raises(Exception, match="append-only"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounting_release")
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(2))


@pytest.mark.exhaustive
def test_records_erased_after_a_backup_come_back_and_are_erased_again(tmp_path: Path) -> None:
    study = study_with_table()
    dataset = study.datasets.get(kind="private")
    left, owned = study.holders.first(), dataset.rows
    made = backup(tmp_path / "backup")

    consent_withdraw(holder=left, acting_user=None)
    assert records_erase(study.pk) == 1
    dataset.refresh_from_db()
    assert dataset.rows == owned - 1
    assert "table is locked" in restore(made)
    dataset.refresh_from_db()
    assert dataset.rows == owned, "the backup does not know of the erasure"
    assert len(records_load(dataset)["x"]) == owned - 1, "their key is destroyed, so nobody can read the restored rows"
    settle("table")
    assert not missing_rows(Study.objects.get(pk=study.pk))
    assert records_erase(study.pk) == 1
    dataset.refresh_from_db()
    assert dataset.rows == owned - 1


@pytest.mark.exhaustive
def test_old_backups_cannot_restore_erased_people_after_the_next_copy_of_the_keys(tmp_path: Path) -> None:
    study = study_with_table()
    left = study.holders.earliest("pk")
    others = set(study.holders.exclude(pk=left.pk).values_list("pk", flat=True))
    scan = scan_store(study, b"%PDF-1.7 a letter")
    old = backup(tmp_path / "old")
    consent_withdraw(holder=left, acting_user=None)
    records_erase(study.pk)
    scan_delete(study, scan)
    backup(tmp_path / "new")
    shutil.rmtree(storages["keys"].path(""))  # the machine is lost
    none = tmp_path / "no-keys.tar.age"
    with none.open("wb") as file, archive_write(file, [RECIPIENT]):
        pass
    with pytest.raises(CommandError, match="--keys"):
        restore(old, "--keys", str(none))
    restore(old, "--keys", str(tmp_path / "new" / KEYS))
    dataset = study.datasets.get(kind="private")
    records = records_load(dataset)
    assert set(records["holder"].tolist()) == others and np.isfinite(records["x"]).all()
    assert storages["private"].exists(f"evidence/{study.pk}/{scan}.pdf") and scan_load(study, scan) is None
    restore(old, "--keys", str(tmp_path / "old" / KEYS))
    assert set(owners_of(dataset)) == others, "newer files are kept"


def test_a_copy_of_keys_is_not_replaced_where_keys_are_missing(tmp_path: Path) -> None:
    study_with_table()
    backup(tmp_path)
    before = (tmp_path / KEYS).read_bytes()
    for ring in Path(storages["keys"].path("")).iterdir():
        ring.unlink()
    with pytest.raises(CommandError, match="keys of the dataset"):
        backup(tmp_path)
    assert (tmp_path / KEYS).read_bytes() == before


@pytest.mark.parametrize("journal", ["lost", pytest.param("older", marks=pytest.mark.exhaustive)])
@pytest.mark.exhaustive
def test_everything_counts_as_used_with_a_shorter_journal(tmp_path: Path, journal: str) -> None:
    study = study_with_table()
    shutil.copytree(settings.JOURNAL_DIR, tmp_path / "older")
    run_finish(run_start(study, share=0.25, **TABLE_RUN))
    made = backup(tmp_path / "backup")
    shutil.rmtree(settings.JOURNAL_DIR)
    if journal == "older":
        shutil.copytree(tmp_path / "older", settings.JOURNAL_DIR)
    assert "table is locked" in restore(made)
    assert missing_rows(study)
    out = StringIO()
    with pytest.raises(CommandError, match="withdrawals"):
        call_command("settle_restore", "table", "--user", "olga", stdout=out)
    assert "every account counts as used up" in out.getvalue()
    settle("table", "--decisions-entered")
    assert Release.objects.get(kind=Release.Kind.GAP).content["reached"] == 1.0
    assert not missing_rows(Study.objects.get(pk=study.pk))


def test_a_refused_restoration_changes_nothing(tmp_path: Path, identity: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_with_table()
    made = backup(tmp_path / "backups")
    before = files()
    again = ["restore", str(made), "--identity", str(identity)]
    with pytest.raises(CommandError, match="not empty: 1 studies"):
        call_command(*again, "--yes", stdout=StringIO())
    again.append("--replace")
    with pytest.raises(CommandError, match="Add --yes"):
        call_command(*again, stdout=StringIO())
    monkeypatch.setattr("sys.stdin", type("Terminal", (StringIO,), {"isatty": lambda _: True})())
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    with pytest.raises(CommandError, match="Nothing was changed"):
        call_command(*again, stdout=StringIO())
    WorkerHeartbeat.objects.create(name="celery@here", heard_at=timezone.now())
    with pytest.raises(CommandError, match="A worker is still running"):
        call_command(*again, "--yes", stdout=StringIO())
    for file, words in (("backups", "is a folder"), ("identity", "is not a backup"), ("nothing", "is not a backup")):
        with pytest.raises(CommandError, match=words):
            restore(tmp_path / file)

    def into(**values: Any) -> Callable[..., None]:
        return lambda content, manifest: manifest.update(values)

    def file_missing(content: dict[str, bytes], manifest: dict[str, Any]) -> None:
        manifest["files"]["../private/other"] = ""

    def file_changed(content: dict[str, bytes], manifest: dict[str, Any]) -> None:
        name = next(name for name in content if name.startswith("private/"))
        content[name] = content[name][:-1]

    later = [*manifest_of(made)["migrations"], ["training", "9999_later"]]
    for change, words in (
        (into(vendor="oracle"), "is from oracle"),
        (into(format=3, version="9.8.7"), f"by iPATE 9.8.7, and this is iPATE {__version__}. Install the version"),
        (into(migrations=later), "training 9999_later"),
        (file_missing, "missing or has changed"),
        (file_changed, "missing or has changed"),
    ):
        with pytest.raises(CommandError, match=words):
            restore(changed(made, tmp_path / "changed", change))
    assert files() == before and Study.objects.count() == 1


def test_an_encrypted_backup_reveals_nothing_without_the_private_key(tmp_path: Path, identity: Path) -> None:
    study = study_with_table()
    made = backup(tmp_path / "backups")
    raw = made.read_bytes()
    assert made.name.endswith(".tar.age") and raw.startswith(b"age-encryption.org/v1\n")
    for secret in (study.slug, MANIFEST, "private/", "consent_study", "SQLite format", "PGDMP", "PK\x03\x04\x14\x00"):
        assert secret.encode() not in raw, secret
    before = files()

    def refused(words: str, *options: str, file: Path = made) -> None:
        with pytest.raises(CommandError, match=words):
            call_command("restore", str(file), "--replace", "--yes", *options, stdout=StringIO())

    refused("is encrypted. Give the file")
    refused("is not a private key", "--identity", str(made))
    key = StringIO()
    call_command("backup_key", str(tmp_path / "other"), stdout=key)
    with pytest.raises(CommandError, match="Name a new file"):
        call_command("backup_key", str(tmp_path / "other"), stdout=StringIO())
    assert (tmp_path / "other").stat().st_mode & 0o077 == 0
    (other,) = identities_read(tmp_path / "other")
    assert f"IPATE_BACKUP_RECIPIENT={other.to_public()}\n" in key.getvalue() and str(other) not in key.getvalue()
    refused("encrypted with a different key", "--identity", str(tmp_path / "other"))
    for damaged in (raw[:-1], raw[: len(raw) // 2], raw[:-20] + bytes([raw[-20] ^ 1]) + raw[-19:]):
        (tmp_path / "damaged").write_bytes(damaged)
        refused("damaged", "--identity", str(identity), file=tmp_path / "damaged")
    assert files() == before


def test_an_unencrypted_backup_has_to_be_asked_for(tmp_path: Path) -> None:
    study = study_with_table()
    with pytest.raises(CommandError, match=r"No backup was made.*backup_key"):
        call_command("backup", str(tmp_path / "backups"), stdout=StringIO())
    assert not (tmp_path / "backups").exists() and not BackupRecord.objects.exists()
    out = StringIO()
    call_command("backup", str(tmp_path / "backups"), "--unencrypted", stdout=out)
    (made,) = (tmp_path / "backups").glob("ipate-2*")
    assert "NOT ENCRYPTED" in out.getvalue() and made.suffix == ".tar"
    assert not BackupRecord.objects.get().encrypted
    Study.objects.filter(pk=study.pk).update(title="later")
    call_command("restore", str(made), "--replace", "--yes", stdout=StringIO())
    assert Study.objects.get().title != "later"


def dump_broken(content: dict[str, bytes], manifest: dict[str, Any], cut: Callable[[bytes], bytes]) -> None:
    name = manifest["database"]
    content[name] = cut(content[name])
    manifest["files"][name] = hashlib.sha256(content[name]).hexdigest()


def installation() -> tuple[Any, ...]:
    journal = {path.name: path.read_text() for path in Path(settings.JOURNAL_DIR).glob("*.json")}
    return rows(), files(), journal


def is_left_whole(before: tuple[Any, ...]) -> None:
    assert installation() == before
    assert not (Path(settings.VAR_DIR) / "backup").exists()
    for alias in STORAGES:
        staged = Path(storages[alias].path("restoring")).rglob("*")  # type: ignore[attr-defined]
        assert [path for path in staged if path.is_file()] == []
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ipate%'")
            assert cursor.fetchall() == []


def study_since(folder: Path) -> Path:
    """Return a backup after which files and rows were added, removed and changed."""
    study = study_with_run()
    storages["private"].save("folder/earlier", ContentFile(b"erased since"))
    made = backup(folder)
    storages["private"].delete("folder/earlier")
    storages["private"].save("later", ContentFile(b"not in the backup"))
    dataset = study.datasets.get(kind="private")
    storages["private"].delete(dataset.artifact)
    storages["private"].save(dataset.artifact, ContentFile(b"changed since"))
    consent_withdraw(holder=study.holders.first(), acting_user=None)
    WorkerHeartbeat.objects.all().delete()
    return made


@pytest.mark.both
def test_a_restoration_that_fails_leaves_database_and_files_whole(tmp_path: Path) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'common' AND name = '0001_initial'")
    try:
        unmigrated = backup(tmp_path / "unmigrated")  # lacks the note that it was applied
    finally:
        MigrationRecorder(connection).record_applied("common", "0001_initial")
    made = study_since(tmp_path / "backups")
    lost = changed(made, tmp_path / "lost", lambda *both: dump_broken(*both, lambda dump: b"no database"))
    cut = changed(made, tmp_path / "cut", lambda *both: dump_broken(*both, lambda dump: dump[: len(dump) // 2]))
    before = installation()
    for file, room in ((unmigrated, True), (lost, True), (cut, True), (made, False)):
        with nullcontext() if room else no_room(), pytest.raises(CommandError, match="are unchanged"):
            restore(file)
        is_left_whole(before)


@pytest.mark.both
def test_a_backup_of_an_earlier_version_is_migrated(tmp_path: Path) -> None:
    call_command("migrate", "tokens", "zero", verbosity=0)
    try:
        made = backup(tmp_path / "backups")
    finally:
        call_command("migrate", verbosity=0)
    restore(made)
    assert not ApiToken.objects.exists()


@pytest.mark.both
@pytest.mark.exhaustive
@pytest.mark.parametrize("step", ["_locked", "call_command", "StagedFiles.settle"])
def test_a_killed_restoration_leaves_a_whole_database_and_can_be_repeated(tmp_path, identity, step) -> None:
    """It is killed while copying, before the copy replaces the live one, and right after that."""
    made = study_since(tmp_path / "backups")
    before = installation()
    program = (
        "import os, signal, sys, django; django.setup();"
        "from django.core.management import call_command; from ipate_web.backups import installation;"
        f"installation.{step} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL);"
        "call_command('restore', sys.argv[1], '--identity', sys.argv[2], '--replace', '--yes')"
    )
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
        "DATABASE_URL": database_url(),
        "IPATE_SECRET_KEY": settings.SECRET_KEY,
        "IPATE_VAR_DIR": str(settings.VAR_DIR),
        **site(),
    }
    command, folder = [sys.executable, "-c", program, str(made), str(identity)], settings.BASE_DIR
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    connection.close()
    assert done.returncode == -signal.SIGKILL, done.stderr
    there, stored = rows(), files()
    if step != "StagedFiles.settle":
        assert there == before[0]
        assert before[1].items() <= stored.items()
    else:
        assert ConsentEvent.objects.count() == len(before[0][ConsentEvent]) - 1

    # The next backup or restoration deletes leftovers of the killed one.
    backup(tmp_path / "more")
    if step != "StagedFiles.settle":
        BackupRecord.objects.filter(pk=BackupRecord.objects.latest("made_at").pk).delete()
        is_left_whole(before)
    assert "table is locked" in restore(made)
    assert stored_names() == names_of(made)


def older(made: Path, **ago: float) -> Path:
    """Return a copy of a backup as if it had been made some time ago."""
    moment = timezone.now().astimezone(UTC) - timedelta(**ago)
    copy = made.with_name(f"{moment:ipate-%Y-%m-%dT%H%M%SZ}.tar.age")
    shutil.copy(made, copy)
    return copy


def test_old_backups_are_deleted_and_the_last_only_after_an_erasure(tmp_path, monkeypatch) -> None:
    forgotten: list[float] = []  # ages in days after which decisions are removed from the journal
    forget = "ipate_web.backups.installation.acts_forget"
    monkeypatch.setattr(forget, lambda _, age: forgotten.append(age / timedelta(days=1)))
    study, folder = study_with_table(), tmp_path / "backups"
    made = backup(folder)
    assert timezone.now() - BackupRecord.objects.get().made_at < timedelta(minutes=1)
    old, young = older(made, days=35.1), older(made, days=34.9)
    made = made.rename(older(made, hours=1))
    (folder / "notes.txt").write_text("not ours")
    partial = folder / f"{made.name}.partial"
    partial.write_text("")
    os.utime(partial, (0, 0))
    last = backup(folder)
    assert set(folder.iterdir()) == {made, young, last, folder / KEYS, folder / "notes.txt"} and not old.exists()

    last.unlink()
    made.rename(older(made, days=40))
    young.unlink()

    def failing() -> set[str]:
        """Return the names that remain after a failed backup."""
        records = BackupRecord.objects.count()
        with no_room(), pytest.raises(CommandError, match=NOT_WRITTEN):
            backup_say(folder)
        assert not (Path(settings.VAR_DIR) / "backup").exists() and BackupRecord.objects.count() == records
        return {path.name for path in folder.glob("ipate-2*")}

    assert forgotten == pytest.approx([35, 35], abs=0.01)
    assert len(failing()) == 1, "the last good one is kept while nothing was erased since"
    assert forgotten[2:] == pytest.approx([40], abs=0.01), "the journal still has what the last one lacks"
    consent_withdraw(holder=study.holders.first(), acting_user=None)
    records_erase(study.pk)
    assert failing() == set(), "erased people are in no backup older than the stated number of days"
    assert forgotten[3:] == pytest.approx([35], abs=0.01)
    with pytest.raises(CommandError, match=NOT_WRITTEN):
        backup_say(folder / "notes.txt" / "backup")
    with pytest.raises(CommandError, match="--keep-days"):
        backup_say(folder, "--keep-days", "0")


def test_a_file_that_comes_and_goes_while_it_is_copied_is_tried_again(tmp_path, monkeypatch) -> None:
    """A run's row names a file that exists when copying begins and is deleted before it is read."""
    from ipate_web.backups import installation as backups
    from ipate_web.backups.databases import snapshot

    study = study_with_table()
    run = run_start(study, share=0.25, **TABLE_RUN)
    tries = []

    def busy(path: Path) -> Any:
        tries.append(path)
        if len(tries) < 3:
            Run.objects.filter(pk=run.pk).update(assignment=f"runs/moment-{len(tries)}.npz")
        return snapshot(path)

    monkeypatch.setattr(backups, "snapshot", busy)
    backup(tmp_path / "backup")
    assert len(tries) == 3
    monkeypatch.setattr(backups, "TRIES", 1)
    tries.clear()
    Run.objects.filter(pk=run.pk).update(assignment="")
    with pytest.raises(CommandError, match="Stop the workers"):
        backup(tmp_path / "another")
    assert not list(tmp_path.glob("another/*"))


def test_unfinished_files_of_dead_writers_do_not_prevent_a_backup(tmp_path: Path) -> None:
    study = study_with_table()
    whole = Path(storages["private"].path(study.datasets.get(kind="private").artifact))
    for name, length in (("empty", 0), ("header", 90), ("half", whole.stat().st_size // 2)):
        whole.with_name(f"{name}.npz").write_bytes(whole.read_bytes()[:length])
    ring = next(path for path in Path(storages["keys"].path("")).iterdir())
    ring.with_name(f"{ring.name}.new").write_bytes(ring.read_bytes())
    made = backup(tmp_path)
    kept = manifest_of(made)["files"]
    assert f"private/datasets/{whole.name}" in kept
    assert not {f"private/datasets/{name}.npz" for name in ("empty", "header", "half")} & kept.keys()
    restore(made)
    assert len(owners_of(study.datasets.get(kind="private"))) == 30


@pytest.mark.exhaustive
def test_every_field_that_names_a_file_is_known(tmp_path: Path) -> None:
    study_with_run(retain_votes=True)
    for slug, method in (("asking", ASKING_RUN), ("steps", STEPS_RUN), ("samples", SAMPLED_RUN)):
        run_ask(run_start(study_with_table(slug, holders=12), share=0.25, **method), 1)
    stored = {name for _, name in files()}
    fields = {
        (model._meta.label, field.name)
        for model in apps.get_models()
        for field in model._meta.local_concrete_fields
        if isinstance(field, models.CharField)
        and stored & set(map(str, model._default_manager.values_list(field.name, flat=True)))
    }
    assert len(fields) > 5
    assert fields <= {(label, field) for label, field, _ in FIELDS}


@pytest.mark.both
@pytest.mark.exhaustive
def test_a_new_installation_takes_a_backup(tmp_path: Path, identity: Path) -> None:
    """The command restores it into an empty folder, or another user's empty database, after the journal was moved."""
    study_with_run()
    user_create("root", is_superuser=True)
    made = backup(tmp_path / "backup")
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_VAR_DIR": str(tmp_path / "new")}
    environment |= {"IPATE_SECRET_KEY": settings.SECRET_KEY, "IPATE_JOURNAL_DIR": str(settings.JOURNAL_DIR)}

    def manage(*arguments: str) -> str:
        command, folder = [sys.executable, "manage.py", *arguments], settings.BASE_DIR
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with another_database(f"ipate_restored_{os.getpid()}") as address:
        if address:
            environment["DATABASE_URL"] = address
        said = manage("restore", str(made), "--identity", str(identity), "--yes")
        assert "Restored" in said and " ok  " in said and "FAULT" not in said and "locked" not in said
        assert "table" in manage("shell", "-v0", "-c", "print(Study.objects.get().slug)")
        manage("verify_ledger", "--replay")


@pytest.mark.both
@pytest.mark.exhaustive
def test_a_drill_restores_elsewhere_and_changes_nothing(tmp_path: Path, identity: Path) -> None:
    study = study_with_run(retain_votes=True)
    made = backup(tmp_path / "backup")
    consent_withdraw(holder=study.holders.first(), acting_user=None)
    before = (files(), rows(), sorted(Path(settings.VAR_DIR).rglob("*")))
    report, given = tmp_path / "report.json", connection.settings_dict

    def drill(file: Path, *options: str) -> str:
        out = StringIO()
        call_command("restore_drill", str(file), f"--identity={identity}", f"--report={report}", *options, stdout=out)
        return out.getvalue()

    name = f"ipate_drill_{os.getpid()}"
    with another_database(name) as address:
        if address:
            with pytest.raises(CommandError, match="--database"):
                drill(made)
            address = address.replace(f"{name}:of-the-test", f"{given['USER']}:{given['PASSWORD']}")
        said = drill(made, *([f"--database={address}"] if address else []))
    assert (files(), rows(), sorted(Path(settings.VAR_DIR).rglob("*"))) == before
    found = json.loads(report.read_text())
    assert found["locked"] == ["table"], "someone has withdrawn since"
    assert found["restore_seconds"] > 0 and found["bytes"] == made.stat().st_size and found["age_hours"] < 1
    assert "The backup is complete" in said and "locked: table" in said

    def lose(content: dict[str, bytes], manifest: dict[str, Any]) -> None:
        del content[next(name for name in content if name.startswith("private/"))]

    broken = changed(made, tmp_path / "broken.tar.age", lose)
    with pytest.raises(CommandError):
        drill(broken, "--database=postgres://nobody@localhost/x")
