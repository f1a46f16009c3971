"""Encoder files and their inputs. Texts are split into pieces of several tokens."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats import ImageSchema, Schema, TabularSchema

LARGEST_FILE = 512 << 20
"""Largest size in bytes of an encoder that can be registered."""
LARGEST_TOKENIZER = 32 << 20
MOST_CHAINED = 160 << 20
"""Largest size in bytes of an encoder included in published models; larger encoders are referred to by name."""
LARGEST_SIDE = 1024
MOST_TOKENS = 8192
FIRST, LAST = "channels_first", "channels_last"

_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")
MOST_PIECES = 64
"""Largest number of pieces of a text; further pieces are ignored."""


class EncoderError(ValueError):
    """Error raised if an encoder cannot be used. The message states the problem and the remedy; pages translate it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem, self.remedy = problem, remedy


@dataclass(frozen=True)
class ImageInput:
    """Image input of an encoder: (pixels in [0, 1] - mean) / spread, in a square of ``size`` pixels.

    Attributes:
        mean, spread: One value per colour channel.
        layout: "channels_first" (n, channels, height, width) or "channels_last".

    >>> ImageInput(112, (0.5,), (0.5,)).channels
    1
    """

    kind: ClassVar[str] = "image"
    size: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    layout: str = FIRST

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 4 <= self.size <= LARGEST_SIDE:
            problem = Sentence(_("The side length of the images is %(size)s pixels."), size=self.size)
            raise EncoderError(problem, Sentence(_("Declare a whole number from 4 to %(most)s."), most=LARGEST_SIDE))
        numbers = (*self.mean, *self.spread)
        if len(self.mean) not in (1, 3) or len(self.spread) != len(self.mean) or not all(map(_is_number, numbers)):
            text = _("The mean and the spread must each be one number, or three numbers for colour images.")
            raise EncoderError(text, _("Declare one number per colour channel of the encoder."))
        if not all(each > 0 for each in self.spread):
            raise EncoderError(_("The spread must be above 0."), _("Declare the number that pixels are divided by."))
        if self.layout not in (FIRST, LAST):
            problem = Sentence(_("The layout “%(layout)s” does not exist."), layout=self.layout)
            raise EncoderError(problem, _("Declare channels_first or channels_last."))

    @property
    def channels(self) -> int:
        return len(self.mean)

    def suits(self, schema: Schema) -> bool:
        """Return whether the encoder accepts a schema's records: images with its number of channels, or grey images."""
        return isinstance(schema, ImageSchema) and schema.channels in (1, self.channels)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self), "mean": list(self.mean), "spread": list(self.spread)}


@dataclass(frozen=True)
class TextInput:
    """Text input: texts are split into pieces of at most ``length`` tokens, whose vectors are averaged."""

    kind: ClassVar[str] = "text"
    length: int

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or not 4 <= self.length <= MOST_TOKENS:
            problem = Sentence(_("Each piece of text has %(length)s tokens."), length=self.length)
            raise EncoderError(problem, Sentence(_("Declare a whole number from 4 to %(most)s."), most=MOST_TOKENS))

    def suits(self, schema: Schema) -> bool:
        """Return whether the encoder accepts records of this schema, which must be texts."""
        return isinstance(schema, TabularSchema) and schema.text is not None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "length": self.length}


Input = ImageInput | TextInput


def input_from_json(document: Mapping[str, Any]) -> Input:
    """Return the input from the result of `to_json` or from a request.

    Raises:
        EncoderError: The declaration is invalid.

    >>> input_from_json(TextInput(128).to_json()) == TextInput(128)
    True
    """
    kinds: dict[str, Callable[..., Input]] = {"image": ImageInput, "text": TextInput}
    entries = dict(document) if isinstance(document, Mapping) else {}
    kind = kinds.get(entries.pop("kind", ""))
    if kind is None:
        raise EncoderError(_("The kind of input is missing."), _("Declare the kind image or text."))
    try:
        listed = {name: tuple(value) if name in ("mean", "spread") else value for name, value in entries.items()}
        return kind(**listed)
    except TypeError:
        names = ", ".join(field.name for field in fields(kind))  # type: ignore[arg-type]
        raise EncoderError(
            _("The encoder's input is not declared correctly."), Sentence(_("Provide %(names)s."), names=names)
        ) from None


@dataclass(frozen=True, eq=False)
class EncoderFile:
    """ONNX file and input of an encoder and, for texts, its tokenizer (JSON of the library `tokenizers`).

    The output is reduced to one vector per record: the mean over the positions in an image or the tokens in a text.
    """

    content: bytes
    takes: Input
    tokenizer: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the vectors."""
        parts = (hashlib.sha256(self.content).hexdigest(), repr(self.takes), self.tokenizer)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Pieces:
    """Tokenizer that splits texts into pieces of at most ``length`` tokens, including special tokens.

    Args:
        tokenizer: JSON of the library `tokenizers`.
    """

    def __init__(self, tokenizer: str, length: int) -> None:
        try:
            from tokenizers import Tokenizer  # an optional package, needed only for texts
        except ImportError:
            problem = _("Encoders for texts need the library “tokenizers”, which is not installed.")
            raise EncoderError(problem, _("The guide to encoders explains how to install this library.")) from None
        try:
            self._tokenizer: Any = Tokenizer.from_str(tokenizer)
        except Exception:  # the Rust code raises no more specific type
            problem = _("The tokenizer cannot be read.")
            raise EncoderError(problem, _("Use the file tokenizer.json that belongs to the network.")) from None
        # Read from the library's result rather than the file, because the library may resolve duplicate names
        # differently.
        model = json.loads(self._tokenizer.to_str())["model"]
        if model["type"] not in _MODELS or model.get("dropout"):
            problem = _("The tokenizer splits texts randomly (dropout), or its kind is unknown.")
            raise EncoderError(problem, _("Use a tokenizer made for inference, without dropout."))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(length)

    def __call__(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens `(1, pieces, tokens)` of a text and their mask; every text has at least one piece."""
        first = self._tokenizer.encode(text)
        pieces = [first.ids, *(each.ids for each in first.overflowing)][:MOST_PIECES]
        shape = (1, len(pieces), max(1, *map(len, pieces)))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for place, piece in enumerate(pieces):
            ids[0, place, : len(piece)], mask[0, place, : len(piece)] = piece, 1
        return ids, mask


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
