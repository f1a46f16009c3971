"""The fault campaign hits processes in steps of runs, and fails where it hits nothing or less than was asked for."""

from pathlib import Path

import pytest
from django.conf import settings
from tqdm import tqdm

from benchmarks import fault_campaign
from benchmarks.faults import studies
from tests.databases import database_url

SEED = 7


@pytest.mark.worker
@pytest.mark.exhaustive
@pytest.mark.django_db(transaction=True)
def test_strikes_hit_processes_in_steps_and_leave_a_correct_ledger(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url())
    monkeypatch.setenv("IPATE_BROKER_URL", settings.BROKER_URL)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "ipate_web.settings")
    monkeypatch.setattr(studies, "STUDIES", 1)
    monkeypatch.setattr(studies, "RUNS_OF_A_STUDY", 1)
    monkeypatch.setattr(studies, "STEPS", {"choices": {"steps": 60, "sigma": 300.0}, "batch_size": 5})
    planned = {"process": 2, "commit": 1, "file": 1, "worker": 1}
    with tqdm(disable=True) as bar:
        folders = Path(settings.VAR_DIR), tmp_path
        *rows, after = fault_campaign.method_strike("individual", planned, f"{SEED}", 150.0, *folders, bar)
    assert {row["kind"]: row["hit"] for row in rows} == planned
    assert {stage for row in rows for stage in row["stages"]} <= {"approved", "asking", "learning", "assessment"}
    assert after["faults"] == []
    assert after["counts"]["runs finished"] >= 1 and after["counts"]["batches recomputed"] >= 12
