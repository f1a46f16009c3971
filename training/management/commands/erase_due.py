"""Erase the records of people who requested this, and all private records of studies whose retention period is over.

Workers do this every quarter of an hour; this command does it immediately or, with --dry-run, shows what is due.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from common.progress import counted
from consent.services.erasures import holders_waiting
from training.services.erasures import records_due_erase, studies_to_erase, studies_waiting


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only list what would be erased")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        waiting, over = studies_waiting(), studies_to_erase()
        for study in waiting:
            people = counted(len(holders_waiting(study)), "person", "people")
            self.stdout.write(f"{study.slug}: {people} asked to have their records erased")
        for study in over:
            self.stdout.write(f"{study.slug}: all private records, kept until {study.retention_until}")
        if dry_run or not waiting + over:
            self.stdout.write("Nothing was erased (--dry-run)." if dry_run else "There is nothing to erase.")
            return
        records_due_erase()
        left = len(studies_waiting()) + len(studies_to_erase())
        studies = counted(left, "study", "studies")
        self.stdout.write(
            f"Records of {studies} could not be erased; see the log." if left else "Everything was erased."
        )
