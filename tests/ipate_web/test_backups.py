"""``manage.py backup`` and ``restore``: made while a worker is at work, restored, locked, and settled."""

import json
import os
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.utils import timezone

from accounting.book import balances, charges_of
from accounting.head_counts import head_counts_draw
from accounting.models import Release
from accounting.restores import missing_rows
from common.models import WorkerHeartbeat
from common.noise import SimulationNoise
from consent.models import ConsentEvent, Study
from consent.services import consent_withdraw
from ipate_web.backups import STORAGES
from ipate_web.backups.files import names_in
from ipate_web.backups.references import FIELDS
from tests.factories import user_create
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, STEPS_RUN, run_ask
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from tests.workers import wait_until, worker
from training.models import Run
from training.services.erasures import records_erase

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

if (
    connection.vendor == "postgresql"
    and not shutil.which("pg_dump")
    and os.environ.get("IPATE_REQUIRE_SERVICES") != "1"
):
    pytestmark.append(pytest.mark.skip("PostgreSQL's client programs are not installed"))


@pytest.fixture(autouse=True)
def _storages_of_its_own(settings: Any, tmp_path: Path) -> None:
    """Storages that hold nothing of other tests."""
    settings.STORAGES = settings.STORAGES | {
        alias: settings.STORAGES[alias]
        | {"OPTIONS": settings.STORAGES[alias]["OPTIONS"] | {"location": str(tmp_path / "var" / alias)}}
        for alias in STORAGES
    }


def backup(folder: Path) -> str:
    out = StringIO()
    call_command("backup", str(folder), stdout=out)
    return out.getvalue()


def restore(folder: Path, *options: str) -> str:
    WorkerHeartbeat.objects.all().delete()
    out = StringIO()
    call_command("restore", str(folder), "--yes", *options, stdout=out)
    return out.getvalue()


def files() -> dict[tuple[str, str], bytes]:
    found = {}
    for alias in STORAGES:
        for name in names_in(storages[alias]):
            with storages[alias].open(name) as file:
                found[alias, name] = file.read()
    return found


def settle(slug: str) -> None:
    call_command("settle_restore", slug, "--withdrawals-entered", "--erasures-entered", stdout=StringIO())
    call_command("verify_ledger", stdout=StringIO())


@pytest.mark.worker
def test_a_backup_made_while_a_worker_releases_is_whole_and_locked_until_settled(tmp_path: Path) -> None:
    study = study_with_table(holders=12, points=60, retain_votes=True)
    run, log, folder = run_start(study, share=0.5, **ASKING_RUN), tmp_path / "worker.log", tmp_path / "backup"
    places = {
        f"IPATE_{alias.upper()}_STORAGE_OPTIONS": json.dumps({"location": storages[alias].location})
        for alias in STORAGES
    }  # type: ignore[attr-defined]
    with worker(log, IPATE_JOURNAL_DIR=settings.JOURNAL_DIR, **places):
        wait_until(lambda: Run.objects.get(pk=run.pk).position > 0, log)
        said = backup(folder)
        copied = Release.objects.count()
        left = study.holders.first()
        consent_withdraw(holder=left, acting_user=None)
        wait_until(lambda: Run.objects.get(pk=run.pk).has_ended, log)
    assert str(folder) in said
    charged, events = balances(study), ConsentEvent.objects.count()
    manifest = json.loads((folder / "manifest.json").read_text())
    kept = manifest["heads"]["table"]["accounting.release"][0]
    assert 0 < kept <= copied < Release.objects.count(), "the backup came too early or too late"
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert not list(tmp_path.glob("backup.partial*"))

    said = restore(folder, "--replace")

    assert "table is locked" in said and "FAULT" not in said
    assert Release.objects.count() == kept and ConsentEvent.objects.count() == events - 1
    for release in Release.objects.exclude(charges=""):
        charges_of(release)
    stored = {f"{alias}/{name}" for alias, name in files()}
    assert stored == set(manifest["files"]) - {manifest["database"]}
    with pytest.raises(ValidationError, match="locked"):
        head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(2))

    consent_withdraw(holder=left, acting_user=None)
    settle("table")
    assert (balances(study).of(charged.holders) >= charged.spent * (1 - 1e-12)).all()
    assert Run.objects.get(pk=run.pk).status == Run.Status.FAILED
    head_counts_draw(study=study, acting_user=user_create("otta"), noise=SimulationNoise(2))


