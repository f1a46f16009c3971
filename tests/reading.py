"""Reading and encoding in the process of the test, where it is not about the process that does it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learning.encoders import EncoderError, EncoderProcess
from learning.formats import apart


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read without a process for each file, which takes half a second."""

    def answered(
        wish: dict[str, Any], folder: Path, allowance: apart.Allowance, progress: Callable[[int, int], None]
    ) -> dict[str, Any]:
        return apart.answered(wish, folder, progress)

    monkeypatch.setattr(apart, "_process", answered)


@pytest.fixture
def encode_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode without a process for each dataset, which takes a second."""

    def start(self: EncoderProcess) -> None:
        from learning.encoders.__main__ import _encode

        try:
            self.encode_one = _encode(self._encoder, self._shape)
            self.width = len(self.encode_one(np.zeros((1, *self._shape), np.uint8)))
        except EncoderError:
            raise
        except Exception as error:
            raise EncoderError(str(error), "") from error

    def encoded(self: EncoderProcess, block: np.ndarray) -> np.ndarray | None:
        try:
            found = np.stack([self.encode_one(record) for record in block[:, None]])
            return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, np.float32(0))
        except Exception:  # as where the process ends over a record
            return None

    monkeypatch.setattr(EncoderProcess, "_start", start)
    monkeypatch.setattr(EncoderProcess, "_encoded", encoded)
