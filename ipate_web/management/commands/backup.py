"""Command ``backup``: database, private storage and models, while everything runs."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ipate_web.backups import BackupError, manifest_of
from ipate_web.backups.making import backup_make


class Command(BaseCommand):
    help = (
        "Copy the database, private storage and the models into a new folder, while site and workers go on. The copy "
        "holds everything that is secret, readable by its owner alone and not encrypted: keep it on an encrypted disk. "
        "The secret key and the journal are not in it (docs/operations.md)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="new folder, such as /srv/backup/ipate-$(date -u +%%FT%%H%%M%%S)")

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        try:
            digest = backup_make(folder)
        except BackupError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{folder} is complete. SHA-256 of {manifest_of(folder).name}: {digest}")
