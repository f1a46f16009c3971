"""Where the real datasets lie, for the tests that read them."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    beside_the_project = Path(__file__).resolve().parents[4] / "shared" / "data"
    folder = Path(os.environ.get("IPATE_DATA_DIR") or beside_the_project)
    if not folder.is_dir():
        pytest.skip("needs the real datasets: set IPATE_DATA_DIR")
    return folder
