"""Compare the decisions (CSV or JSON) and representatives (JSON) in an exported file with the records.

Also check the chains of the records, and that no promise was weakened without the person's agreement. The exit status
is 1 if anything differs. Records made after the export are not differences.
"""

import csv
import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from common.progress import counted
from consent.management import study_argument, study_by_slug
from consent.models import Circumstance, ConsentEvent
from consent.people.exports import export_faults
from consent.selectors import answerer_faults, promise_faults


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        study_argument(parser)
        parser.add_argument("file", type=Path, help="the exported file, ending in .csv or .json")

    def handle(self, *args: Any, study: str, file: Path, **options: Any) -> None:
        row = study_by_slug(study)
        rows, circumstances = _rows(file)
        faults = [
            *export_faults(row, rows, circumstances),
            *ConsentEvent.chain_faults(row.pk),
            *Circumstance.chain_faults(row.pk),
            *answerer_faults(row),
            *promise_faults(row),
        ]
        if faults:
            raise CommandError("\n".join(faults))
        decisions = counted(len(rows), "decision", "decisions")
        answerers = counted(len(circumstances), "entry", "entries")
        self.stdout.write(
            f"The file matches the records: {decisions}, and {answerers} about who answers for a person. "
            "Their chains are intact, every decision was made by the person who answered at the time, and no promise "
            "was weakened without agreement."
        )


def _rows(file: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the decisions and circumstances in an exported file. Raises CommandError."""
    try:
        if file.suffix == ".json":
            exported = json.loads(file.read_text(encoding="utf-8"))
            return exported["decisions"], exported.get("circumstances", [])
        with file.open(encoding="utf-8", newline="") as table:
            return list(csv.DictReader(table)), []
    except (OSError, ValueError, KeyError) as error:
        raise CommandError(f"{file} cannot be read as an export ({type(error).__name__}: {error}).") from error
