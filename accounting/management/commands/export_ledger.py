"""Write a study's release register with its charges as CSV, or as JSON together with the shares of every cap."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from accounting.exports import FORMATS
from consent.management import study_argument, study_by_slug


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        study_argument(parser)
        parser.add_argument("--format", choices=sorted(FORMATS), default="json")
        parser.add_argument("--output", type=Path, help="output file (default: standard output)")

    def handle(self, *args: Any, study: str, format: str, output: Path | None, **options: Any) -> None:
        row = study_by_slug(study)
        pieces = FORMATS[format](row)
        if output is None:
            for piece in pieces:
                sys.stdout.write(piece)
            return
        with output.open("w", encoding="utf-8", newline="") as file:
            file.writelines(pieces)
