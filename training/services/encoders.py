"""Encoders, which turn the records of a study's datasets into vectors: registration, use and withdrawal.

The person who registers an encoder declares that it was made without the private data; then runs may use it. Every
record is encoded once, separately from the others, on one thread, in a process with limited memory and time. Vectors
are stored in the dataset's file next to the record, so erasing a record also erases its vectors.

The progress and duration of encoding private records may depend on a single record, so only data stewards see them. A
proposal is therefore checked without them, and an approved run waits for the encoding to end.
"""

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from common.artifacts import arrays_delete
from common.jobs import guarded, lease, send_on
from common.keyrings import KeyGoneError
from common.sentences import Sentence
from consent.models import Disposal, Study
from consent.services import study_lock, study_open_check
from consent.services.changes import changes_recorded
from consent.services.erasures import disposal_record
from learning.encoders import EncoderError, EncoderFile, EncoderProcess, ImageInput, input_from_json, sample_of
from learning.encoders.files import LARGEST_FILE, LARGEST_TOKENIZER, Input
from learning.formats import schema_from_json
from training.engine.records import RECORDS, encoder_load, encoder_store, records_key, records_load, records_store
from training.engine.scheduling import send
from training.errors import translated
from training.models import Dataset, Encoder, Encoding, Run

logger = logging.getLogger(__name__)

_TEXT_TRIED = 256


def encoder_register(
    *,
    study: Study,
    name: str,
    content: bytes,
    takes: Mapping[str, Any],
    licence: str,
    source: str,
    stated: bool,
    acting_user: AbstractBaseUser,
    tokenizer: str = "",
) -> Encoder:
    """Register an encoder after testing it, and start encoding the study's datasets that have suitable records.

    Args:
        study: The study.
        takes: The encoder's input as JSON; see :func:`learning.encoders.input_from_json`.
        source: Origin of the encoder and its training data.
        stated: Whether the user declares that it was made without the study's private data.
        tokenizer: Tokenizer for texts, as JSON of the library `tokenizers`.

    Raises:
        ValidationError: errors by field, also if the declaration is missing or the encoder is already registered or
            unusable.
    """
    study_open_check(study)
    if not stated:
        raise ValidationError({"stated": _("To use this, confirm the statement.")})
    if len(content) > LARGEST_FILE or len(tokenizer) > LARGEST_TOKENIZER:
        raise ValidationError({"file": _("The file is too large for an encoder.")})
    try:
        file = EncoderFile(content, input_from_json(takes), tokenizer)
    except EncoderError as error:
        raise ValidationError({"takes": _message(error)}) from error
    try:
        shape = _tried_shape(file.takes)
        with EncoderProcess(file, shape) as process:
            process.check_locality(sample_of(file.takes, shape))
            width = process.width
    except EncoderError as error:
        raise ValidationError({"file": _message(error)}) from error
    encoder = Encoder(
        study=study,
        name=name.strip(),
        digest=file.digest,
        file_digest=hashlib.sha256(content).hexdigest(),
        takes=file.takes.to_json(),
        width=width,
        licence=licence.strip(),
        source=source.strip(),
        artifact=f"encoders/{uuid.uuid4()}.npz",
        stated_by_id=acting_user.pk,
    )
    try:
        with transaction.atomic():
            study_open_check(study_lock(study.pk))
            encoder.full_clean()
            encoder_store(encoder.artifact, file)
            with changes_recorded([encoder], acting_user=acting_user):
                encoder.save()
            for dataset in study.datasets.filter(removed_at=None):
                encoding_begin(dataset, encoder)
    except BaseException:
        arrays_delete(encoder.artifact)
        raise
    logger.info("User %s registered an encoder in study %s.", acting_user.pk, study.pk)
    return encoder


@transaction.atomic
def encoder_withdraw(*, encoder: Encoder, reason: str, acting_user: AbstractBaseUser) -> Encoder:
    """Withdraw an encoder permanently and log this; it can no longer be chosen for runs or encode datasets.

    If a run has learned from the encoder's vectors, these and the encoder's file are kept for the run's models and for
    recomputing the run. Otherwise they are deleted.

    Raises:
        ValidationError: there is no reason, or a run that has not ended uses it.
    """
    study = study_lock(encoder.study_id)
    encoder = Encoder.objects.get(pk=encoder.pk)
    if encoder.withdrawn_at is not None:
        return encoder
    if not reason.strip():
        raise ValidationError({"reason": _("Enter a reason. It is logged.")})
    busy = encoder_runs(encoder).exclude(status__in=Run.ENDED).first()
    if busy is not None:
        raise ValidationError(
            _("The run “%(run)s” uses this encoder and has not ended. Cancel the run, or wait until it ends.")
            % {"run": busy.title}
        )
    artifact, used = encoder.artifact, encoder_is_used(encoder)
    encoder.withdrawn_at = timezone.now()
    if not used:
        encoder.artifact = ""
        transaction.on_commit(lambda: arrays_delete(artifact))
    with changes_recorded([encoder], acting_user=acting_user):
        encoder.save()
    encodings_end(encoder, keep=used)
    disposal_record(
        study=study, kind=Disposal.Kind.ENCODER, acting_user=acting_user, subject=encoder.name, reason=reason.strip()
    )
    logger.info("User %s withdrew encoder %s.", acting_user.pk, encoder.pk)
    return encoder


