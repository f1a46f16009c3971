"""Restore a backup.

Stop the site, workers and beat first. If anything fails, the database and files stay as they are. The journal is never
changed. Studies for which the backup lacks records are locked until you call ipate settle_restore.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from ipate_web.backups import BackupError
from ipate_web.backups.archives import identities_read
from ipate_web.backups.files import backup_keys, keys_check, keys_restore
from ipate_web.backups.installation import backup_check, backup_restore, content_at_risk, is_running

CONFIRMATION = "restore"


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="backup file that ipate backup wrote")
        parser.add_argument("--identity", type=Path, metavar="FILE", help="file with the private key of the backup")
        parser.add_argument(
            "--keys",
            type=Path,
            metavar="FILE",
            help="copy of the keys of people's records (default: the one next to the backup); existing keys are kept",
        )
        parser.add_argument("--replace", action="store_true", help="delete the data of this installation")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(
        self, *args: Any, file: Path, identity: Path | None, keys: Path | None, replace: bool, yes: bool, **options: Any
    ) -> None:
        keys = keys or backup_keys(file)
        try:
            identities = identities_read(identity) if identity else []
            manifest = backup_check(file, identities)
            if is_running():
                raise CommandError("A worker is still running. Stop the site, the workers and beat, then try again.")
            contents = content_at_risk()
            if contents and not replace:
                raise CommandError(
                    f"This installation is not empty: {contents}. Back it up, then repeat the command with --replace, "
                    "which deletes its data."
                )
            made = f"made {manifest['made_at']} by iPATE {manifest['version']}"
            self._confirm(f"{file}, {made}, {len(manifest['files'])} files", contents, yes)
            locked = backup_restore(file, identities, manifest)
            if keys is not None:
                keys_restore(keys, identities)
            keys_check()
        except BackupError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("Restored. Everyone has to sign in again.")
        if not locked:
            call_command("verify_ledger", stdout=self.stdout)
        for slug in locked:
            self.stdout.write(
                f"{slug} is locked: decisions or releases are lost. Run ipate settle_restore {slug} --user YOU: "
                "it restores decisions made since the backup, and charges what may have been released."
            )

    def _confirm(self, backup: str, contents: str, yes: bool) -> None:
        """Ask the person at the terminal to confirm; raise CommandError unless they agree."""
        self.stdout.write(f"Restore {backup}." + (f" This deletes {contents}." if contents else ""))
        if yes:
            return
        if not sys.stdin.isatty():
            raise CommandError("There is no terminal to confirm this on. Add --yes to skip the confirmation.")
        if input(f"Type “{CONFIRMATION}” to continue: ").strip() != CONFIRMATION:
            raise CommandError("Nothing was changed.")
