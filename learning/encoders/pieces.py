"""Texts in pieces of tokens, as encoders take them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.sentences import gettext_noop as _
from learning.encoders.files import EncoderError

_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")
MOST_PIECES = 64
"""Pieces of a text that are read; what comes after is left out."""


class Pieces:
    """A tokenizer that cuts texts into pieces of at most ``length`` tokens, its own marks included.

    tokenizer: JSON of the library `tokenizers`.
    """

    def __init__(self, tokenizer: str, length: int) -> None:
        try:
            from tokenizers import Tokenizer  # an extra, that only texts need
        except ImportError:
            problem = _("The library “tokenizers” is not installed, which encoders of texts need.")
            raise EncoderError(problem, _("Install it as the guide to encoders says.")) from None
        try:
            self._tokenizer: Any = Tokenizer.from_str(tokenizer)
        except Exception:  # of Rust, without a type of its own
            problem = _("The tokenizer cannot be read.")
            raise EncoderError(problem, _("Give the file tokenizer.json that belongs to the network.")) from None
        # Read from what the library understood, not from the file: of a name given twice it may take the other one.
        model = json.loads(self._tokenizer.to_str())["model"]
        if model["type"] not in _MODELS or model.get("dropout"):
            problem = _("The tokenizer draws how it splits a text (dropout), or is of an unknown kind.")
            raise EncoderError(problem, _("Give a tokenizer for use, not for training: with no dropout."))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(length)

    def __call__(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens `(1, pieces, tokens)` of a text, and their mask; every text has a piece."""
        first = self._tokenizer.encode(text)
        pieces = [first.ids, *(each.ids for each in first.overflowing)][:MOST_PIECES]
        shape = (1, len(pieces), max(1, *map(len, pieces)))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for place, piece in enumerate(pieces):
            ids[0, place, : len(piece)], mask[0, place, : len(piece)] = piece, 1
        return ids, mask
