"""Import tables (CSV, Excel, Parquet, SPSS, Stata, SAS, ARFF) or images (zip, npz, mat, idx) into a study's dataset.

If there are errors, the command reports all of them with file, row and column, and imports nothing. It creates a holder
for each unknown pseudonym.
"""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from common.progress import Progress, counted, progress_bar
from common.reading import UnreadableError, document_parse
from consent.management import study_argument, study_by_slug
from consent.models import Study
from consent.people.pseudonyms import look_alikes_in, look_alikes_text
from learning.formats import DataError, DataErrors, Report, Rows, Schema, TabularSchema, schema_from_json
from learning.formats.isolation import Allowance, read_isolated
from learning.formats.rows import write_faults
from training.models import Dataset
from training.services.datasets import dataset_check, dataset_import, holders_count, holders_over_limit


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        study_argument(parser)
        parser.add_argument(
            "files", nargs="+", type=Path, metavar="file", help="files to import as one dataset, in this order"
        )
        parser.add_argument(
            "--kind",
            required=True,
            choices=Dataset.Kind.values,
            help="private: holders' records; public: points to vote on; test: records for evaluation. Public and test "
            "rows must be public, or provided for this use with consent, because no noise protects them",
        )
        parser.add_argument("--name", required=True, help="name of the dataset in the study")
        parser.add_argument(
            "--schema",
            type=Path,
            help="JSON file that declares the columns or the image size, and the classes; "
            "defaults to the schema of the study's datasets",
        )
        parser.add_argument(
            "--labels",
            nargs="+",
            type=Path,
            default=[],
            metavar="FILE",
            help="one file for each data file: the labels of an idx file, or a table with the columns file, class and "
            "holder of zipped images",
        )
        parser.add_argument(
            "--sha256",
            nargs="+",
            default=[],
            metavar="HEX",
            help="SHA-256 of each uncompressed file, in order",
        )
        parser.add_argument("--member", help="the file to read in a zip file with several files")
        parser.add_argument(
            "--holder-per-row",
            metavar="PREFIX",
            help="private rows without a holder column: assign each row to a different person, PREFIX-1, PREFIX-2, …",
        )
        parser.add_argument(
            "--with-labels",
            action="store_true",
            help="public rows: keep their true labels, which are used only for evaluation",
        )
        parser.add_argument(
            "--provenance",
            default="",
            metavar="TEXT",
            help="origin of the rows, in your words; shown on the model card for public rows",
        )
        parser.add_argument("--report", type=Path, metavar="FILE", help="write the errors to this CSV file")
        parser.add_argument("--user", help="your user name, which is recorded")
        parser.add_argument(
            "--different-people", action="store_true", help="import even if some new pseudonyms look like others"
        )
        parser.add_argument("--dry-run", action="store_true", help="check everything without importing anything")

    def handle(self, *args: Any, **options: Any) -> None:
        study = study_by_slug(options["study"])
        user = _user(options["user"])
        target = {"study": study, "name": options["name"], "kind": options["kind"]}
        try:
            schema = _schema(study, options["schema"])
            rows, report = _rows(schema, options)
            for line in report.balance.lines():
                self.stdout.write(line)
            self._report_look_alikes(study, rows, stop=not (options["different_people"] or options["dry_run"]))
            if options["dry_run"]:
                dataset_check(**target, rows=rows)
                self._report_left_out_rows(rows)
                self.stdout.write(f"{_summary(rows, schema)} No errors were found. Nothing was imported (--dry-run).")
                return
            with _bar("Registering people", unit=" rows") as progress:
                dataset = dataset_import(
                    **target,
                    rows=rows,
                    schema=schema,
                    provenance=options["provenance"],
                    balance=report.balance,
                    acting_user=user,
                    progress=progress,
                )
        except DataError as error:
            if options["report"] is not None:
                _report_write(options["report"], error)
            raise CommandError(f"{error}\nNothing was imported.") from error
        if report.records:
            self.stdout.write(f"Each person's rows were combined: {report.records:,} rows became {len(rows):,}.")
        self.stdout.write(self.style.SUCCESS(f"{_summary(rows, schema)} Imported into “{study}” as “{dataset}”."))
        beyond = self._report_left_out_rows(rows)
        if left_out := len(rows) - dataset.rows - beyond:
            rows_out = counted(left_out, "row", "rows")
            self.stdout.write(f"{rows_out} left out, because these people had their records erased.")

    def _report_look_alikes(self, study: Study, rows: Rows, *, stop: bool) -> None:
        """Print the new pseudonyms that resemble others, and stop the import if ``stop`` is set."""
        groups = look_alikes_in(study, rows.holders or ())
        for line in look_alikes_text(groups):
            self.stdout.write(f"These look alike: {line}")
        if groups and stop:
            raise DataError(
                f"Some new pseudonyms look like others: {'; '.join(look_alikes_text(groups))}",
                "Correct the file, or give --different-people if they are different people.",
            )

    def _report_left_out_rows(self, rows: Rows) -> int:
        """List people with more rows than are stored per person; return the number of rows that will not be stored."""
        most, beyond = settings.MOST_RECORDS, holders_over_limit(rows)
        for pseudonym, number in sorted(beyond.items()):
            self.stdout.write(f"“{pseudonym}” has {number:,} rows; only the first {most:,} are stored.")
        return sum(beyond.values()) - most * len(beyond)


