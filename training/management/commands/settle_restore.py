"""Command ``manage.py settle_restore``: unlock a study after its database was restored from a backup."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounting.restores import is_distrusted, missing_rows
from consent.models import Disposal, Study
from training.services.restores import restore_settle


class Command(BaseCommand):
    help = (
        "Charge to every holder what may have been released between a restored backup and now, end the runs that were "
        "under way at the backup, and unlock the study. Enter the decisions since the backup first: until then holders "
        "who have withdrawn would be learned from again, and the accounts of those who joined would not be charged."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("study", help="short name of the study")
        parser.add_argument(
            "--share",
            type=float,
            help="share of every cap that may have been granted since (default: what the journal says)",
        )
        parser.add_argument(
            "--withdrawals-entered", action="store_true", help="confirm that withdrawals since the backup are entered"
        )

        parser.add_argument(
            "--erasures-entered",
            action="store_true",
            help="confirm that what was erased, removed or closed since the backup is again: its records came back",
        )

    def handle(
        self,
        *args: Any,
        study: str,
        share: float | None,
        withdrawals_entered: bool,
        erasures_entered: bool,
        **options: Any,
    ) -> None:
        found = Study.objects.filter(slug=study).first()
        if found is None:
            known = ", ".join(Study.objects.values_list("slug", flat=True)) or "none yet"
            raise CommandError(f"There is no study “{study}”. Studies: {known}.")
        missing = missing_rows(found)
        if not missing:
            self.stdout.write(f"{study} is not locked: its database is as new as the journal.")
            return
        if is_distrusted(found):
            self.stdout.write(
                "The journal did not reach as far as the backup: what was released since is not known. Without --share "
                "all that is left of every account counts as used."
            )
        else:
            for chain, rows in missing.items():
                self.stdout.write(f"{chain}: {rows} rows that the journal knows are missing")
        if not withdrawals_entered:
            raise CommandError(
                "Enter the withdrawals since the backup, and whoever joined, from mails and letters; then call this "
                "command again with --withdrawals-entered."
            )
        if not erasures_entered and (is_distrusted(found) or Disposal._meta.label_lower in missing):
            raise CommandError(
                "What was erased since the backup is back in private storage. Ask again for the erasures since (on the "
                "page Closings and erasures), remove the datasets that were removed, close the study if it was closed; "
                "then call this command again with --erasures-entered, too."
            )
        reached = restore_settle(study=found, share=share)
        done = f"every account is charged up to {100 * reached:.4g} % of its cap" if reached else "nothing is charged"
        self.stdout.write(f"{study}: {done}; the study is unlocked.")
