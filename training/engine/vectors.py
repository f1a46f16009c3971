"""Vectors of encoders, which lie beside the records in the files of datasets, and encoders from private storage."""

import hashlib

import numpy as np
from django.db.models import F

from common.artifacts import arrays_load, arrays_save
from learning.encoders import EncoderFile, EncoderProcess, input_from_json
from training.models import Encoder, Run

RECORDS = "x"


def records_key(encoder: str) -> str:
    """The array of a dataset that is learned from: the vectors of an encoder (its digest), or the records themselves.

    >>> records_key(""), records_key("ab12" * 16)
    ('x', 'vectors-ab12ab12ab12ab12')
    """
    return f"vectors-{encoder[:16]}" if encoder else RECORDS


def encoder_of(run: Run) -> Encoder | None:
    """The encoder that a run has chosen; of several of the same file one that is not withdrawn, else the last."""
    encoders = Encoder.objects.filter(study=run.study_id, digest=run.encoder) if run.encoder else Encoder.objects.none()
    return encoders.order_by(F("withdrawn_at").desc(nulls_first=True)).first()


def encoder_store(artifact: str, file: EncoderFile) -> str:
    """Store an encoder privately; SHA-256 of its ONNX file."""
    tokenizer = np.frombuffer(file.tokenizer.encode(), np.uint8)
    arrays_save(artifact, content=np.frombuffer(file.content, np.uint8), tokenizer=tokenizer)
    return hashlib.sha256(file.content).hexdigest()


def encoder_load(encoder: Encoder) -> EncoderFile:
    """An encoder from private storage."""
    arrays = arrays_load(encoder.artifact)
    tokenizer = arrays["tokenizer"].tobytes().decode()
    return EncoderFile(arrays["content"].tobytes(), input_from_json(encoder.takes), tokenizer)


def rows_encode(run: Run, rows: np.ndarray) -> np.ndarray:
    """Records (n, *shape) as the model of a run takes them: their vectors, where it has chosen an encoder.

    Raises EncoderError.
    """
    encoder = encoder_of(run)
    if encoder is None:
        return rows
    with EncoderProcess(encoder_load(encoder), rows.shape[1:]) as process:
        return process.encode(rows)
