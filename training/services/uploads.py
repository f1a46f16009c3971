"""Datasets of rehearsal studies by one request: read, checked and stored at once, in whole or not at all.

Records of people take the way of :mod:`training.services.imports`, where a data steward looks at them before they are
stored.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.utils.translation import gettext as _

from consent.models import Study
from consent.services import study_open_check
from learning.formats import Report, schema_from_json
from training.errors import STATE
from training.models import Dataset
from training.services.datasets import dataset_import
from training.services.imports import Upload, upload_name, upload_read


def rehearsal_data_import(*, study: Study, upload: Upload, acting_user: AbstractBaseUser) -> Dataset:
    """Import a file into a rehearsal study; without a schema, by that of the study's last dataset.

    Raises:
        DataError: everything that is wrong with the schema or the file.
        ValidationError: the study is closed or no rehearsal, or has no dataset whose schema could be taken.
    """
    study_open_check(study)
    if not study.rehearsal:
        message = _("Only a rehearsal study takes data this way. Records of people are imported on the study's pages.")
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
    """Schema of the last dataset of a study. Raises ValidationError where there is none."""
    last = study.datasets.order_by("imported_at").last()
    if last is None:
        raise ValidationError({"schema": _("It is not known what a row holds. Give a schema.")})
    return last.schema


def _saved(file: File, folder: Path) -> Path:
    """A copy of an upload under its own name."""
    folder.mkdir()
    path = folder / upload_name(file)
    with path.open("wb") as copy:
        for chunk in file.chunks():
            copy.write(chunk)
    return path
