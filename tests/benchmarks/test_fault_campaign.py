"""The fault campaign hits processes in steps of runs, and fails where it hits nothing or less than was asked for."""

import json
import sys
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("hits", "faults", "message"),
    [
        ((1, 2), (), "3 kills, 0 other strikes, 0 faults"),
        ((0,), (), "Nothing was hit"),
        ((2,), (), "only 2 of 3 strikes hit"),
        ((3,), ("run 1 did not finish",), "run 1 did not finish"),
    ],
)
def test_a_campaign_fails_with_too_few_hits_or_a_fault(hits, faults, message, tmp_path, monkeypatch, capsys) -> None:
    """The campaign's command, which reports on results of one method on one database."""
    rows: list[dict[str, Any]] = []
    for hit in hits:
        rows.append({"kind": "process", "asked": 3, "hit": hit, "stages": {"asking": hit}})
        rows.append({"kind": "afterwards", "counts": {}, "faults": list(faults)})
    cell, output = {"method": "pate", "database": "sqlite", "seed": SEED}, tmp_path / "results"
    output.write_text("".join(json.dumps(cell | row) + "\n" for row in rows))
    options = cell | {"kind": "process", "kills": 3, "minutes": 0, "output": output}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["fault_campaign", *given])
    if sum(hits) == 3 and not faults:
        fault_campaign.main()
        assert message in capsys.readouterr().out
    else:
        with pytest.raises(SystemExit, match=message):
            fault_campaign.main()