def test_where_nothing_was_lost_nothing_is_locked_and_everything_is_as_it_was(tmp_path: Path) -> None:
    study = study_with_table()
    run = run_finish(run_start(study, share=0.25, **TABLE_RUN))
    before, rows = (
        files(),
        {model: model._default_manager.count() for model in apps.get_models() if model._meta.managed},
    )
    assert {alias for alias, _ in before} == set(STORAGES)
    backup(tmp_path / "backup")
    storages["private"].save("later", ContentFile(b"not in the backup"))
    storages["models"].delete(run.student.artifact)  # type: ignore[union-attr]
    said = restore(tmp_path / "backup", "--replace")
    assert files() == before
    assert {model: model._default_manager.count() for model in rows} == rows
    assert "locked" not in said and "FAULT" not in said
    with pytest.raises(Exception, match="append-only"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounting_release")
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(2))


def test_records_erased_after_a_backup_come_back_and_have_to_be_erased_again(tmp_path: Path) -> None:
    study = study_with_table()
    dataset = study.datasets.get(kind="private")
    left, owned = study.holders.first(), dataset.rows
    backup(tmp_path / "backup")

    def erase() -> None:
        consent_withdraw(holder=left, acting_user=None, erase=True)
        assert records_erase(study.pk) == 1
        dataset.refresh_from_db()
        assert dataset.rows == owned - 1

    erase()
    assert "table is locked" in restore(tmp_path / "backup", "--replace")
    dataset.refresh_from_db()
    assert dataset.rows == owned, "the backup knows nothing of the erasure"
    with pytest.raises(CommandError, match="back in private storage"):
        call_command("settle_restore", "table", "--withdrawals-entered", stdout=StringIO())
    assert missing_rows(study)
    erase()
    settle("table")
    assert not missing_rows(Study.objects.get(pk=study.pk))
    dataset.refresh_from_db()
    assert dataset.rows == owned - 1


@pytest.mark.parametrize("journal", ["lost", "older"])
def test_where_the_journal_does_not_reach_as_far_everything_counts_as_used(tmp_path: Path, journal: str) -> None:
    study = study_with_table()
    shutil.copytree(settings.JOURNAL_DIR, tmp_path / "older")
    run_finish(run_start(study, share=0.25, **TABLE_RUN))
    backup(tmp_path / "backup")
    shutil.rmtree(settings.JOURNAL_DIR)
    if journal == "older":
        shutil.copytree(tmp_path / "older", settings.JOURNAL_DIR)
    assert "table is locked" in restore(tmp_path / "backup", "--replace")
    assert missing_rows(study)
    out = StringIO()
    with pytest.raises(CommandError, match="withdrawals"):
        call_command("settle_restore", "table", stdout=out)
    assert "all that is left of every account counts as used" in out.getvalue()
    settle("table")
    assert Release.objects.get(kind=Release.Kind.GAP).content["reached"] == 1.0
    assert not missing_rows(Study.objects.get(pk=study.pk))