def encoder_runs(encoder: Encoder) -> QuerySet[Run]:
    """Return the runs that have chosen an encoder."""
    return Run.objects.filter(study=encoder.study_id, choices__encoder=encoder.digest)


def encoder_is_used(encoder: Encoder) -> bool:
    """Return whether a run has asked questions based on the encoder's vectors, or produced a model that uses them."""
    return encoder_runs(encoder).filter(Q(batches__isnull=False) | Q(students__isnull=False)).exists()


def _tried_shape(takes: Input) -> tuple[int, ...]:
    return (takes.size, takes.size, takes.channels) if isinstance(takes, ImageInput) else (_TEXT_TRIED,)


def _message(error: EncoderError) -> str:
    return f"{translated(error.problem)} {translated(error.remedy)}"


# --- Encodings --------------------------------------------------------------------------------------------------------


_AT_A_TIME = 256
#: Number of a public dataset's records that are encoded both individually and as a batch, as a test.
_TRIED = 4
#: Time after which failed work is retried, because failures are caused by the machine, not by records.
_AGAIN = timedelta(hours=1)
#: Number of parts into which records are divided. It is fixed, so that progress does not reveal the number of records.
_PARTS = 10


def encodings_begin(dataset: Dataset) -> None:
    """Start encoding a new dataset with the suitable encoders of its study, in the caller's transaction."""
    for encoder in Encoder.objects.filter(study=dataset.study_id, withdrawn_at=None):
        encoding_begin(dataset, encoder)


def encoding_begin(dataset: Dataset, encoder: Encoder) -> None:
    """Start encoding a dataset with an encoder if the records are suitable, in the caller's transaction."""
    if not input_from_json(encoder.takes).suits(schema_from_json(dataset.schema)):
        return
    begun = Encoding.objects.create(dataset=dataset, encoder=encoder)
    send("encoding_work", begun.pk)


def encodings_end(encoder: Encoder, *, keep: bool) -> None:
    """Stop all encoding with a withdrawn encoder, in the caller's transaction.

    ``keep``: whether to keep existing vectors; otherwise a worker deletes them.
    """
    encodings = encoder.encodings.all()
    if keep:
        encodings.exclude(state=Encoding.State.DONE).delete()
        return
    encodings.update(state=Encoding.State.WAITING, claimed_by="", heartbeat=None)
    for encoding in encodings:
        send("encoding_work", encoding.pk)


def encoding_work(encoding_id: int | str) -> None:
    """Encode a dataset unless it is encoded or a live worker is encoding it; can be repeated after a crash.

    If the encoder is withdrawn, delete its vectors. If the dataset was removed, do nothing.
    """
    with lease(Encoding, encoding_id) as token:
        encoding = Encoding.objects.select_related("dataset", "encoder").filter(pk=encoding_id).first()
        if token is None or encoding is None or encoding.state != Encoding.State.WAITING:
            return
        mine = Encoding.objects.filter(pk=encoding.pk, claimed_by=token, state=Encoding.State.WAITING)

        def fail(message: str) -> None:
            mine.update(state=Encoding.State.FAILED, message=message)

        unexpected = gettext_noop(
            "An unexpected error occurred. You can find the details in the worker's logs under this encoding's id."
        )
        with guarded(f"Encoding {encoding_id}", expected=(), fail=fail, unexpected=unexpected):
            try:
                if encoding.dataset.removed_at is not None:
                    mine.delete()
                elif encoding.encoder.withdrawn_at is None:
                    _encode(encoding, mine)
                else:
                    _forget(encoding, mine)
            except EncoderError as error:
                fail(_kept(error.problem))
    for run in _waiting_runs(encoding):
        send("run_advance", run.pk)


