"""Released numbers have all of their noise, and only people who are charged contribute, with any number of records."""

import gc
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from scipy.stats import chi2

from accounting.accounts import balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import shares
from common.artifacts import arrays_load
from common.noise import SimulationNoise
from consent.models import DataHolder, Level, Study
from consent.people.counts import holders_per_level
from learning.formats import Rows, TabularSchema
from learning.formats.columns import NumericColumn
from learning.mechanisms.neighbours import released_counts
from learning.mechanisms.neighbours.released_counts import CountsRelease
from learning.mechanisms.sampled_steps.rates import FINENESS
from learning.mechanisms.steps.linear import CLIP_STEPS
from tests.draws import NoNoise
from tests.factories import decide, study_open, user_create
from tests.training.asking import (
    ASKING_RUN,
    SAMPLED_RUN,
    STEPS_RUN,
    asking_of,
    assert_whole,
    attempt,
    batch_ask,
    commit,
    vote_batch,
)
from tests.training.people import everybody, small_study, withdraw
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    run_finish,
    run_start,
    run_teach,
    study_fill,
    study_with_table,
    table_rows,
)
from training.engine import questions
from training.engine.records import records_load
from training.methods.pate_teachers import vote_open
from training.models import Run
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_draw
from training.services.runs import run_cancel
from training.verification import release_faults

pytestmark = pytest.mark.django_db

NEAR = ASKING_RUN | {"choices": {"sigma": 10.0, "radius_share": 1.0}}
TEACHERS = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 60.0}}


