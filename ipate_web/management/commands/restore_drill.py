"""Restore a backup into an empty installation, verify it, measure the duration, and delete the installation.

The database, files and journal of this installation stay as they are, because a new process restores into a separate
folder under IPATE_VAR_DIR, with a copy of the journal. On PostgreSQL, name an empty database with --database. The exit
status is 1 if the backup cannot be restored or is incomplete. Studies that would be locked because of decisions or
releases since the backup are not a failure.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import timezone

from accounting.verification import JOURNAL_CHECK
from ipate_web.backups import STORAGES, BackupError
from ipate_web.backups.archives import identities_read
from ipate_web.backups.installation import backup_check


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="backup file that ipate backup wrote")
        parser.add_argument("--identity", type=Path, metavar="FILE", help="file with the private key of the backup")
        parser.add_argument("--database", default="", metavar="URL", help="empty PostgreSQL database for the drill")
        parser.add_argument("--report", type=Path, metavar="FILE", help="also write the report as JSON")

    def handle(self, *, file: Path, identity: Path | None, database: str, report: Path | None, **_: Any) -> None:
        if connection.vendor == "postgresql" and not database:
            raise CommandError("Name an empty database with --database postgres://user:password@host/name.")
        if database and database == os.environ.get("DATABASE_URL"):
            raise CommandError("This is the installation's own database: name an empty one.")
        try:
            manifest = backup_check(file, identities_read(identity) if identity else [])
        except BackupError as error:
            raise CommandError(str(error)) from error
        made = datetime.fromisoformat(manifest["made_at"])
        facts: dict[str, Any] = {
            "backup": str(file),
            "made_at": manifest["made_at"],
            "version": manifest["version"],
            "bytes": file.stat().st_size,
            "age_hours": round((timezone.now() - made).total_seconds() / 3600, 1),
        }
        options = ["--identity", str(identity.resolve())] if identity else []
        with tempfile.TemporaryDirectory(prefix="drill-", dir=settings.VAR_DIR) as folder:
            environment = self._environment(Path(folder), database)
            output, facts["restore_seconds"] = self._call(
                environment, "restore", str(file.resolve()), "--yes", *options
            )
            facts["locked"] = re.findall(r"^(\S+) is locked:", output, re.MULTILINE)
            output, facts["verify_seconds"] = self._call(environment, "verify_ledger", "--replay", may_fail=True)
        faults = set(re.findall(r"^ +(FAULT  .*)$", output, re.MULTILINE))
        # Every backup lacks later decisions and releases. They lock the study, but can be settled.
        if faults - {f"FAULT  {JOURNAL_CHECK}"} or not re.search(r"^ +ok  ", output, re.MULTILINE):
            raise CommandError(f"The backup can be restored, but its content has faults.\n{output}")
        for name, value in facts.items():
            self.stdout.write(f"{name.replace('_', ' ')}: {', '.join(value) if isinstance(value, list) else value}")
        self.stdout.write("The backup is complete and has no faults. The restored copy was deleted.")
        if report:
            report.write_text(json.dumps(facts, indent=1) + "\n")

    def _environment(self, folder: Path, database: str) -> dict[str, str]:
        """Return the environment variables of an empty installation in ``folder`` with this installation's keys."""
        if Path(settings.JOURNAL_DIR).is_dir():
            shutil.copytree(settings.JOURNAL_DIR, folder / "journal")
        if Path(settings.KEYS_DIR).is_dir():
            # Without these keys, people's records cannot be read.
            shutil.copytree(settings.KEYS_DIR, folder / "var" / "keys")
        elsewhere = {f"IPATE_{alias.upper()}_STORAGE{end}" for alias in STORAGES for end in ("", "_OPTIONS")}
        elsewhere |= {"IPATE_MAIL", "IPATE_CACHE_URL", "IPATE_SIGN_OF_LIFE_URL", "DATABASE_URL"}
        elsewhere |= {"IPATE_SECRET_KEY_FILE", "IPATE_SECRET_KEY_COMMAND"}
        return {name: text for name, text in os.environ.items() if name not in elsewhere} | {
            "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
            "IPATE_VAR_DIR": str(folder / "var"),
            "IPATE_JOURNAL_DIR": str(folder / "journal"),
            "IPATE_BROKER_URL": "filesystem://",
            "IPATE_SECRET_KEY": settings.SECRET_KEY,
            "DATABASE_URL": database,
        }

    def _call(self, environment: dict[str, str], *arguments: str, may_fail: bool = False) -> tuple[str, float]:
        """Run a command in the restored installation; return its output and its duration in seconds.

        Raises:
            CommandError: the command failed.
        """
        begun = time.monotonic()
        command = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 (our own)
        if done.returncode != 0 and not may_fail:
            raise CommandError(f"ipate {arguments[0]} failed.\n{done.stdout}\n{done.stderr[-2000:]}")
        return done.stdout, round(time.monotonic() - begun, 1)
