"""Imports in the browser: a user uploads a file and declares its schema, then a worker checks and stores the data.

The upload, the report and the first rows are in private storage. They are deleted when the dataset is stored, when the
import is discarded, and a day after the last step.
"""

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile, File
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from common.artifacts import (
    arrays_delete,
    arrays_delete_folder,
    private_copy,
    private_load,
    private_replace,
    private_save,
)
from common.confinement import scratch_sweep
from common.jobs import guarded, lease, send_on
from common.progress import Progress
from common.sentences import Sentence
from consent.models import Study
from consent.people.pseudonyms import look_alikes_in, look_alikes_text
from consent.services import study_lock, study_open_check
from learning.formats import DataError, Report, Rows, Schema, schema_from_json
from learning.formats.draft import schema_complete
from learning.formats.isolation import Allowance, draft_isolated, read_isolated
from learning.formats.read import preview
from training.engine.scheduling import send
from training.errors import STATE, translated
from training.models import Dataset, DatasetImport
from training.services.datasets import dataset_check, dataset_import, holders_count, holders_over_limit

logger = logging.getLogger(__name__)

State = DatasetImport.State
KEPT = timedelta(days=1)
"""How long an import is kept after its last step."""


_PROGRESS = "progress"
_READING = 0.3
"""Part of an import's progress that corresponds to reading the file; the rest corresponds to storing it."""
MOST_LOOK_ALIKES = 200
"""Maximum number of groups of look-alike pseudonyms in a report."""
_LOOK_ALIKE = gettext_noop(
    "People registered since the file was checked have pseudonyms that resemble new ones in the file: %(names)s. "
    "Check the file again."
)


@dataclass(frozen=True)
class Upload:
    """Uploaded file with the user's description.

    Attributes:
        name: Name of the dataset.
        kind: One of `Dataset.Kind`.
        file: File in a supported format, which is recognised by the file's name.
        label_file: Label file for an idx file.
        schema: Schema as JSON.
        holder_prefix: Prefix of generated pseudonyms if each private row belongs to a different person.
        with_labels: Whether to keep labels of public rows.
        provenance: Origin of the rows.
    """

    name: str
    kind: str
    file: File
    label_file: File | None = None
    schema: dict[str, Any] | None = None
    holder_prefix: str = ""
    with_labels: bool = False
    provenance: str = ""


def import_begin(*, study: Study, upload: Upload, acting_user: AbstractBaseUser) -> DatasetImport:
    """Store an uploaded file in private storage; if no schema is given, draft one from the file.

    For people's rows, the draft does not depend on values. It uses only the names and kinds of columns, and how the
    study's last public dataset declares columns with the same names.

    Raises:
        ValidationError: errors by field, for example if the name is taken, the study is closed, or no draft is
            possible.
    """
    study_open_check(study)
    _name_check(study, upload.name)
    begun = DatasetImport(
        study=study,
        name=upload.name,
        kind=upload.kind,
        provenance=upload.provenance,
        file=upload_name(upload.file),
        label_file=upload_name(upload.label_file) if upload.label_file else "",
        holder_prefix=upload.holder_prefix,
        with_labels=upload.with_labels,
        schema=upload.schema or {},
        requested_by_id=acting_user.pk,
    )
    try:
        private_save(f"{begun.folder}/data", upload.file)
        if upload.label_file:
            private_save(f"{begun.folder}/labels", upload.label_file)
        if upload.schema is None:
            _draft(begun)
        with transaction.atomic():
            study_open_check(study_lock(study.pk))
            begun.save()
    except BaseException:
        _files_delete(begun)
        raise
    logger.info("User %s uploaded a file for study %s.", acting_user.pk, study.pk)
    return begun


def upload_name(file: File) -> str:
    """Return an uploaded file's name without folders, shortened to its end if some file systems could not store it."""
    return Path(file.name or "file").name.encode()[-200:].decode(errors="ignore")


def _draft(begun: DatasetImport) -> None:
    try:
        with private_copy(f"{begun.folder}/data", begun.file) as path:
            draft = draft_isolated(path, _drafting(), private=begun.is_of_people)
    except DataError as error:
        raise ValidationError({"file": f"{translated(error.problem)} {translated(error.remedy)}"}) from error
    begun.schema, begun.remarks = draft.document, [_kept(remark) for remark in draft.remarks]
    public = begun.study.datasets.exclude(kind=Dataset.Kind.PRIVATE).order_by("imported_at").last()
    if begun.is_of_people and public is not None:
        begun.schema = schema_complete(begun.schema, public.schema)
    if draft.facts:
        private_save(f"{begun.folder}/facts", ContentFile(json.dumps(draft.facts).encode()))


