"""Files to import, read and encoded in the test's process by tests that do not test the separate process."""

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.db import connection

from learning.encoders import EncoderError, EncoderProcess
from learning.formats import isolation

#: Folders of private storage that contain rows.
FOLDERS = (settings.PRIVATE_DIR / "datasets", settings.PRIVATE_DIR / "imports")


@pytest.fixture
def no_files() -> None:
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files without a separate process for each, which takes half a second."""

    def answered(
        wish: dict[str, Any], folder: Path, allowance: isolation.Allowance, progress: Callable[[int, int], None]
    ) -> dict[str, Any]:
        return isolation.answered(wish, folder, progress)

    monkeypatch.setattr(isolation, "_process", answered)


@pytest.fixture
def encode_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode datasets without a separate process for each, which takes a second."""

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
        except Exception:  # as if the process died on a record
            return None

    monkeypatch.setattr(EncoderProcess, "_start", start)
    monkeypatch.setattr(EncoderProcess, "_encoded", encoded)


def commit() -> None:
    """Run what waits for the test's transaction to commit."""
    while connection.run_on_commit:
        connection.run_on_commit.pop(0)[1]()


def zipped(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()
