"""Encoders: somebody registers one, stating that it was made without the private data; a run may then choose it."""

import hashlib
import logging
import uuid
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from common.artifacts import arrays_delete
from consent.models import Disposal, Study
from consent.services import study_lock, study_open_check
from consent.services.changes import changes_recorded
from consent.services.erasures import disposal_record
from learning.encoders import EncoderError, EncoderFile, EncoderProcess, ImageInput, input_from_json, sample_of
from learning.encoders.files import LARGEST_FILE, LARGEST_TOKENIZER, Input
from training.engine.records import encoder_store
from training.errors import translated
from training.models import Encoder, Run
from training.services.encodings import encoding_begin, encodings_end

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
    """Register an encoder, once it has run, and let it encode the study's datasets that it suits.

    Args:
        study: The study; an encoder is stated to be made without its private data.
        name: For people.
        content: The ONNX file.
        takes: What it takes, as :func:`learning.encoders.input_from_json` reads it.
        licence: Of the encoder.
        source: Where it comes from, and on which data it was made.
        stated: That it was made without the private data.
        acting_user: Who states it.
        tokenizer: Of texts, JSON of the library `tokenizers`.

    Raises:
        ValidationError: by field, where it is not stated, was registered before, or cannot be used.
    """
    study_open_check(study)
    if not stated:
        raise ValidationError({"stated": _("It can be used only if you state this.")})
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
            study_lock(study.pk)
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
    """Withdraw an encoder for good, on record: no run chooses it any more, and no dataset is encoded by it.

    Where a run has learned from its vectors, these and the file stay, for its models and for those who compute the run
    anew. Otherwise both are deleted.

    Raises:
        ValidationError: no reason, or a run that has not ended uses it.
    """
    study = study_lock(encoder.study_id)
    encoder = Encoder.objects.get(pk=encoder.pk)
    if encoder.withdrawn_at is not None:
        return encoder
    if not reason.strip():
        raise ValidationError({"reason": _("Say why: it stays on record.")})
    busy = encoder_runs(encoder).exclude(status__in=Run.ENDED).first()
    if busy is not None:
        raise ValidationError(
            _("The run “%(run)s” uses this encoder and has not ended. Cancel it, or wait.") % {"run": busy.title}
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
        study=study,
        kind=Disposal.Kind.ENCODER,
        acting_user=acting_user,
        subject=encoder.name,
        reason=reason.strip(),
    )
    logger.info("User %s withdrew encoder %s.", acting_user.pk, encoder.pk)
    return encoder


def encoder_runs(encoder: Encoder) -> QuerySet[Run]:
    """The runs that have chosen an encoder."""
    return Run.objects.filter(study=encoder.study_id, choices__encoder=encoder.digest)


def encoder_is_used(encoder: Encoder) -> bool:
    """Whether a run has asked anybody about the encoder's vectors, or led to a model that takes them."""
    return encoder_runs(encoder).filter(Q(batches__isnull=False) | Q(students__isnull=False)).exists()


def _tried_shape(takes: Input) -> tuple[int, ...]:
    return (takes.size, takes.size, takes.channels) if isinstance(takes, ImageInput) else (_TEXT_TRIED,)


def _message(error: EncoderError) -> str:
    return f"{translated(error.problem)} {translated(error.remedy)}"
