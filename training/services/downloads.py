"""Downloads of labels, tables, model files and statements. The register records each with its recipient."""

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils.translation import gettext_noop

from accounting.models import Release
from accounting.services import release_record
from common.artifacts import model_fetch, model_store
from common.keys import signed
from common.spreadsheets import CsvWriter
from consent.permissions import members_with_permission
from consent.services import study_lock
from learning.calibration import CalibratedModel, Calibration
from learning.formats import schema_from_json
from learning.formats.rows import as_numbers
from learning.learners import Model
from learning.published import published_format, published_load
from learning.students import published_form
from training.engine.records import encoder_load, encoder_of, points_of
from training.methods import method_of
from training.models import Run, StudentModel


@transaction.atomic
def download_record(*, run: Run, what: str, digest: str = "", acting_user: AbstractBaseUser) -> None:
    """Record in the register the download of ``what`` from ``run`` by ``acting_user``, except in a rehearsal.

    Requests for labels are not recorded if the method releases no labels. A user who pages through labels is recorded
    once, and again only after more labels have been released. A user who requests predictions is recorded only the
    first time.
    """
    if run.rehearsal or (what == "labels" and not method_of(run).releases_labels):
        return
    content: dict[str, Any] = {"what": what}
    if what == "labels":
        content |= {"queries": run.position, "labels": run.labels}
    else:
        content["digest"] = digest
    if what != "model" and _is_recorded(run, content, acting_user):
        return
    study = study_lock(run.study_id)
    if what != "model" and _is_recorded(run, content, acting_user):  # a simultaneous request has recorded it
        return
    release_record(study=study, kind=Release.Kind.DOWNLOAD, run=run.pk, content=content, acting_user_id=acting_user.pk)


@transaction.atomic
def predictions_record(*, model: StudentModel, records: int, acting_user: AbstractBaseUser) -> None:
    """Add to the number of predictions requested from a model, and record each user in the register once."""
    StudentModel.objects.filter(pk=model.pk).update(predictions=F("predictions") + records)
    download_record(run=model.run, what=gettext_noop("predictions"), digest=model.digest, acting_user=acting_user)


def model_downloaders(model: StudentModel) -> set[int]:
    """Return ids of the accounts of people and programs that downloaded a model or requested predictions.

    Rehearsals have no register, so everyone who may use their models is included.
    """
    return downloaders(model.run, _digests(model))


def model_downloads(model: StudentModel) -> QuerySet[Release]:
    """Return the register's entries about downloads of a model and first requests for predictions."""
    return _downloads(model.run, _digests(model))


def downloaders(run: Run, digests: Collection[str]) -> set[int]:
    """Return ids of the accounts that downloaded a file of a run with one of these digests; see `model_downloaders`."""
    if run.rehearsal:
        return set(members_with_permission(run.study, "training.use_student").values_list("pk", flat=True))
    taken = _downloads(run, digests).filter(recorded_by__isnull=False)
    return set(taken.values_list("recorded_by_id", flat=True))


def _downloads(run: Run, digests: Collection[str]) -> QuerySet[Release]:
    files = {"run": run.pk, "content__digest__in": digests}
    return Release.objects.filter(study_id=run.study_id, kind=Release.Kind.DOWNLOAD, **files)


def _digests(model: StudentModel) -> list[str]:
    """Return the digests of a version's files, including files that were replaced when a threshold was set."""
    kinds = [Release.Kind.MODEL, Release.Kind.THRESHOLD]
    releases = Release.objects.filter(study_id=model.run.study_id, run=model.run_id, kind__in=kinds)
    earlier = releases.filter(content__digest=model.digest).values_list("content__onnx", flat=True)
    return [digest for digest in {model.digest, model.onnx_digest, *earlier} if digest]


def _is_recorded(run: Run, content: dict[str, Any], acting_user: AbstractBaseUser) -> bool:
    records = Release.objects.filter(
        study_id=run.study_id, kind=Release.Kind.DOWNLOAD, run=run.pk, recorded_by_id=acting_user.pk
    )
    return content in records.values_list("content", flat=True)


def labels_arrays(run: Run) -> dict[str, np.ndarray]:
    """Return all public points of ``run`` as encoded records, with its labels and counts for some of them.

    The points' true labels, which are only for evaluation, are not included. Points that were removed are missing.
    """
    labelled: QuerySet[Any, Any] = run.queries.filter(label__isnull=False).order_by("row")
    columns = ("row", "label", "counts", "reinforced")
    rows, labels, counts, reinforced = (list(labelled.values_list(name, flat=True)) for name in columns)
    arrays = {
        "row": np.array(rows, np.int64),
        "label": np.array(labels, np.int64),
        "reinforced": np.array(reinforced, np.bool_),
        "classes": np.array(run.learns.categories),
    }
    if run.public_dataset is not None and run.public_dataset.removed_at is None:
        arrays["x"] = as_numbers(points_of(run.public_dataset))
    if method_of(run).releases_counts(run):
        arrays["counts"] = np.array(counts, np.int64).reshape(len(rows), len(run.learns.categories))
    return arrays