def test_what_a_restoration_refuses_leaves_everything_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_with_table()
    folder = tmp_path / "backup"
    backup(folder)
    with pytest.raises(CommandError, match="is there already"):
        backup(folder)
    before = files()
    with pytest.raises(CommandError, match="not empty: 1 studies"):
        restore(folder)
    with pytest.raises(CommandError, match="Add --yes"):
        call_command("restore", str(folder), "--replace", stdout=StringIO())
    monkeypatch.setattr("sys.stdin", type("Terminal", (StringIO,), {"isatty": lambda _: True})())
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    with pytest.raises(CommandError, match="Nothing was changed"):
        call_command("restore", str(folder), "--replace", stdout=StringIO())
    WorkerHeartbeat.objects.create(name="celery@here", heard_at=timezone.now())
    with pytest.raises(CommandError, match="worker was heard"):
        call_command("restore", str(folder), "--replace", "--yes", stdout=StringIO())
    with pytest.raises(CommandError, match="is no backup"):
        restore(tmp_path, "--replace")

    manifest = json.loads((folder / "manifest.json").read_text())
    for change, words in (
        ({"vendor": "oracle"}, "is of oracle"),
        ({"format": 2}, "newer version"),
        ({"migrations": [*manifest["migrations"], ["training", "9999_later"]]}, "training 9999_later"),
        ({"files": manifest["files"] | {"../manifest.json": ""}}, "missing or has changed"),
    ):
        (folder / "manifest.json").write_text(json.dumps(manifest | change))
        with pytest.raises(CommandError, match=words):
            restore(folder, "--replace")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    name = next(name for name in manifest["files"] if name.startswith("private/"))
    with (folder / name).open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\x00\xff")
    with pytest.raises(CommandError, match="missing or has changed"):
        restore(folder, "--replace")
    assert files() == before and Study.objects.count() == 1


def test_what_cannot_be_written_leaves_no_folder(tmp_path: Path) -> None:
    study_with_table()
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="could not be written"):
        backup(tmp_path / "file" / "backup")
    assert not list(tmp_path.glob("*partial*"))


def test_a_file_that_comes_and_goes_while_it_is_copied_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's row names a file that is there at the moment of the copy and gone before it is looked for."""
    from ipate_web.backups import making
    from ipate_web.backups.databases import snapshot

    study = study_with_table()
    run = run_start(study, share=0.25, **TABLE_RUN)
    tries = []

    def busy(path: Path) -> Any:
        tries.append(path)
        if len(tries) < 3:
            Run.objects.filter(pk=run.pk).update(assignment=f"runs/moment-{len(tries)}.npz")
        return snapshot(path)

    monkeypatch.setattr(making, "snapshot", busy)
    backup(tmp_path / "backup")
    assert len(tries) == 3
    monkeypatch.setattr(making, "TRIES", 1)
    tries.clear()
    Run.objects.filter(pk=run.pk).update(assignment="")
    with pytest.raises(CommandError, match="Stop the workers"):
        backup(tmp_path / "another")
    assert not list(tmp_path.glob("another*"))


def test_every_field_that_names_a_file_is_known(tmp_path: Path) -> None:
    for slug, method in (("table", TABLE_RUN), ("asking", ASKING_RUN), ("steps", STEPS_RUN), ("samples", SAMPLED_RUN)):
        run = run_start(study_with_table(slug, retain_votes=True), share=0.25, **method)
        run_finish(run) if method is TABLE_RUN else run_ask(run, 2)
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


def test_a_new_installation_takes_a_backup(tmp_path: Path) -> None:
    """By the command line, into an empty folder or database, with the journal moved there first."""
    study = study_with_table()
    user_create("root", is_superuser=True)
    run_finish(run_start(study, share=0.25, **TABLE_RUN))
    backup(tmp_path / "backup")
    var, name = tmp_path / "new", f"ipate_restored_{os.getpid()}"
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_VAR_DIR": str(var)}
    environment |= {"IPATE_SECRET_KEY": settings.SECRET_KEY, "IPATE_JOURNAL_DIR": str(settings.JOURNAL_DIR)}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        given = connection.settings_dict
        address = f"{given['USER']}:{given['PASSWORD']}@{given['HOST']}:{given['PORT']}"
        environment["DATABASE_URL"] = f"postgres://{address}/{name}"

    def manage(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=settings.BASE_DIR,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        said = manage("restore", str(tmp_path / "backup"), "--yes")
        assert "Restored" in said and "whole" in said and "FAULT" not in said and "locked" not in said
        assert "table" in manage("shell", "-v0", "-c", "print(Study.objects.get().slug)")
        manage("verify_ledger", "--replay")
    finally:
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {name}")
