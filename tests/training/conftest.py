"""Fixtures for runs."""

from typing import Any

import numpy as np
import pytest

from learning.mechanisms.pate.ballots import TeachersQuestion
from tests.draws import NoNoise
from training.engine import questions


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make releases of runs exact, without noise."""
    monkeypatch.setattr(questions, "noise_of", lambda run: NoNoise())


@pytest.fixture
def silenced(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Collect the teachers that cast no vote, for each vote."""
    seen: list[list[int]] = []
    silent = TeachersQuestion.silent

    def watched(self: TeachersQuestion, *about: Any) -> np.ndarray:
        found = silent(self, *about)
        seen.append(np.flatnonzero(found).tolist())
        return found

    monkeypatch.setattr(TeachersQuestion, "silent", watched)
    return seen
