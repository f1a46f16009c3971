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
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_strikes_hit_processes_in_steps_and_leave_a_correct_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url())
    monkeypatch.setenv("IPATE_BROKER_URL", settings.BROKER_URL)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "ipate_web.settings")
    monkeypatch.setattr(studies, "STUDIES", 1)
    monkeypatch.setattr(studies, "RUNS_OF_A_STUDY", 1)
    monkeypatch.setattr(studies, "STEPS", {"choices": {"steps": 60, "sigma": 300.0}, "batch_size": 5})
    planned = {"process": 2, "commit": 1, "file": 1, "worker": 1}
    with tqdm(disable=True) as bar:
        *rows, after = fault_campaign.method_strike(
            "individual", planned, f"{SEED}", 150.0, Path(settings.VAR_DIR), tmp_path, bar
        )
    assert {row["kind"]: row["hit"] for row in rows} == planned
    assert {stage for row in rows for stage in row["stages"]} <= {"approved", "asking", "learning", "assessment"}
    assert after["faults"] == []
    assert after["counts"]["runs finished"] >= 1 and after["counts"]["batches recomputed"] >= 12


def campaign(output: Path, monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> None:
    """Call the campaign's command to report on results of one method on one database."""
    cell = {"method": "pate", "database": "sqlite", "seed": SEED}
    output.write_text("".join(json.dumps(cell | row) + "\n" for row in rows))
    options = {"seed": SEED, "method": "pate", "database": "sqlite", "kind": "process", "kills": 3, "minutes": 0}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["fault_campaign", *given, "--output", str(output)])
    fault_campaign.main()


def process_row(hit: int) -> dict[str, Any]:
    return {"kind": "process", "asked": 3, "hit": hit, "stages": {"asking": hit}}


def after_row(*faults: str) -> dict[str, Any]:
    return {"kind": "afterwards", "counts": {}, "faults": list(faults)}


def test_a_campaign_succeeds_with_all_hits_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign(tmp_path / "results", monkeypatch, process_row(1), after_row(), process_row(2), after_row())
    assert "3 kills, 0 other strikes, 0 faults" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((process_row(0), after_row()), "Nothing was hit"),
        ((process_row(2), after_row()), "only 2 of 3 strikes hit"),
        ((process_row(3), after_row("run 1 did not finish")), "run 1 did not finish"),
    ],
)
def test_a_campaign_fails_with_too_few_hits_or_a_fault(
    rows: tuple[dict[str, Any], ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=message):
        campaign(tmp_path / "results", monkeypatch, *rows)
