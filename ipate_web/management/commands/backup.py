"""Copy the database, private storage and the models into a new file in a folder while the site and workers run.

The file is encrypted to IPATE_BACKUP_RECIPIENT (ipate backup_key makes the keys). Backups in that folder that are older
than IPATE_BACKUP_DAYS are deleted. The file contains neither the secret keys nor the journal (docs/backup.md). The
keys of people's records are written to a separate file next to it, which replaces the previous one.
"""

import time
from argparse import ArgumentParser
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import timezone

from ipate_web.backups import BackupError
from ipate_web.backups.files import keys_check, keys_copy
from ipate_web.backups.installation import backup_make, backups_prune
from ipate_web.processes import unwind_on_signals

#: Hour of the nightly backup, in IPATE_TIME_ZONE.
HOUR = 3


def night_after(now: datetime) -> datetime:
    """Return the next time when it is three o'clock in the time zone of ``now``."""
    night = now.replace(hour=HOUR, minute=0, second=0, microsecond=0)
    return night if night > now else night + timedelta(days=1)


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="folder for backups, such as /var/backups/ipate")
        parser.add_argument(
            "--keep-days",
            type=int,
            default=settings.BACKUP_DAYS,
            metavar="N",
            help="delete backups older than N days (default: IPATE_BACKUP_DAYS, %(default)s)",
        )
        parser.add_argument(
            "--unencrypted",
            action="store_true",
            help="do not encrypt: anyone who can read the file can read all personal data on the site",
        )
        parser.add_argument(
            "--nightly",
            action="store_true",
            help="keep running and back up every night at three (IPATE_TIME_ZONE), for containers without a timer",
        )

    def handle(self, *, folder: Path, keep_days: int, unencrypted: bool, nightly: bool, **_: Any) -> None:
        if keep_days < 1:
            raise CommandError("--keep-days must be a whole number above 0.")
        if not unencrypted and not settings.BACKUP_RECIPIENTS:
            raise CommandError(
                "No backup was made: there is no key to encrypt it with. Make one with ipate backup_key FILE and set "
                "IPATE_BACKUP_RECIPIENT, or add --unencrypted where the disk is encrypted."
            )
        if not nightly:
            self._make(folder, keep_days, unencrypted)
            return
        unwind_on_signals()
        try:
            while True:
                now = timezone.localtime()
                time.sleep((night_after(now) - now).total_seconds())
                try:
                    self._make(folder, keep_days, unencrypted)
                except CommandError as error:
                    self.stderr.write(f"{error} The next attempt is tomorrow.")
                # The database may be restarted during the wait.
                connections.close_all()
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")

    def _make(self, folder: Path, keep_days: int, unencrypted: bool) -> None:
        try:
            recipients = [] if unencrypted else settings.BACKUP_RECIPIENTS
            try:
                keys_check()
                path, digest = backup_make(folder, recipients)
                # Keys are copied after the backup, because the copy must contain the keys of everything in the backup.
                keys = keys_copy(folder, recipients)
            finally:
                # Runs even after a failure, so that old backups are deleted when promised.
                if folder.is_dir():
                    for old in backups_prune(folder, keep_days):
                        self.stdout.write(f"{old.name} was older than {keep_days} days or incomplete, and was deleted.")
        except BackupError as error:
            raise CommandError(str(error)) from error
        state = "NOT ENCRYPTED" if unencrypted else "encrypted"
        self.stdout.write(f"{path} is complete and {state}. SHA-256: {digest}")
        self.stdout.write(f"{keys} contains the keys of people's records and replaces the previous copy.")
