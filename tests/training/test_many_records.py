"""One person with very many records: they end no run, and those that count follow from nobody else's.

More records by hand: IPATE_RECORDS=300000 make test T=tests/training/test_many_records.py
"""

import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.book import charges_of
from accounting.models import Release
from accounting.verification import study_faults
from common.artifacts import arrays_load
from consent.models import DataHolder, Study
from learning.formats import Rows, TabularSchema
from learning.formats.columns import NumericColumn
from tests.factories import study_open
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, STEPS_RUN, NoNoise, batch_ask
from tests.training.runs import TABLE, TABLE_RUN, consents_give, head_counts_state, run_finish, run_start, table_rows
from training.engine import noise
from training.engine.records import records_load
from training.models import Run
from training.services.datasets import dataset_import
from training.verification import batches_kept, release_faults, replay_faults

pytestmark = pytest.mark.django_db

RECORDS = int(os.environ.get("IPATE_RECORDS", "30000"))
#: What blocks, libraries that are loaded, and a student may take.
BLOCKS = 400 << 20
COLUMNS, POINTS, HOLDERS, ME = 100, 300, 12, "p-005"
WIDE = TabularSchema(tuple(NumericColumn(f"n{place}", 0, 1) for place in range(COLUMNS)), ("a", "b", "c"))
#: Everybody is near every point, so that there are as many pairs as there can be.
METHODS = {
    "neighbours": ASKING_RUN | {"choices": {"sigma": 10.0, "radius_share": 1.0}, "batch_size": POINTS},
    "individual steps": STEPS_RUN,
    "steps over samples": SAMPLED_RUN,
    "teachers": TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 200.0}, "batch_size": POINTS},
}


def wide_rows(number: int, holders: list[str] | None = None) -> Rows:
    """Rows whose first number tells the class."""
    plain = table_rows(number)
    assert plain.y is not None
    x = np.tile(plain.x[:, :1], COLUMNS)
    x[:, 1:] *= np.random.default_rng(number).random((number, 1), np.float32)
    return Rows(x, plain.y, holders)


def study_with(mine: int, *, later: int = 0, slug: str = "many") -> Study:
    """A study of a dozen with two records each, one of whom has ``mine`` records between them, and ``later`` ones."""
    study = study_open(slug, delta=1e-4, retain_votes=True)
    others = [f"p-{place:03}" for place in range(HOLDERS)]
    owners = [*others, *[ME] * mine, *others]
    rows, more = wide_rows(len(owners), owners), wide_rows(later, [ME] * later)
    if later:
        assert rows.y is not None and more.y is not None
        rows = Rows(np.concatenate([rows.x, 1 - more.x]), np.concatenate([rows.y, more.y]), [*owners, *[ME] * later])
    for kind, part in (("private", rows), ("public", wide_rows(POINTS)), ("test", wide_rows(21))):
        dataset_import(study=study, name=kind, kind=kind, rows=part, schema=WIDE)
    consents_give(study, "HAL")
    head_counts_state(study)
    return study


@contextmanager
def memory_of(number: int) -> Iterator[None]:
    """No more than so many bytes beside those that the process has."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    used = 1024 * int(status.split("VmData:")[1].split()[0])
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def assert_whole(run: Run) -> None:
    """Nothing is wrong with what was released, nor with what it cost, computed anew."""
    assert [*study_faults(run.study), *release_faults(run)] == []
    for batch in batches_kept(run.study):
        assert list(replay_faults(batch)) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
@pytest.mark.parametrize("method", METHODS)
def test_the_records_of_one_person_fill_no_memory_but_their_own(method: str, settings: Any) -> None:
    """However many they are: beside the records themselves only blocks of them are in memory."""
    settings.MOST_RECORDS = RECORDS + 2
    study = study_with(RECORDS)
    run = run_start(study, **METHODS[method])
    with memory_of(BLOCKS + 4 * (4 * COLUMNS * RECORDS)):
        run = run_finish(run)
        assert run.status == Run.Status.FINISHED, run.message
        assert_whole(run)
    assert pk_of(study, ME) in charges_of(Release.objects.get(run=run.pk, batch=0)).holders


@pytest.mark.slow
@pytest.mark.parametrize("method", ["neighbours", "individual steps"])
def test_records_beyond_the_public_number_change_nothing(
    method: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gives 40 records more than count is asked, and charged, as if they had not; so is everybody else."""
    settings.MOST_RECORDS = 10
    monkeypatch.setattr(noise, "noise_of", lambda run: NoNoise())
    reports = []
    for later in (0, 40):
        study = study_with(8, later=later, slug=f"later-{later}")
        run = batch_ask(run_start(study, **METHODS[method]))
        private = records_load(study.datasets.get(kind="private"))
        assert private["holder"].tolist().count(pk_of(study, ME)) == 10
        charged = charges_of(Release.objects.get(run=run.pk, batch=0)).spent.tolist()
        reports.append((said(run), charged, private["x"].tolist(), private["y"].tolist()))
    assert reports[0] == reports[1]


def test_which_records_count_follows_from_nobody_elses(settings: Any) -> None:
    """The first of each in the order of the file, however others stand between them."""
    settings.MOST_RECORDS = 2
    study = study_open("order")
    kept = []
    for name, owners in (("all", "abacaababcc"), ("without b", "aacaaacc")):
        rows = table_rows(len(owners), list(owners))
        x = np.array([[owners[:place].count(who), ord(who)] for place, who in enumerate(owners)], np.float32)
        dataset = dataset_import(
            study=study, name=name, kind="private", rows=Rows(x, rows.y, rows.holders), schema=TABLE
        )
        assert (dataset.rows, dataset.most_records) == (6 if name == "all" else 4, 2)
        stored = records_load(dataset)["x"]
        assert all(number < 2 for number, _ in stored)
        kept.append([number for number in stored.tolist() if number[1] != ord("b")])
    assert kept[0] == kept[1]


def pk_of(study: Study, pseudonym: str) -> int:
    return DataHolder.objects.get(study=study, pseudonym=pseudonym).pk


def said(run: Run) -> Any:
    """Releases of a run so far."""
    if run.queries.exists():
        return list(run.queries.order_by("pk").values_list("row", "label", "counts"))
    return arrays_load(run.batches.get().released)["sums"].tolist()