def import_facts(dataset_import: DatasetImport) -> dict[str, Any]:
    """Return facts about each column, from a public or test file's first records (`Draft.facts`); empty if private."""
    return _written(dataset_import, "facts")


def _drafting() -> Allowance:
    """Return the resource limits for drafting a schema in the web server while a user waits for the page."""
    return Allowance(min(settings.READER_MEMORY, 1000), min(settings.READER_SECONDS, 20))


def import_declare(*, dataset_import: DatasetImport, schema: dict[str, Any], acting_user: AbstractBaseUser) -> None:
    """Declare the schema, and have a worker check the file against it.

    Raises:
        DataError: lists all errors in the schema.
        ValidationError: a worker is processing the import, or it is done.
    """
    schema_from_json(schema)
    with transaction.atomic():
        changed = _rows(dataset_import, State.DRAFT, State.CHECKED).update(
            schema=schema,
            state=State.CHECKING,
            progress=0.0,
            rows=None,
            faults=None,
            message="",
            heartbeat=timezone.now(),
            touched_at=timezone.now(),
        )
        if not changed:
            raise ValidationError(_("This import is already in progress or finished. Check its page."), code=STATE)
        send("import_work", dataset_import.pk)
    logger.info("User %s declared the schema of import %s.", acting_user.pk, dataset_import.pk)


def import_revise(*, dataset_import: DatasetImport, schema: dict[str, Any], acting_user: AbstractBaseUser) -> None:
    """Save a schema that a user is editing, even if it is invalid, without checking the file against it.

    Raises:
        ValidationError: a worker is processing the import, or it is done.
    """
    changed = _rows(dataset_import, State.DRAFT, State.CHECKED).update(
        schema=schema, state=State.DRAFT, rows=None, faults=None, message="", touched_at=timezone.now()
    )
    if not changed:
        raise ValidationError(_("This import is already in progress or finished. Check its page."), code=STATE)
    logger.info("User %s changed the schema of import %s.", acting_user.pk, dataset_import.pk)


def import_confirm(*, dataset_import: DatasetImport, acting_user: AbstractBaseUser) -> None:
    """Queue the checked file for a worker to store as a dataset.

    Raises:
        ValidationError: the file has not been checked, or the check found errors.
    """
    with transaction.atomic():
        changed = (
            _rows(dataset_import, State.CHECKED)
            .filter(faults=0)
            .update(
                state=State.IMPORTING, progress=0.0, message="", heartbeat=timezone.now(), touched_at=timezone.now()
            )
        )
        if not changed:
            raise ValidationError(_("Only a checked file without errors can be imported."), code=STATE)
        arrays_delete(_progress_name(dataset_import))
        send("import_work", dataset_import.pk)
    logger.info("User %s imports %s.", acting_user.pk, dataset_import.pk)


def import_drop(*, dataset_import: DatasetImport) -> None:
    """Discard an import with everything that was uploaded. If its dataset has been stored, the dataset is kept."""
    DatasetImport.objects.filter(pk=dataset_import.pk).delete()
    transaction.on_commit(lambda: _files_delete(dataset_import))


def import_work(import_id: str) -> None:
    """Check or store an import if this is due and no live worker is doing it. Can be repeated after a crash."""
    with lease(DatasetImport, import_id) as token:
        row = DatasetImport.objects.select_related("study", "requested_by").filter(pk=import_id).first()
        if token is None or row is None or row.state not in DatasetImport.BUSY:
            return
        mine = DatasetImport.objects.filter(pk=row.pk, claimed_by=token, state=row.state)

        def fail(message: str) -> None:
            mine.update(state=State.DRAFT, message=message, touched_at=timezone.now())

        unexpected = gettext_noop(
            "An unexpected error occurred. You can find the details in the worker's logs under this import's id."
        )
        with guarded(f"Import {import_id}", expected=(), fail=fail, unexpected=unexpected):
            try:
                (_check if row.state == State.CHECKING else _store)(row, mine)
            except FileNotFoundError:
                fail(
                    gettext_noop("The uploaded file no longer exists. Discard this import, and upload the file again.")
                )


