"""Fitted representations as bytes and back: arrays without pickle, parameters as JSON."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning.representations.base import FittedRepresentation, within
from learning.representations.catalogue import representation_create
from learning.representations.coordinates import Coordinates
from learning.representations.encoders import (
    ClippedColumnEncoder,
    ColumnEncoder,
    Encoder,
    JoinedEncoder,
    ThresholdEncoder,
)
from learning.representations.network import NetworkEncoder
from learning.representations.patches import PatchEncoder
from learning.representations.wavelets import WaveletEncoder
from learning.representations.words import WordEncoder

_ABOUT = "about"


def representation_save(fitted: FittedRepresentation) -> bytes:
    """The fitted representation as an npz file, which `representation_load` reads.

    >>> from learning.representations import Standardised
    >>> points = np.random.default_rng(0).random((20, 3))
    >>> fitted = Standardised().fit(points)
    >>> bool((representation_load(representation_save(fitted)).transform(points) == fitted.transform(points)).all())
    True
    """
    about = {"name": fitted.representation.name, "parameters": fitted.representation.parameters()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{_ABOUT: np.array(json.dumps(about))}, **fitted.state())
    return buffer.getvalue()


def representation_load(data: bytes) -> FittedRepresentation:
    """The representation that was saved.

    Raises:
        ValueError: The bytes are no such file.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            state = {name: archive[name] for name in archive.files}
        about = json.loads(str(state.pop(_ABOUT)))
        representation = representation_create(about["name"], about["parameters"])
        encoder = _encoder(str(state["kind"]), within(state, "encoder"))
        return FittedRepresentation(representation, encoder, Coordinates.from_state(within(state, "coordinates")))
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError("The stored representation cannot be read: fit it again on the public points.") from error


def _encoder(kind: str, state: Mapping[str, NDArray[Any]]) -> Encoder:
    if kind == JoinedEncoder.kind:
        parts = enumerate(state["parts"].tolist())
        return JoinedEncoder(*(_encoder(part, within(state, str(place))) for place, part in parts))
    kinds = (
        ColumnEncoder,
        ClippedColumnEncoder,
        ThresholdEncoder,
        WaveletEncoder,
        PatchEncoder,
        NetworkEncoder,
        WordEncoder,
    )
    known = {encoder.kind: encoder for encoder in kinds}
    return known[kind].from_state(state)
