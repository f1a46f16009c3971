"""Compare signed checkpoints, such as saved emails, with the records.

The log of checkpoints may only have grown, and everything that each checkpoint commits to must be unchanged. Without a
file, the last checkpoint in the database is checked. An auditor runs this on a copy of the database, with keys that
they have kept themselves. The exit status is 1 if anything is wrong.
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from common.transparency import NoteError, public_check
from consent.models import Checkpoint, Study
from consent.services.checkpoints import (
    CheckpointError,
    log_copy_faults,
    log_faults,
    note_faults,
    rows_faults,
    state_of,
)


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a saved checkpoint, such as an email")
        parser.add_argument(
            "--key",
            action="append",
            metavar="KEY",
            help="a public key that may have signed the checkpoints (default: those in the settings)",
        )

    def handle(self, *args: Any, files: list[Path], key: list[str] | None, **options: Any) -> None:
        keys = key or settings.CHECKPOINT_KEYS
        try:
            for each in keys:
                public_check(each)
        except NoteError as error:
            raise CommandError(str(error)) from error
        if not keys:
            raise CommandError("Give the public key with --key.")
        faults = [*log_faults(keys), *log_copy_faults()]
        for study in Study.objects.all():
            faults += [f"{study.slug}: {fault}" for fault in rows_faults(study)]
        for file in files:
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                raise CommandError(f"{file} cannot be read ({type(error).__name__}).") from error
            faults += [f"{file}: {fault}" for fault in note_faults(text, keys)]
        last = None if files else Checkpoint.objects.exclude(key="").last()
        if last is not None:
            try:
                state_of(last)
            except CheckpointError as error:
                faults.append(str(error))
        if faults:
            raise CommandError("\n".join(faults))
        held = "the given files" if files else "the last one"
        self.stdout.write(f"{Checkpoint.objects.count()} checkpoints; the records match {held}.")
