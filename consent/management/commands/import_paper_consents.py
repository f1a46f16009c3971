"""``ipate import_paper_consents``: record a list of decisions made on paper, either all of them or none."""

from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from consent.management import study_argument, study_by_slug
from consent.services.paper import COLUMNS, PaperError, paper_consents_record, paper_list_read


class Command(BaseCommand):
    help = f"Record decisions made on paper from a CSV file with the columns {', '.join(COLUMNS)}: all rows, or none."

    def add_arguments(self, parser: ArgumentParser) -> None:
        study_argument(parser)
        parser.add_argument("list", type=Path, help="the CSV file; level is HIGH, AVERAGE, LOW or NONE")
        parser.add_argument("--scans", type=Path, required=True, help="folder with the scans named in the list")
        parser.add_argument(
            "--by", required=True, metavar="USERNAME", help="user name of the operator who records them"
        )
        parser.add_argument("--dry-run", action="store_true", help="only check for errors")

    def handle(self, *args: Any, study: str, list: Path, scans: Path, by: str, dry_run: bool, **options: Any) -> None:
        row = study_by_slug(study)
        user = get_user_model().objects.filter(username=by, is_active=True).first()
        if user is None or not user.has_perm("consent.record_paper_consents", row):
            raise CommandError(f"“{by}” may not record consents in this study. Name one of its operators.")
        try:
            consents = paper_list_read(list.read_bytes())
            names = {consent.evidence for consent in consents}
            contents = {
                name: path.read_bytes() for name in names if name and (path := scans / Path(name).name).is_file()
            }
            number = paper_consents_record(
                study=row,
                consents=consents,
                scans=contents,
                acting_user=user,
                dry_run=dry_run,
                watch=partial(tqdm, desc=study, unit=" rows", leave=False, disable=None),
            )
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}.") from error
        except PaperError as error:
            raise CommandError(f"Nothing was recorded.\n{error}") from error
        self.stdout.write(f"{number} decisions {'can be recorded (--dry-run)' if dry_run else 'were recorded'}.")
