"""Fixtures of runs."""

from typing import Any

import numpy as np
import pytest

from learning.mechanisms.pate.ballots import TeachersQuestion
from tests.training.asking import NoNoise
from training.engine import questions


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of runs without noise."""
    monkeypatch.setattr(questions, "noise_of", lambda run: NoNoise())


@pytest.fixture
def silenced(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Teachers that were silent in each vote that was held."""
    seen: list[list[int]] = []
    silent = TeachersQuestion.silent

    def watched(self: TeachersQuestion, *about: Any) -> np.ndarray:
        found = silent(self, *about)
        seen.append(np.flatnonzero(found).tolist())
        return found

    monkeypatch.setattr(TeachersQuestion, "silent", watched)
    return seen