def _check(row: DatasetImport, mine: Any) -> None:
    """Read the whole file, and write the report and the first rows to private storage."""
    report = Report()
    rows = _read(row, report, mine)
    schema = schema_from_json(row.schema)
    if not report.count:
        try:
            dataset_check(study=row.study, name=row.name, kind=row.kind, rows=rows)
        except DataError as error:
            report.add(error)
    look_alikes = look_alikes_in(row.study, rows.holders or ())
    document = {
        "faults": [_fault(fault) for fault in report.faults],
        "count": report.count,
        "clipped": dict(report.clipped),
        "unknown": dict(report.unknown),
        "missing": dict(report.missing),
        "records": report.records,
        "balance": report.balance.to_json(),
        "preview": preview(schema, rows),
        "holders": holders_count(rows) if rows.holders is not None else None,
        "most": settings.MOST_RECORDS,
        "beyond": sorted(holders_over_limit(rows).items()),
        "look_alikes": look_alikes[:MOST_LOOK_ALIKES],
        "all_look_alikes": look_alikes,
    }
    private_save(f"{row.folder}/report", ContentFile(json.dumps(document).encode()))
    changed = mine.update(
        state=State.CHECKED, rows=len(rows), faults=report.count, progress=1.0, touched_at=timezone.now()
    )
    if not changed and not DatasetImport.objects.filter(pk=row.pk).exists():
        _files_delete(row)  # the import was discarded in the meantime


def _store(row: DatasetImport, mine: Any) -> None:
    """Store the dataset and mark the import as done in one transaction, or record an error and store nothing."""
    report, artifact = Report(), f"datasets/{row.pk}.npz"
    known = {tuple(group) for group in import_report(row).get("all_look_alikes", ())}
    rows = _read(row, report, mine, share=_READING)
    try:
        report.raise_faults()
        with transaction.atomic():
            study_lock(row.study_id)
            if not mine.exists():
                return
            if new := [group for group in look_alikes_in(row.study, rows.holders or ()) if group not in known]:
                names = "; ".join(look_alikes_text(new))
                raise DataError(Sentence(_LOOK_ALIKE, names=names), "")
            try:
                stored = dataset_import(
                    study=row.study,
                    name=row.name,
                    kind=row.kind,
                    rows=rows,
                    schema=schema_from_json(row.schema),
                    provenance=row.provenance,
                    balance=report.balance,
                    acting_user=row.requested_by,
                    artifact=artifact,
                    progress=_hundredths(lambda share: _stored_note(row, share)),
                )
                mine.update(state=State.DONE, dataset=stored, rows=len(rows), progress=1.0, touched_at=timezone.now())
            except BaseException:
                arrays_delete(artifact)
                raise
            transaction.on_commit(lambda: arrays_delete_folder(row.folder))
    except DataError as error:
        logger.warning("Import %s was refused.", row.pk)
        mine.update(state=State.DRAFT, message=_kept(error.problem), touched_at=timezone.now())
    except ValidationError as error:
        mine.update(state=State.DRAFT, message=" ".join(error.messages), touched_at=timezone.now())


def _read(row: DatasetImport, report: Report, mine: Any, *, share: float = 1.0) -> Rows:
    with ExitStack() as stack:
        path = stack.enter_context(private_copy(f"{row.folder}/data", row.file))
        labels = stack.enter_context(private_copy(f"{row.folder}/labels", row.label_file)) if row.label_file else None
        return upload_read(
            path,
            schema_from_json(row.schema),
            kind=row.kind,
            label_file=labels,
            holder_prefix=row.holder_prefix,
            with_labels=row.with_labels,
            progress=_hundredths(lambda read: mine.update(progress=share * read)),
            report=report,
        )


def upload_read(
    path: Path,
    schema: Schema,
    *,
    kind: str,
    label_file: Path | None,
    holder_prefix: str,
    with_labels: bool,
    report: Report,
    progress: Progress | None = None,
) -> Rows:
    """Return the rows of an uploaded file, with labels and holders if its kind has them, and report errors.

    A separate process reads the file.
    """
    is_private = kind == Dataset.Kind.PRIVATE
    rows = read_isolated(
        path,
        schema,
        allowance=Allowance(settings.READER_MEMORY, settings.READER_SECONDS),
        label_file=label_file,
        labels=kind != Dataset.Kind.PUBLIC or with_labels,
        holders=is_private and not holder_prefix,
        progress=progress,
        report=report,
    )
    return rows.one_holder_per_row(holder_prefix) if is_private and holder_prefix else rows