def encoding_is_awaited(run: Run) -> bool:
    """Return whether an approved run must wait until its private records are encoded."""
    if not run.encoder or run.status != Run.Status.APPROVED:
        return False
    encodings = Encoding.objects.filter(encoder__digest=run.encoder, dataset=run.private_dataset_id)
    return not encodings.filter(state=Encoding.State.DONE).exists()


def _waiting_runs(encoding: Encoding) -> QuerySet[Run]:
    return Run.objects.filter(
        status=Run.Status.APPROVED, private_dataset=encoding.dataset_id, choices__encoder=encoding.encoder.digest
    )


def _encode(encoding: Encoding, mine: Any) -> None:
    """Encode the dataset's records and store the vectors; repeat this if records are erased in the meantime."""
    begun = time.monotonic()
    known: dict[bytes, np.ndarray] = {}
    dataset, key = encoding.dataset, records_key(encoding.encoder.digest)
    while True:
        arrays, before = records_load(dataset), dataset.artifact
        x = arrays[RECORDS]
        names = [hashlib.sha256(record.tobytes()).digest() for record in np.ascontiguousarray(x)]
        missing = [place for place, name in enumerate(names) if name not in known]
        if missing:
            file = encoder_load(encoding.encoder)
            with EncoderProcess(file, x.shape[1:]) as process:
                # Private records are never used for the test, because the decision to refuse the encoder would depend
                # on them.
                tried = x[:_TRIED] if dataset.kind != Dataset.Kind.PRIVATE else x[:0]
                process.check_locality(np.concatenate([sample_of(file.takes, x.shape[1:]), tried]))
                for part, places in enumerate(np.array_split(missing, _PARTS), start=1):
                    for start in range(0, len(places), _AT_A_TIME):
                        some = places[start : start + _AT_A_TIME]
                        known |= zip((names[place] for place in some), process.encode(x[some]), strict=True)
                    mine.update(progress=part / _PARTS)
        # There are no parts if all records have been erased.
        nothing = np.empty((0, encoding.encoder.width), np.float32)
        vectors = np.stack([known[name] for name in names]) if names else nothing
        done = {"state": Encoding.State.DONE, "progress": 1.0, "seconds": round(time.monotonic() - begun, 1)}
        if _store(encoding, before, arrays | {key: vectors}, lambda done=done: mine.update(**done)):  # type: ignore[misc]
            return
        dataset.refresh_from_db()
        if dataset.removed_at is not None or not mine.exists():
            return


def _forget(encoding: Encoding, mine: Any) -> None:
    """Delete the vectors of an encoder unless the same file is registered again."""
    dataset, encoder = encoding.dataset, encoding.encoder
    while mine.exists():
        again = Encoder.objects.filter(study=encoder.study_id, digest=encoder.digest, withdrawn_at=None)
        if dataset.removed_at is not None or again.exists():
            mine.delete()
            return
        arrays, before = records_load(dataset), dataset.artifact
        arrays = {name: array for name, array in arrays.items() if name != records_key(encoder.digest)}
        if _store(encoding, before, arrays, lambda: mine.delete()[0]):
            return
        dataset.refresh_from_db()


def _store(encoding: Encoding, before: str, arrays: dict[str, np.ndarray], end: Callable[[], int]) -> bool:
    """Point the dataset to a new file with these arrays, if it still points to ``before`` and ``end`` succeeds.

    Returns:
        Whether this succeeded; otherwise nothing has changed.
    """
    try:
        artifact, digest = records_store(arrays, before=before)
    except KeyGoneError:  # records were erased in the meantime
        return False
    try:
        with transaction.atomic():
            study_lock(encoding.dataset.study_id)
            with changes_recorded([encoding.dataset], acting_user=None):
                stored = Dataset.objects.filter(pk=encoding.dataset.pk, artifact=before, removed_at=None).update(
                    artifact=artifact, digest=digest
                )
            done = stored and end()
            if not done:
                transaction.set_rollback(True)
            else:
                transaction.on_commit(lambda: arrays_delete(before))
    except BaseException:
        arrays_delete(artifact)
        raise
    if not done:
        arrays_delete(artifact)
    return bool(done)


def encodings_sweep() -> None:
    """Queue encodings whose worker has died, and those that failed more than an hour ago."""
    failed = Encoding.objects.filter(state=Encoding.State.FAILED, heartbeat__lt=timezone.now() - _AGAIN)
    failed.update(state=Encoding.State.WAITING, message="")
    send_on(Encoding.objects.filter(state=Encoding.State.WAITING), "training.tasks.encoding_work")


def _kept(sentence: str) -> Any:
    return sentence.to_json() if isinstance(sentence, Sentence) else sentence
