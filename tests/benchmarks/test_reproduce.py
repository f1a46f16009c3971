"""Reproducing the papers' tables: registry, resuming, texts, documents, and votes made for the test."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from django.conf import settings

from benchmarks import anchor
from benchmarks.reproduce.divided import SIZES
from benchmarks.reproduce.folders import DIVISIONS, WEAKER
from benchmarks.reproduce.registry import TABLES
from benchmarks.reproduce.rendering import DOCUMENT, document, remarks_read
from benchmarks.reproduce.results import RESULTS, Row, kept
from benchmarks.reproduce.verdicts import judged, verdict
from benchmarks.reproduce.votes import Votes, printed_votes


@pytest.fixture
def votes() -> Votes:
    """Return points on which between 60 and 100 % of 250 teachers agree."""
    random = np.random.default_rng(3)
    truth = random.integers(0, 3, 3_000)
    agree = random.integers(150, 251, 3_000)
    counts = np.zeros((3_000, 3))
    counts[np.arange(3_000), truth] = agree
    counts[np.arange(3_000), (truth + 1) % 3] = 250 - agree
    return Votes("mnist", counts, truth)


def test_the_settings_of_every_table_are_distinct_and_those_of_its_results() -> None:
    for table in TABLES.values():
        full, quick = ([case.setting for case in table.cases(short)] for short in (False, True))
        assert len(set(full)) == len(full) and set(quick) <= set(full), table.name
        assert quick or table.derived, table.name
    for path in RESULTS.glob("*.json"):
        table = TABLES[path.stem]
        assert not table.derived
        assert {case["setting"] for case in kept(table.name)} <= {case.setting for case in table.cases(False)}


@pytest.mark.parametrize(("name", "division"), [(name, one) for name, of in DIVISIONS.items() for one in range(of)])
def test_votes_are_those_of_all_teachers_on_all_public_records(name: str, division: int) -> None:
    votes = printed_votes(name, division)
    assert votes.counts.shape == (SIZES[votes.name][1], votes.classes)
    assert (votes.counts.sum(axis=1) == (110 if name == WEAKER else 250)).all()
    if votes.name == "mnist":  # as accurate as docs/reproduction.md says
        right = (votes.counts[np.arange(len(votes.truth)), votes.truth] / votes.counts.sum(axis=1)).mean()
        assert round(100 * right, 1) == (89.0 if name == WEAKER else 92.5)


def test_a_cell_is_met_within_a_point_ten_per_cent_or_two_standard_errors() -> None:
    assert [verdict(Row("labels", 100.0, here)) for here in (90.0, 89.0, 111.0)] == ["met", "below", "above"]
    assert [verdict(Row("student, %", 90.0, here)) for here in (91.0, 91.1)] == ["met", "above"]
    assert verdict(Row("labels, printed as more than 2,000", 2000, 1999.0)) == "below"
    row = Row("labels", 100.0, 80.0, spread=30.0, here_spread=18.0)
    cases = [{"seeds": list(range(draws)), "setting": "one, vanishing"} for draws in (1, 3, 4)]
    assert [judged("thesis-6.4", case, row) for case in cases] == ["below", "met", "below"], "the mean of the draws"
    assert judged("ipate-table1", cases[2], row) == "met", "the mean of three printed runs"
    sigma = Row("noise multiplier", 1.896, 1.717)
    assert [judged(table, cases[0], sigma) for table in ("thesis-6.4", "idpsgd-table6")] == ["met", "below"]


def test_the_documents_are_current() -> None:
    about, remarks = remarks_read()
    assert about.startswith("# Reproduction")
    assert set(remarks) <= {"method", *TABLES}
    assert DOCUMENT.read_text() == document(), "run python -m benchmarks.reproduce --document"
    assert anchor.DOCUMENT.read_text() == anchor.document(), "run python -m benchmarks.anchor"
    for line in anchor.lines():
        assert any(line.numbers), line.data
        assert "benchmarks." in line.measured, line.data


@pytest.mark.exhaustive
def test_a_table_on_published_votes(data_dir: Path, tmp_path: Path) -> None:
    environment = os.environ | {"IPATE_DATA_DIR": str(data_dir), "IPATE_REPRODUCE_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks.reproduce", "--quick", "pate2018-table"]
    ran = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "2.516 ± 0.385" in ran.stdout
