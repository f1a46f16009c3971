"""Imports of datasets. An import either succeeds completely or changes nothing."""

import logging
import uuid
from collections import Counter
from itertools import chain, count

import numpy as np
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction

from common.artifacts import arrays_delete
from common.distinct import distinct
from common.keyrings import ring_destroy
from common.models import locked
from common.progress import Progress, silent
from common.sentences import Sentence, gettext_noop
from consent.models import Study
from consent.services import owners_register, study_lock, study_open_check
from consent.services.changes import changes_recorded
from consent.services.disposals import returned_records_log, unstorable_holders
from learning.formats import DataError, Rows, Schema, schema_to_json
from learning.formats.records import pseudonym_faults
from learning.formats.rows import Balance
from learning.outcomes import Classes, Outcome
from training.engine.records import records_first, records_store, ring_of
from training.models import Dataset
from training.services.encoders import encodings_begin

logger = logging.getLogger(__name__)

_AT_ONCE = 10_000


def dataset_import(
    *,
    study: Study,
    name: str,
    kind: str,
    rows: Rows,
    schema: Schema,
    provenance: str = "",
    balance: Balance | None = None,
    acting_user: AbstractBaseUser | None = None,
    artifact: str = "",
    progress: Progress = silent,
) -> Dataset:
    """Store ``rows`` as a dataset of ``study``; unknown pseudonyms of private rows become holders.

    Private rows of people whose records were erased and who have not consented again are omitted. Of each holder's
    rows, only the first ``MOST_RECORDS`` in the file are kept, so that the choice depends only on that holder's
    records.

    ``provenance`` is the operator's unchecked description of where the rows come from. ``balance`` states how many rows
    of the file were used or left out, and is stored with the dataset. ``artifact`` is the name of the file to write, by
    default a new one. ``progress`` counts the rows whose people are registered.

    Raises DataError and stores nothing if the rows are not suitable for a dataset of this kind.
    """
    dataset_check(study=study, name=name, kind=kind, rows=rows)
    artifact = artifact or f"datasets/{uuid.uuid4()}.npz"
    try:
        with transaction.atomic():
            study = study_lock(study.pk)
            try:
                study_open_check(study)
            except ValidationError as error:
                raise DataError(error.messages[0]) from error
            most = settings.MOST_RECORDS if kind == Dataset.Kind.PRIVATE else None
            arrays = {"x": rows.x} if rows.y is None else {"x": rows.x, "y": rows.y}
            stays, holders = None, 0
            if most is not None:
                arrays["holder"], stays = _owners(study, rows, most, progress)
                holders = len(distinct(arrays["holder"][stays]))
            dataset = Dataset(
                study=study,
                name=name,
                kind=kind,
                schema=schema_to_json(schema),
                rows=len(rows) if stays is None else int(stays.sum()),
                holders=holders,
                most_records=most,
                provenance=provenance,
                balance=balance.to_json() if balance else [],
                seen_classes=classes_seen(schema.outcome, rows.y if rows.y is None or stays is None else rows.y[stays]),
                artifact=artifact,
                digest=records_store(arrays, artifact=artifact, stays=stays)[1],
                imported_by_id=acting_user.pk if acting_user else None,
            )
            dataset.full_clean()
            with changes_recorded([dataset], acting_user=acting_user):
                dataset.save()
            encodings_begin(dataset)
    except BaseException:
        arrays_delete(artifact)
        ring_destroy(ring_of(artifact))
        raise
    return dataset


def dataset_name(study: Study, wanted: str) -> str:
    """Return a name that no dataset of the study has ever had: ``wanted``, with a number if necessary."""
    taken = set(Dataset.objects.filter(study=study).values_list("name", flat=True))
    names = (f"{wanted[:80]} ({number})" for number in count(2))
    return next(each for each in chain([wanted[:80]], names) if each not in taken)


def classes_seen(outcome: Outcome, labels: np.ndarray | None) -> list[int]:
    """Return the numbers of the classes that occur in labels; empty for outcomes other than classes."""
    return np.unique(labels).tolist() if outcome.kind == Classes.kind and labels is not None else []


