"""Reading of files in the process of the test, where it is not about the process that reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from learning.formats import apart, reader


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read without a process for each file, which takes half a second."""

    def answered(
        wish: dict[str, Any], folder: Path, allowance: apart.Allowance, progress: Callable[[int, int], None]
    ) -> dict[str, Any]:
        return reader.answered(wish, folder, progress)

    monkeypatch.setattr(apart, "_process", answered)
