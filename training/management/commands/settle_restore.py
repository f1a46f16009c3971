"""Unlock a study after its database was restored from a backup.

Decisions that people made after the backup are restored from the journal. Every account is charged for everything that
may have been released since, and runs that were in progress are ended. The study stays locked while the journal
contains decisions that cannot be recorded.
"""

import os
from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from accounting.restores import is_distrusted, missing_rows
from common.progress import counted
from common.spreadsheets import CsvWriter
from consent.management import study_argument, study_by_slug
from consent.models import Study
from consent.services.replays import acts_lost, unrecordable_listed
from training.services.restores import restore_settle


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        study_argument(parser)
        parser.add_argument("--user", required=True, help="your user name, which is recorded")
        parser.add_argument(
            "--share",
            type=float,
            help="share of every cap that may have been granted since the backup (default: from the journal)",
        )
        parser.add_argument(
            "--give-up",
            type=int,
            default=0,
            metavar="N",
            help="accept that N decisions are lost because their person, form or policy was also lost",
        )
        parser.add_argument(
            "--list",
            dest="listed",
            metavar="FILE",
            help="only write a CSV file (pseudonym, kind, day) with the decisions that cannot be recorded; "
            "--user must be a data steward of the study",
        )
        parser.add_argument(
            "--decisions-entered",
            action="store_true",
            help="confirm that decisions and erasures missing from the journal have been entered by hand",
        )

    def handle(
        self,
        *args: Any,
        study: str,
        user: str,
        share: float | None,
        give_up: int,
        decisions_entered: bool,
        listed: str | None,
        **options: Any,
    ) -> None:
        row = study_by_slug(study)
        account = User.objects.filter(username=user, is_active=True).first()
        if account is None:
            raise CommandError(f"There is no active account “{user}”. Give the name that you use to sign in.")
        if listed is not None:
            self._list(row, account, listed)
            return
        missing = missing_rows(row)
        if not missing:
            self.stdout.write(f"{study} is not locked: its database is as new as the journal.")
            return
        if is_distrusted(row):
            self.stdout.write(
                "The journal does not continue from the backup, so it is unknown what has been released since. Without "
                "--share, every account counts as used up."
            )
        else:
            for chain, rows in missing.items():
                self.stdout.write(f"{chain}: {rows} rows of the journal are missing from the database")
        try:
            settled = restore_settle(
                study=row, acting_user=account, share=share, given_up=give_up, entered=decisions_entered
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        if settled.applied:
            self.stdout.write(f"{settled.applied} decisions, circumstances and erasures were restored.")
        done = (
            f"every account was charged up to {100 * settled.reached:.4g} % of its cap"
            if settled.reached
            else "nothing was charged"
        )
        self.stdout.write(f"{study}: {done}; the study was unlocked.")

    def _list(self, study: Study, account: User, path: str) -> None:
        if not account.has_perm("consent.view_holder_level", study):
            raise CommandError(f"{account.username} is not a data steward of this study. Name one with --user.")
        rows = unrecordable_listed(study, acts_lost(study))
        with open(path, "w", encoding="utf-8", newline="", opener=partial(os.open, mode=0o600)) as file:
            writer = CsvWriter(file)
            writer.writerow(["pseudonym", "kind", "day"])
            writer.writerows(rows)
        self.stdout.write(f"{counted(len(rows), 'row', 'rows')} written to {path}. Invite these people again.")
