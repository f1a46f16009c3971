"""Copy the database, private storage and the models into a new file of a folder, while site and workers go on.

The file is encrypted to IPATE_BACKUP_RECIPIENT (manage.py backup_key makes the keys). Backups in that folder that are
older than IPATE_BACKUP_DAYS are deleted. The secret key and the journal are not in it (docs/operations.md).
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipate_web.backups import BackupError
from ipate_web.backups.making import backup_make, backups_prune


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="folder for backups, such as /var/backups/ipate")
        parser.add_argument(
            "--keep-days",
            type=int,
            default=settings.BACKUP_DAYS,
            metavar="N",
            help="delete backups that are older (default: IPATE_BACKUP_DAYS, %(default)s)",
        )
        parser.add_argument(
            "--unencrypted",
            action="store_true",
            help="do not encrypt: whoever reads the file then reads all that people entrusted to the site",
        )

    def handle(self, *args: Any, folder: Path, keep_days: int, unencrypted: bool, **options: Any) -> None:
        if keep_days < 1:
            raise CommandError("--keep-days is a whole number above 0.")
        if not unencrypted and not settings.BACKUP_RECIPIENTS:
            raise CommandError(
                "No backup was made: there is no key to encrypt it to. Make one by manage.py backup_key FILE and set "
                "IPATE_BACKUP_RECIPIENT, or add --unencrypted where the disk is encrypted."
            )
        try:
            try:
                path, digest = backup_make(folder, [] if unencrypted else settings.BACKUP_RECIPIENTS)
            finally:
                # Also after a failure: what people were told of old backups holds all the same.
                if folder.is_dir():
                    for old in backups_prune(folder, keep_days):
                        self.stdout.write(f"{old.name} was older than {keep_days} days or never completed; deleted.")
        except BackupError as error:
            raise CommandError(str(error)) from error
        state = "NOT ENCRYPTED" if unencrypted else "encrypted"
        self.stdout.write(f"{path} is complete and {state}. SHA-256: {digest}")