class Watched(NoNoise):
    """Noise that stores its scale, and puts one class of each query far ahead of the others."""

    is_simulation: ClassVar[bool] = False

    def __init__(self) -> None:
        self.scales: list[float] = []

    def normal(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        self.scales.append(scale)
        return 1000.0 * np.eye(shape[1])[self.classes(shape[0])]

    def rounded_normal(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        self.scales.append(scale)
        return np.zeros(shape, np.int64)

    @staticmethod
    def classes(queries: int) -> list[int]:
        return [(2 * place + 1) % 3 for place in range(queries)]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched()
    monkeypatch.setattr(questions, "noise_of", lambda run: found)
    return found


def vote(study: Study, **fields: Any) -> Run:
    """Return a run of teachers with one released batch."""
    run = run_teach(run_start(study, **TEACHERS | fields))
    vote_open(run)
    run.refresh_from_db()
    assert vote_batch(run)
    run.refresh_from_db()
    return run


def ask(study: Study, **fields: Any) -> Run:
    """Return a run in which everybody was asked one batch."""
    return batch_ask(run_start(study, **{"share": 0.5, **NEAR, **fields}))


def counts(run: Run) -> np.ndarray:
    return np.array(list(run.queries.order_by("pk").values_list("counts", flat=True)))


@pytest.mark.parametrize("begun", [ask, vote])
def test_a_label_is_that_of_the_noisy_numbers(watched: Watched, begun: Callable[..., Run]) -> None:
    run = begun(small_study())
    assert list(run.queries.order_by("pk").values_list("label", flat=True)) == Watched.classes(4)
    assert list(release_faults(run)) == []


def test_labels_that_were_released_and_do_not_follow_from_the_counts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register and rows agree on the labels, so only computing them again from the counts finds the fault."""
    with monkeypatch.context() as patch:
        patch.setattr(questions, "noise_of", lambda run: Watched())
        none = np.zeros(0)
        patch.setattr(
            released_counts, "read_counts", lambda counts, *_, **__: CountsRelease(counts, 0 * counts[:, 0], none)
        )
        run = ask(small_study())
    (fault,) = release_faults(run)
    assert "its labels do not follow from the released counts" in fault


def test_releases_are_charged_by_the_noise_that_was_drawn(watched: Watched) -> None:
    def drawn() -> float:
        (scale,) = set(watched.scales)
        watched.scales.clear()
        return scale

    run = ask(small_study())
    sigma = drawn()
    charged = charges_of(Release.objects.get(run=run.pk, batch=0)).spent
    assert charged == pytest.approx(4 / sigma**2), "everybody is near every point"
    assert run.spent == pytest.approx([4 / sigma**2] * 3)
    run = vote(small_study(slug="teachers"))
    sigma, moved = drawn(), [group["weight"] * group["factor"] for group in run.plan["groups"]]
    assert run.spent == pytest.approx([4 * 2 * each**2 / sigma**2 for each in moved])
    run = ask(small_study(slug="steps"), **STEPS_RUN | {"choices": {"steps": 6, "sigma": 10.0, "clip_norm": 0.01}})
    unit = CLIP_STEPS / drawn()
    # The person with the largest charge contributes a gradient as long as clipping allows.
    assert max(charges_of(Release.objects.get(run=run.pk, batch=0)).spent) == pytest.approx(2 * unit**2, rel=0.01)
    assert max(run.spent) == pytest.approx(2 * unit**2)
    run = batch_ask(ask(small_study(slug="samples"), **SAMPLED_RUN))
    charge = max(charges_of(Release.objects.get(run=run.pk, batch=0)).spent)
    assert charge == pytest.approx(6 * (FINENESS / drawn()) ** 2), "everybody is in all six steps"


@pytest.mark.statistical
def test_noise_of_counts_has_the_spread_that_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The squares of 300 numbers; with a random seed, this would fail once in 10⁹ runs."""
    shares: list[np.ndarray] = []
    for seeded in (NoNoise(), SimulationNoise(11)):
        monkeypatch.setattr(questions, "noise_of", lambda run, seeded=seeded: seeded)
        study = study_with_table(f"spread-{len(shares)}", holders=12, points=100)
        shares.append(counts(ask(study, batch_size=100, share=1.0, choices={"sigma": 60.0, "radius_share": 1.0})))
    drawn = (shares[1] - shares[0]).ravel()
    low, high = chi2.ppf([0.5e-9, 1 - 0.5e-9], len(drawn))
    assert len(drawn) == 300 and low < (drawn**2).sum() / 60.0**2 < high


@pytest.fixture
def full(exact: None) -> DataHolder:
    """Return a study without noise in which one person spent more at LOW than their new level HIGH allows."""
    study = small_study()
    run = ask(study, batch_size=12, share=0.6, choices={"sigma": 5.0, "radius_share": 1.0})
    run_cancel(run=run, acting_user=user_create("olga"))
    who = everybody(study)[2]
    decide(who, "HIGH")
    assert balances(study).of(np.array([who.pk]))[0] > caps_of(1.0, study.delta)
    return who


@pytest.mark.exhaustive
def test_people_without_budget_are_left_out_of_counts_and_sums(full: DataHolder) -> None:
    """They are left out of head counts, votes, gradients and sampled steps."""
    study, none = full.study, cast(Any, NoNoise())
    true = sum(count for level, count in holders_per_level(study).items() if level in Level.values)
    drawn = head_counts_draw(study=study, acting_user=user_create("olga"), noise=none)
    charged = charges_of(Release.objects.latest("sequence")).holders
    assert full.pk not in charged
    assert sum(count.count for count in drawn) == len(charged) < true
    run = batch_ask(ask(study, share=0.1, **SAMPLED_RUN))
    charged = charges_of(Release.objects.get(run=run.pk, batch=0)).holders
    assert full.pk not in charged and len(charged)
    for batch in run.batches.all():
        assert arrays_load(batch.attempt)["holder"].tolist() == charged.tolist()
    run_cancel(run=run, acting_user=user_create("olga"))
    run = ask(study, share=0.1, choices={"sigma": 30.0, "radius_share": 1.0})
    charges = charges_of(Release.objects.get(run=run.pk, batch=0))
    votes = dict(zip(charges.holders.tolist(), np.rint(charges.spent * 30.0**2).tolist(), strict=True))
    assert votes[full.pk] == 0 and max(votes.values()) == 4
    assert counts(run).sum() == sum(votes.values())
    run_cancel(run=run, acting_user=user_create("olga"))
    for who in everybody(study):
        if who != full:
            withdraw(who)
    run = ask(study, share=0.1, **STEPS_RUN)
    assert charges_of(Release.objects.get(run=run.pk, batch=0)).spent.tolist() == [0.0]
    assert not arrays_load(run.batches.get().released)["sums"].any()


def test_charges_during_a_batch_reduce_its_budget(exact: None) -> None:
    """Each account allows two votes, or one vote and a drawing of head counts, so one vote is counted and charged."""
    study = small_study(levels="H")
    limit = 0.5 * float(caps_of(1.0, study.delta))
    sigma = float(np.sqrt(2 / (0.999 * limit)))
    run = run_start(study, share=0.5, **NEAR | {"choices": {"sigma": sigma, "radius_share": 1.0}})
    assert asking_of(run).open(run)
    run = attempt(Run.objects.get(pk=run.pk))
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(3))
    before = balances(study)
    assert (before.spent > 0.001 * limit).all()
    run = commit(run)
    charged = charges_of(Release.objects.get(run=run.pk, batch=0))
    assert charged.spent == pytest.approx(1 / sigma**2)
    assert counts(run).sum() == len(charged.holders) == 12
    np.testing.assert_array_equal(arrays_load(run.batches.get().attempt)["spent"], before.of(charged.holders))


@pytest.mark.parametrize(("begun", "fields"), [(ask, {}), (vote, {"weight_scheme": "proportional"})])
def test_a_share_settles_to_the_largest_possible_use(watched, begun, fields) -> None:
    study = small_study()
    run = begun(study, share=0.9, **fields)
    used = np.array(run.spent) / caps_of([1.0, 2.0, 3.0], study.delta)
    assert used.max() > 1.05 * used.min()
    run_cancel(run=run, acting_user=user_create("olga"))
    assert shares(study)[run.pk].used == pytest.approx(used.max())


RECORDS = int(os.environ.get("IPATE_RECORDS", "30000"))
#: Memory for blocks, loaded libraries and a student.
BLOCKS = 400 << 20
COLUMNS, POINTS, HOLDERS, ME = 100, 300, 12, "p-005"
WIDE = TabularSchema(tuple(NumericColumn(f"n{place}", 0, 1) for place in range(COLUMNS)), ("a", "b", "c"))
#: Everybody is near every point, which gives the largest possible number of pairs.
METHODS = {
    "neighbours": ASKING_RUN | {"choices": {"sigma": 10.0, "radius_share": 1.0}, "batch_size": POINTS},
    "individual steps": STEPS_RUN,
    "steps over samples": SAMPLED_RUN,
    "teachers": TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 200.0}, "batch_size": POINTS},
}