def labels_table(run: Run) -> list[list[Any]]:
    """Return a table of the labels of ``run``: a header, and a row for each label.

    If the run releases noisy counts, there is a column for each class; if there are reinforced labels, a column marks
    them (1 or 0).
    """
    classes = run.learns.categories
    counted = method_of(run).releases_counts(run)
    labelled: QuerySet[Any, Any] = run.queries.filter(label__isnull=False).order_by("row")
    marks = ["reinforced"] if run.reinforced else []
    heading = ["row", "label", *marks, *(f"count_{name}" for name in classes if counted)]
    lines = labelled.values_list("row", "label", "reinforced", "counts")
    return [
        heading,
        *([row, classes[label], *(int(own) for _mark in marks), *(counts or ())] for row, label, own, counts in lines),
    ]


# --- Files of labels --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelFormat:
    """File format for labels.

    Attributes:
        media_type: Media type of the file.
        content: Function that returns all labels of a run in this format.
    """

    media_type: str
    content: Callable[[Run], bytes]


def labels_csv(run: Run) -> bytes:
    """Return `labels_table` as CSV."""
    text = io.StringIO()
    CsvWriter(text).writerows(labels_table(run))
    return text.getvalue().encode()


def labels_parquet(run: Run) -> bytes:
    """Return `labels_table` as Parquet, with rows and counts as 64-bit integers and labels as text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    heading, *lines = labels_table(run)
    columns = list(zip(*lines, strict=True)) or [() for _name in heading]
    kinds = [pa.string() if name == "label" else pa.int64() for name in heading]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    content = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=heading), content)
    return content.getvalue()


def labels_npz(run: Run) -> bytes:
    """Return `labels_arrays` as an npz file."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **labels_arrays(run))
    return content.getvalue()


LABEL_FORMATS = {
    "csv": LabelFormat("text/csv", labels_csv),
    "parquet": LabelFormat("application/vnd.apache.parquet", labels_parquet),
    "npz": LabelFormat("application/x-npz", labels_npz),
}


# --- Files of models --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelFile:
    """File of a student version.

    Attributes:
        format: Format and suffix: "onnx", "skops" or "safetensors".
        digest: SHA-256 in hexadecimal.
        artifact: Name in the models storage.
    """

    format: str
    digest: str
    artifact: str


def onnx_store(artifact: str, model: Model, run: Run, card: dict[str, Any]) -> tuple[str, str]:
    """Store a model as ONNX, next to the file in its own format; return the name and SHA-256 of the new file."""
    from learning.exports.files import onnx_file  # loads ONNX, which only workers and a few requests need

    name = f"{artifact}.onnx"
    encoder = encoder_of(run)
    file = None if encoder is None else encoder_load(encoder)
    return name, model_store(name, onnx_file(model, schema_from_json(run.schema), card, file))


def version_load(version: StudentModel) -> Model:
    """Return the model of a version with its calibration, in the form that all users receive."""
    model = published_load(version.learner, model_fetch(version.artifact))
    calibrated = CalibratedModel(model, Calibration.from_json(version.calibration))
    return calibrated if version.is_released_itself else published_form(calibrated, version.run.learns)


def file_native(version: StudentModel) -> ModelFile:
    """Return the file in the version's own format."""
    return ModelFile(published_format(version.learner), version.digest, version.artifact)


def file_onnx(version: StudentModel) -> ModelFile:
    """Return the version as ONNX, creating the file on the first request for an old version."""
    if not version.onnx:
        model = version_load(version)
        version.onnx, version.onnx_digest = onnx_store(version.artifact, model, version.run, version.card)
        version.save(update_fields=["onnx", "onnx_digest"])
    return ModelFile("onnx", version.onnx_digest, version.onnx)


# --- Statements -------------------------------------------------------------------------------------------------------


def model_statement(version: StudentModel) -> str:
    """Return a signature of a version's card and the digests of its files. It is the same for every request."""
    content: dict[str, Any] = {
        "iss": settings.SITE_URL,
        "iat": int(version.created_at.timestamp()),
        "study": version.run.study.slug,
        "model": str(version.run_id),
        "version": version.version,
        "files": [
            {"format": file.format, "sha256": file.digest} for file in (file_onnx(version), file_native(version))
        ],
        "card": version.card,
    }
    return signed(content)
