"""Make a key pair for backups: write the private key to a new file and print the public key.

Run this on a machine that does not make backups, or move the file elsewhere and delete it here. The private key
decrypts every backup; without it, no backup can be read. age-keygen makes the same kind of file.
"""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pyrage
from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="new file for the private key")

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        identity = pyrage.x25519.Identity.generate()
        recipient = identity.to_public()
        try:
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as target:
                target.write(f"# public key: {recipient}\n{identity}\n")
        except OSError as error:
            raise CommandError(f"The private key could not be written: {error}. Name a new file.") from error
        self.stdout.write(
            f"IPATE_BACKUP_RECIPIENT={recipient}\n"
            f"The private key is in {file}. Keep it and a copy away from this installation and its backups: "
            "only ipate restore --identity needs it."
        )
