"""Fixtures for tests of learners and students."""

import pytest

from learning.formats import Splits, catalogue_load


@pytest.fixture(scope="session")
def digits() -> Splits:
    return catalogue_load("digits")
