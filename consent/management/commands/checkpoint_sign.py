"""Sign today's checkpoint with the private key in IPATE_CHECKPOINT_KEY_FILE.

The checkpoint is written to the second location, and emails to auditors and ethics committees are queued. If today's
checkpoint exists, only the parts missing at the second location are written. If the records contradict earlier
checkpoints, nothing is signed (exit status 1).
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from consent.services.checkpoints import CheckpointError, checkpoint_make, signing_key


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--after-restore",
            action="store_true",
            help="after a restore: continue from checkpoints that the second location has and the database lacks",
        )

    def handle(self, *args: Any, after_restore: bool, **options: Any) -> None:
        try:
            checkpoint = checkpoint_make(key=signing_key(), adopted=after_restore)
        except CheckpointError as error:
            raise CommandError(str(error)) from error
        if checkpoint is None:
            self.stdout.write("Today's checkpoint has already been signed.")
        else:
            self.stdout.write(checkpoint.note)
