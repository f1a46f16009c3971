"""Make a key pair for signed checkpoints (Ed25519).

The private key is written to a new file that only its owner can read; the public key is printed. Run this as the user
who signs, which must not be the site's user.
"""

import os
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from common.transparency import NoteError, SigningKey


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="new file for the private key")
        parser.add_argument(
            "--name",
            default=f"{urlsplit(settings.SITE_URL).netloc}/checkpoints",
            help="name of the key and the log; keep it when you change the key (default: %(default)s)",
        )

    def handle(self, *args: Any, file: Path, name: str, **options: Any) -> None:
        try:
            key = SigningKey.made(name)
            with open(file, "x", opener=partial(os.open, mode=0o600)) as written:
                written.write(f"{key.text}\n")
        except FileExistsError:
            raise CommandError(
                f"{file} already exists. Choose another name, because private keys are never overwritten."
            ) from None
        except (OSError, NoteError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"Public key, for IPATE_CHECKPOINT_KEYS (put earlier ones after it, separated by commas) and for everyone "
            f"who checks:\n{key.public}"
        )