def _report_write(path: Path, error: DataError) -> None:
    report = error.report if isinstance(error, DataErrors) else None
    with path.open("w", encoding="utf-8", newline="") as file:
        write_faults(file, report.faults if report else [error], report.count if report else 1)


def _user(username: str | None) -> User | None:
    if username is None:
        return None
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is no user “{username}”. Correct the name, or omit --user.")
    return user


def _schema(study: Study, path: Path | None) -> Schema:
    if path is None:
        dataset = Dataset.objects.filter(study=study).order_by("imported_at").last()
        if dataset is None:
            raise DataError(
                "The dataset needs a schema.",
                "Give --schema; there are examples in learning/formats/schemas.",
            )
        return schema_from_json(dataset.schema)
    try:
        document = document_parse(path.read_bytes())
    except OSError as error:
        raise DataError(
            f"The schema cannot be read ({error}).", "Check the file's name and location.", file=path
        ) from error
    except UnreadableError as error:
        raise DataError(f"The schema is not valid JSON: {error}.", "Correct it.", file=path) from error
    try:
        return schema_from_json(document)
    except DataError as error:
        raise error.at(file=path) from error


def _rows(schema: Schema, options: dict[str, Any]) -> tuple[Rows, Report]:
    """Return the rows of all files in order, and the report on reading them."""
    files, label_files, checksums = options["files"], options["labels"], options["sha256"]
    for given, what in ((label_files, "label files"), (checksums, "checksums")):
        if given and len(given) != len(files):
            raise DataError(f"There are {len(files)} files, but {len(given)} {what}.", "Give one for each file.")
    if len(files) > 1 and isinstance(schema, TabularSchema) and schema.one_record is not None:
        raise DataError("Each person's rows are combined, so they have to be in one file.", "Merge the files.")
    private = options["kind"] == Dataset.Kind.PRIVATE
    if options["holder_per_row"] and not private:
        raise DataError(f"Rows of a {options['kind']} dataset have no holders.", "Omit --holder-per-row.")
    labelled = options["kind"] != Dataset.Kind.PUBLIC or options["with_labels"] or bool(label_files)
    parts, report = [], Report()
    nothing = [None] * len(files)
    for file, label_file, checksum in zip(files, label_files or nothing, checksums or nothing, strict=True):
        with _bar(file.name, unit="B", unit_scale=True) as progress:
            parts.append(
                read_isolated(
                    file,
                    schema,
                    allowance=Allowance(settings.READER_MEMORY, settings.READER_SECONDS),
                    label_file=label_file,
                    member=options["member"],
                    sha256=checksum,
                    labels=labelled,
                    holders=private and not options["holder_per_row"],
                    progress=progress,
                    report=report,
                )
            )
    report.raise_faults()
    rows = Rows(
        parts[0].x if len(parts) == 1 else np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts if part.y is not None]) if labelled else None,
        parts[0].holders if len(parts) == 1 else _joined([part.holders for part in parts]),
    )
    owned = rows.one_holder_per_row(options["holder_per_row"]) if options["holder_per_row"] else rows
    return owned, report


def _joined(holders: list[Sequence[str] | None]) -> list[str] | None:
    return None if holders[0] is None else [holder for some in holders for holder in some or ()]


@contextmanager
def _bar(label: str, **options: Any) -> Iterator[Progress]:
    """Show a progress bar on a terminal."""
    with progress_bar(desc=label, **options) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress


def _summary(rows: Rows, schema: Schema) -> str:
    owned = f" of {counted(holders_count(rows), 'holder', 'holders')}" if rows.holders is not None else ""
    labelled = counted(len(schema.classes), "class", "classes") if rows.y is not None else "no labels"
    return f"{counted(len(rows), 'row', 'rows')}{owned}, {labelled}."
