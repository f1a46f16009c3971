"""Kill a hub's and its sites' processes and cut their networks at random: accounts stay correct, and runs end."""

import os
import shutil
from pathlib import Path

import pytest
from tqdm import tqdm

from benchmarks.site_kills import kills, wrong
from tests.test_two_hosts import MISSING

pytestmark = [
    *(pytest.mark.exhaustive, pytest.mark.worker),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed"),
]
#: Number of kills; `benchmarks.site_kills` has made a hundred.
STRIKES = int(os.environ.get("IPATE_SITE_KILLS", "6"))


def test_kills_at_random_charge_nobody_twice_and_runs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "ipate_web.settings")
    with tqdm(disable=True) as bar:
        found = kills(tmp_path, STRIKES, 7, os.getpid() % 250, bar)
    assert sum(found["strikes"].values()) == STRIKES
    assert wrong(found) == []
    assert any(run["states"] == ["finished"] * 4 for run in found["runs"]) or STRIKES > 6
    assert all(state["charged"] for name, state in found["accounts"].items() if name != "Hub")
