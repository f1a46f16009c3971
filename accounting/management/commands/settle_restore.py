"""Command ``manage.py settle_restore``: unlock a study after its database was restored from a backup."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounting.gaps import gap_settle
from accounting.restores import missing_rows
from consent.models import Study


class Command(BaseCommand):
    help = (
        "Charge to every holder what may have been released between a restored backup and now, and unlock the study. "
        "Enter the withdrawals since the backup first: until then their holders would be learned from again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("study", help="short name of the study")
        parser.add_argument(
            "--share",
            type=float,
            help="share of every cap that may have been used since (default: what the journal says)",
        )
        parser.add_argument(
            "--withdrawals-entered", action="store_true", help="confirm that withdrawals since the backup are entered"
        )

    def handle(self, *args: Any, study: str, share: float | None, withdrawals_entered: bool, **options: Any) -> None:
        found = Study.objects.filter(slug=study).first()
        if found is None:
            known = ", ".join(Study.objects.values_list("slug", flat=True)) or "none yet"
            raise CommandError(f"There is no study “{study}”. Studies: {known}.")
        missing = missing_rows(found)
        if not missing:
            self.stdout.write(f"{study} is not locked: its database is as new as the journal.")
            return
        for chain, rows in missing.items():
            self.stdout.write(f"{chain}: {rows} rows that the journal knows are missing")
        if not withdrawals_entered:
            raise CommandError(
                "Enter the withdrawals since the backup, from mails and letters; then call this command again with "
                "--withdrawals-entered."
            )
        charged = gap_settle(study=found, share=share)
        self.stdout.write(f"{study}: {100 * charged:.4g} % of every cap is charged for the gap; the study is unlocked.")