def _hundredths(note_share: Callable[[float], object]) -> Progress:
    """Return a callback that rounds progress to whole hundredths before passing it on."""
    last = 0

    def note(done: int, total: int) -> None:
        nonlocal last
        if (now := 100 * done // max(1, total)) > last:
            last = now
            note_share(now / 100)

    return note


def import_progress(dataset_import: DatasetImport) -> float:
    """Return a worker's progress on an import, from 0 to 1."""
    if dataset_import.state != State.IMPORTING:
        return dataset_import.progress
    stored = _written(dataset_import, _PROGRESS).get("stored", 0.0)
    return max(dataset_import.progress, _READING + (1 - _READING) * stored if stored else 0.0)


def _progress_name(dataset_import: DatasetImport) -> str:
    return f"{dataset_import.folder}/{_PROGRESS}"


def _stored_note(row: DatasetImport, share: float) -> None:
    """Write progress to a file, because database changes become visible only when the storing transaction ends."""
    with suppress(OSError):
        private_replace(_progress_name(row), json.dumps({"stored": share}).encode())


def import_report(dataset_import: DatasetImport) -> dict[str, Any]:
    """Return the report of the check with the first rows; empty before the check."""
    return _written(dataset_import, "report")


def _written(dataset_import: DatasetImport, name: str) -> dict[str, Any]:
    try:
        return json.loads(private_load(f"{dataset_import.folder}/{name}"))
    except FileNotFoundError:
        return {}


def imports_sweep() -> None:
    """Queue imports whose worker died, drop abandoned ones, and delete leftover copies."""
    scratch_sweep(3 * settings.READER_SECONDS)
    send_on(DatasetImport.objects.filter(state__in=DatasetImport.BUSY), "training.tasks.import_work")
    old = DatasetImport.objects.filter(touched_at__lt=timezone.now() - KEPT).exclude(state__in=DatasetImport.BUSY)
    for row in old:
        import_drop(dataset_import=row)


def _fault(fault: DataError) -> dict[str, Any]:
    return {
        "file": Path(fault.file).name if fault.file is not None else "",
        "row": fault.row,
        "column": fault.column or "",
        "problem": _kept(fault.problem),
        "remedy": _kept(fault.remedy),
    }


def _kept(sentence: str) -> Any:
    """Return a sentence as JSON, so that it can be translated when it is displayed."""
    return sentence.to_json() if isinstance(sentence, Sentence) else sentence


def _rows(dataset_import: DatasetImport, *states: str) -> Any:
    return DatasetImport.objects.filter(pk=dataset_import.pk, state__in=states)


def _name_check(study: Study, name: str) -> None:
    if Dataset.objects.filter(study=study, name=name).exists():
        raise ValidationError({"name": _("The study already has a dataset with this name. Choose another.")})


def _files_delete(dataset_import: DatasetImport) -> None:
    """Delete the uploaded files, and stored rows that do not belong to any dataset."""
    arrays_delete_folder(dataset_import.folder)
    artifact = f"datasets/{dataset_import.pk}.npz"
    if not Dataset.objects.filter(artifact=artifact).exists():
        arrays_delete(artifact)


# --- Rehearsal studies ------------------------------------------------------------------------------------------------
# A single request is enough here. People's records go through the steps above, so that a data steward checks them
# before they are stored.


def rehearsal_data_import(*, study: Study, upload: Upload, acting_user: AbstractBaseUser) -> Dataset:
    """Import a file into a rehearsal study, by default using the schema of the study's last dataset.

    Raises:
        DataError: lists all errors in the schema or the file.
        ValidationError: the study is closed or not a rehearsal, or has no dataset whose schema could be used.
    """
    study_open_check(study)
    if not study.rehearsal:
        message = _("Only a rehearsal study accepts data this way. Import people's records on the study's pages.")
        raise ValidationError(message, code=STATE)
    declared = schema_from_json(last_schema(study) if upload.schema is None else upload.schema)
    report = Report()
    with TemporaryDirectory() as folder:
        rows = upload_read(
            _saved(upload.file, Path(folder) / "data"),
            declared,
            kind=upload.kind,
            label_file=_saved(upload.label_file, Path(folder) / "labels") if upload.label_file else None,
            holder_prefix=upload.holder_prefix,
            with_labels=upload.with_labels,
            report=report,
        )
    report.raise_faults()
    return dataset_import(
        study=study,
        name=upload.name,
        kind=upload.kind,
        rows=rows,
        schema=declared,
        provenance=upload.provenance,
        balance=report.balance,
        acting_user=acting_user,
    )


def last_schema(study: Study) -> dict[str, Any]:
    """Return the schema of a study's last dataset. Raises ValidationError if the study has no dataset."""
    last = study.datasets.order_by("imported_at").last()
    if last is None:
        raise ValidationError(
            {"schema": _("This study has no earlier dataset to take the schema from. Provide a schema.")}
        )
    return last.schema


def _saved(file: File, folder: Path) -> Path:
    """Save an upload under its own name and return the path."""
    folder.mkdir()
    path = folder / upload_name(file)
    with path.open("wb") as copy:
        for chunk in file.chunks():
            copy.write(chunk)
    return path