def _owners(study: Study, rows: Rows, most: int, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
    """Register the people of private rows; return each row's holder (N,), and whether the row will be stored (N,).

    The caller holds the study's lock. ``most`` is the maximum number of rows stored per holder.
    """
    try:
        owners = owners_register(study=study, pseudonyms=rows.holders or [], progress=progress)
    except ValidationError as error:
        raise DataError(" ".join(error.messages), gettext_noop("Nothing was stored.")) from error
    refused = unstorable_holders(study, owners)
    returned_records_log(study, rows.holders or [], owners, refused)
    stays = records_first(owners, most) & ~np.isin(owners, list(refused))
    if not stays.any():
        problem = gettext_noop("All rows belong to people whose records were erased.")
        raise DataError(problem, gettext_noop("Leave these rows out."))
    return owners, stays


def holders_over_limit(rows: Rows) -> dict[str, int]:
    """Return the number of rows for each pseudonym that has more rows than are stored per holder. Secret."""
    most, ordered = settings.MOST_RECORDS, np.sort(_hashes(rows))
    several = set(ordered[most:][ordered[most:] == ordered[: max(0, len(ordered) - most)]].tolist())
    if not several:
        return {}
    counted = Counter(name for name in rows.holders or () if hash(name) in several)
    return {pseudonym: number for pseudonym, number in counted.items() if number > most}


def holders_count(rows: Rows) -> int:
    """Return the number of people who own rows (0 if no one does)."""
    return len(distinct(_hashes(rows)))


def _hashes(rows: Rows) -> np.ndarray:
    """Return hashes (N,) of the rows' pseudonyms, which take less memory than the pseudonyms."""
    return np.fromiter(map(hash, rows.holders or ()), np.int64)


@transaction.atomic
def dataset_provenance_state(*, dataset: Dataset, provenance: str, acting_user: AbstractBaseUser) -> Dataset:
    """Change a dataset's provenance. Cards of earlier runs keep the previous text."""
    study_lock(dataset.study_id)
    locked(dataset).provenance = provenance.strip()
    with changes_recorded([dataset], acting_user=acting_user):
        dataset.save(update_fields=["provenance"])
    logger.info("User %s stated the origin of dataset %s.", acting_user.pk, dataset.pk)
    return dataset


def dataset_check(*, study: Study, name: str, kind: str, rows: Rows) -> None:
    """Raise DataError if ``rows`` could not be imported with these arguments."""
    _require_rows(rows, kind)
    if Dataset.objects.filter(study=study, name=name).exists():
        problem = Sentence(gettext_noop("The study already has a dataset named “%(name)s”."), name=name)
        raise DataError(problem, gettext_noop("Choose another name."))


def _require_rows(rows: Rows, kind: str) -> None:
    if kind not in Dataset.Kind.values:
        raise DataError(f"There is no kind of dataset “{kind}”.", f"Choose one of: {', '.join(Dataset.Kind.values)}.")
    if len(rows) == 0:
        raise DataError(gettext_noop("There are no rows."), gettext_noop("Add at least one row."))
    for start in range(0, len(rows), _AT_ONCE):
        finite = np.isfinite(rows.x[start : start + _AT_ONCE])
        if not finite.all():
            row = start + int(np.argwhere(~finite)[0][0])
            raise DataError("A feature is not finite.", "Remove or replace it.", row=row + 1)
    if kind == Dataset.Kind.PRIVATE:
        if rows.holders is None:
            raise DataError(
                "Private rows need owners, but these have none.",
                "Declare the column that holds the pseudonym (role “holder”), or give the array “holder”.",
            )
        if fault := next(pseudonym_faults(rows.holders, "holder"), None):
            raise fault
    if kind != Dataset.Kind.PUBLIC and rows.y is None:
        raise DataError(
            f"A {kind} dataset needs labels, but this one has none.", "Declare the column with role “label”."
        )
    if kind != Dataset.Kind.PRIVATE and rows.holders is not None:
        raise DataError(
            f"Rows of a {kind} dataset cannot have holders, but these do.",
            "Import them as private, or omit the holder column.",
        )