def wide_rows(number: int, holders: list[str] | None = None) -> Rows:
    """Return rows whose first number determines the class."""
    plain = table_rows(number)
    assert plain.y is not None
    x = np.tile(plain.x[:, :1], COLUMNS)
    x[:, 1:] *= np.random.default_rng(number).random((number, 1), np.float32)
    return Rows(x, plain.y, holders)


def study_with(mine: int, *, later: int = 0, slug: str = "many") -> Study:
    """Return a study of a dozen people with two records each.

    One more person has ``mine`` records between those of the others, and ``later`` records at the end.
    """
    study = study_open(slug, delta=1e-4, retain_votes=True)
    others = [f"p-{place:03}" for place in range(HOLDERS)]
    owners = [*others, *[ME] * mine, *others]
    rows, more = wide_rows(len(owners), owners), wide_rows(later, [ME] * later)
    if later:
        assert rows.y is not None and more.y is not None
        rows = Rows(np.concatenate([rows.x, 1 - more.x]), np.concatenate([rows.y, more.y]), [*owners, *[ME] * later])
    parts = {"private": rows, "public": wide_rows(POINTS), "test": wide_rows(21)}
    return study_fill(study, parts, schema=WIDE, levels="HAL")


@contextmanager
def memory_of(number: int) -> Iterator[None]:
    """Check that the process needs at most this many bytes in addition to what it uses already."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    used = 1024 * int(status.split("VmData:")[1].split()[0])
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="needs memory limits of Linux")
@pytest.mark.parametrize("method", METHODS)
def test_one_persons_records_need_no_memory_beyond_themselves(method: str, settings: Any) -> None:
    """In addition to the records themselves, only blocks of them are in memory."""
    settings.MOST_RECORDS = RECORDS + 2
    study = study_with(RECORDS)
    run = run_start(study, **METHODS[method])
    with memory_of(BLOCKS + 4 * (4 * COLUMNS * RECORDS)):
        run = run_finish(run)
        assert run.status == Run.Status.FINISHED, run.message
        assert_whole(run)
    assert pk_of(study, ME) in charges_of(Release.objects.get(run=run.pk, batch=0)).holders


@pytest.mark.parametrize("method", ["neighbours", pytest.param("individual steps", marks=pytest.mark.exhaustive)])
def test_records_beyond_the_public_number_change_nothing(method, settings, exact) -> None:
    """Everybody is asked and charged as if a person's 40 records above the limit did not exist."""
    settings.MOST_RECORDS = 10
    reports = []
    for later in (0, 40):
        study = study_with(8, later=later, slug=f"later-{later}")
        run = batch_ask(run_start(study, **METHODS[method]))
        private = records_load(study.datasets.get(kind="private"))
        assert private["holder"].tolist().count(pk_of(study, ME)) == 10
        charged = charges_of(Release.objects.get(run=run.pk, batch=0)).spent.tolist()
        reports.append((said(run), charged, private["x"].tolist(), private["y"].tolist()))
    assert reports[0] == reports[1]


def test_which_records_are_kept_depends_on_the_holder_only(settings: Any) -> None:
    """The first records of each person in the order of the file are kept, regardless of the records in between."""
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
    """Return the releases of a run so far."""
    if run.queries.exists():
        return list(run.queries.order_by("pk").values_list("row", "label", "counts"))
    return arrays_load(run.batches.get().released)["sums"].tolist()
