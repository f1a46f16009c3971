"""Fixtures of runs."""

import pytest

from tests.training.asking import NoNoise
from training.engine import noise


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of runs without noise."""
    monkeypatch.setattr(noise, "noise_of", lambda run: NoNoise())
