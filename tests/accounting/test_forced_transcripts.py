"""If two worlds differ in one person and release the same, all public data is equal and differences are charged.

Section 7 of the guarantee. The histories run through the real database, services and teachers; see
:mod:`tests.accounting.forced`. "I" is the person who exists in only one of the worlds.
"""

import ast
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from accounting.accounts import balances
from accounting.caps import caps_of
from consent.models import Level
from consent.selectors import LEVELS, consent_snapshot
from learning.mechanisms.counts.table_plan import Places, number_of_cells
from learning.mechanisms.counts.tables import PERSON, CountsQuestion
from learning.mechanisms.pate import LEFT_OUT
from learning.mechanisms.protocol import People, Records
from tests.accounting.forced import OTHERS, Step, World, differences, loss_and_charge, world_play
from training.engine import asking, commits, questions
from training.engine import budgets as planning
from training.engine.questions import Released
from training.methods import pate_teachers
from training.methods.sampled_steps import SampledGradients
from training.models import Run
from training.services import drawings

pytestmark = pytest.mark.django_db

CONFIDENT = {"name": "confident_gnmax", "sigma": 10.0, "sigma_threshold": 14.0, "threshold": 2.0}
QUIET = {"name": "gnmax", "sigma": 14.0}
LNMAX = {"name": "lnmax", "gamma": 0.02}
#: A run of each method: teachers with labels and with counts, every holder, gradient steps, sampled steps (everybody is
#: drawn in each, so one step reveals all that is charged), tables of counts, synthetic rows, and steps after counts.
METHODS: dict[str, dict[str, Any]] = {
    "teachers": {},
    "counts of teachers": {"aggregator": {"name": "noisy_counts", "sigma": 10.0}},
    "choices": {"choices": {"rounds": 2}},
    **{name: {name: {}} for name in ("steps", "samples", "table", "rows", "counted")},
}


#: Methods that share little with each other, for every suite.
DAILY = ("teachers", "table")


def script(text: str) -> list[Step]:
    """Return the steps of a history: their names, each with its arguments, between semicolons."""

    def value(word: str) -> Any:
        return word if word.isupper() else ast.literal_eval(word)

    steps = (step.split() for step in text.split(";"))
    return [(name, *map(value, arguments)) for name, *arguments in steps]


def run_of(share: float = 0.5, then: str = "open; finish", /, **fields: Any) -> list[Step]:
    """Return an approved run and what happens while it is in progress, by default nothing."""
    return [("approve", share, fields), *script(then)]


def both(history: list[Step], *, chunks: int = 20, **fields: Any) -> tuple[World, World]:
    ours, theirs = (world_play(history, with_me=with_me, chunks=chunks, **fields) for with_me in (True, False))
    return ours, theirs


def paid(history: list[Step], **fields: Any) -> tuple[World, World]:
    """Play ``history`` in both worlds: nothing public may depend on me, and every release must be charged."""
    ours, theirs = both(history, **fields)
    assert differences(ours, theirs) == []
    charges, charged = loss_and_charge(ours, theirs)
    assert 0 < charges <= charged * (1 + 1e-9)
    return ours, theirs


#: Events during a run of any method.
TROUBLES = {
    "leaving": "open; attempt; i_withdraw; vote; vote; i_give AVERAGE; attempt; i_withdraw; i_give AVERAGE; finish; "
    "i_withdraw",
    "dying": "crash_while_opening; open; attempt; crash False; crash True; redeliver; crash True; attempt; redeliver; "
    "finish",
    "levels": "open; attempt; i_give HIGH; other_gives 2 HIGH; vote; attempt; i_give LOW; vote; finish",
    "counts and policies": "draw_counts; open; attempt; other_withdraws 3; draw_counts; vote; attempt; "
    "policy 0.8 1.5 2.5; vote; policy 1.2 2.2 3.2; i_give AVERAGE; finish; draw_counts",
    "others": "train; other_withdraws 1; open; vote; other_withdraws 2; other_gives 4 HIGH; attempt; crash True; vote; "
    "i_withdraw; finish; other_gives 1 LOW",
}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(fields, id=name, marks=[] if name in DAILY else [pytest.mark.exhaustive])
        for name, fields in METHODS.items()
    ],
)
def test_each_method_releases_nothing_about_one_holder_that_was_not_charged(fields: dict[str, Any]) -> None:
    """A worker dies, I choose a stricter level, leave and return, each between my answer and its release."""
    then = "open; attempt; crash True; i_give HIGH; vote; attempt; i_withdraw; vote; i_give LOW; finish; draw_counts"
    paid(run_of(0.5, then, **fields), chunks=2)


HISTORIES: dict[str, list[Step]] = {
    "answers to check questions that are counted between runs": [
        *script("i_answer 0b1111 0b0101; other_answers 1 0b0011 0b0001; count_answers"),
        *run_of(0.4),
        *script("i_answer 0b1111 0b1111; count_answers; draw_counts; i_withdraw"),  # counted already
        *script("i_answer 0b0110 0b0010; i_give LOW; i_answer 0b1001 0b0001; count_answers"),
        *run_of(0.4),
    ],
    "who withdraws in mid-vote is charged to the end": [
        *run_of(0.5, "open; vote; i_withdraw; finish; i_give LOW"),
        *run_of(0.5),
    ],
    "two runs, the second by what the first released": [*run_of(0.4), *run_of(0.6, batch_size=7)],
    "upsampling, with a check as well": [
        *run_of(0.5, variant="upsampling", aggregator={"name": "gnmax", "sigma": 16.0}),
        *run_of(0.5, variant="upsampling", aggregator=CONFIDENT | {"sigma": 20.0}),
    ],
    "everyone under one ε, Laplace noise": run_of(1.0, variant="standard", aggregator=LNMAX, batch_size=1),
    "a check before each label": [
        *run_of(0.5, aggregator=CONFIDENT, batch_size=4),
        *run_of(0.5, aggregator=CONFIDENT, on_exhausted="retire", weight_scheme="proportional"),
    ],
    "teachers who take part in some of the votes": [
        *run_of(0.5, "open; vote; i_withdraw; finish; i_give LOW", variant="vanishing", aggregator=QUIET),
        *run_of(0.5, variant="vanishing", aggregator=CONFIDENT | {"sigma": 20.0}, on_exhausted="retire"),
    ],
    "who withdraws while teachers learn, or returns": [
        *run_of(0.5, "train; i_withdraw; i_give AVERAGE; open; finish"),
        *run_of(0.2, "i_withdraw; open; finish; i_give LOW", variant="upsampling"),
        *run_of(0.3),
    ],
    "two runs beside each other, one of which is cancelled": [
        ("approve", 0.5, {}),
        *run_of(0.5, "train; i_withdraw; open; vote; cancel; i_give AVERAGE; open; finish", batch_size=2),
        *run_of(0.2),
    ],
    "runs of both methods beside each other, one of which is cancelled": [
        ("approve", 0.3, {}),
        ("approve", 0.3, {"choices": {}}),
        ("approve", 0.3, {"choices": {}, "batch_size": 7}),
        *script("open; vote; finish; open; attempt; cancel; open; finish"),
    ],
    "runs of all methods, one after the other": [
        *run_of(0.1),
        *run_of(0.2, choices={"rounds": 2, "first_queries": 4, "kernel": "epanechnikov"}),
        *run_of(0.1, table={"column": "class", "weighing": "alike"}),
        *run_of(0.2, steps={"sigma": 3.0, "steps": 9}),
        *run_of(0.1, table={"column": "width", "across": "class", "bins": 7}),
        *run_of(0.2, samples={"network": "mlp", "publish": "model"}),
        *run_of(0.1),
    ],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HISTORIES)
def test_nothing_public_depends_on_one_holder_and_every_release_is_charged(name: str) -> None:
    ours, theirs = paid(HISTORIES[name], chunks=(1, 2, 4)[list(HISTORIES).index(name) % 3])
    assert loss_and_charge(ours, theirs)[1] <= caps_of(3.0, 1e-4)


DAILY_TROUBLE = ("leaving", "choices")

#: Two runs are approved. Workers get the messages about them, at the end the newest first.
QUEUED = {
    "no room": "i_give LOW; approve 0.5 {}; open; finish; forget; i_give HIGH; approve 0.3 {}; work 3; "
    "approve 0.2 {'choices':{}}; work",
    "leaving": "approve 0.3 {}; work 2; i_withdraw; approve 0.2 {'choices':{}}; work",
}


@pytest.mark.parametrize("name", [pytest.param("no room", marks=pytest.mark.exhaustive), "leaving"])
def test_one_holder_does_not_change_the_order_of_two_runs(name: str) -> None:
    """The order determines up to which share of their caps everybody may be charged."""
    ours, theirs = both(script(QUEUED[name]), chunks=2)
    assert differences(ours, theirs) == []
    used = [subject for subject, _purpose, kind, *_rest in ours.views[-1]["shares"] if kind == "settled"]
    assert used == sorted(used) and len(used) >= 2, "both runs have spent, in the order of their approval"


@pytest.mark.parametrize(
    ("trouble", "method"),
    [
        pytest.param(trouble, method, marks=[pytest.mark.exhaustive] if (trouble, method) != DAILY_TROUBLE else [])
        for method in ("teachers", "choices", "steps", "samples", "table")
        for trouble in TROUBLES
    ],
)
def test_events_during_a_run_of_any_method_reveal_no_holder(trouble: str, method: str) -> None:
    """Afterwards, another run follows with me; if I have left, one without me comes before it."""
    fields = METHODS[method]
    later = run_of(0.2, **fields)
    without_me = later if trouble in ("leaving", "others") else []
    paid([*run_of(0.5, TROUBLES[trouble], **fields), *without_me, ("i_give", "LOW"), *later], chunks=3)


@pytest.mark.parametrize(
    "fields",
    [
        {"variant": "standard"},
        *(
            pytest.param(fields, marks=pytest.mark.exhaustive)
            for fields in ({"variant": "vanishing"}, {"choices": {"radius_share": 0.05}})
        ),
    ],
    ids=["teacher", "some teachers", "choices"],
)
def test_the_comparison_is_tight(fields: dict[str, Any]) -> None:
    """My teacher predicts my class, and my records near a query have one class, so every charge reveals something."""
    charges, charged = loss_and_charge(*both(run_of(1.0, **fields)))
    assert charges == pytest.approx(charged)


@pytest.mark.exhaustive
def test_missing_vote_does_not_reveal_the_only_holder_of_a_teacher() -> None:
    history = run_of(1.0, "open; vote; i_withdraw; finish")
    ours, _theirs = paid(history, levels="ALLALLALLALL", my_level="HIGH", counts=(4, 4, 8))
    assert len(ours.taught[0]["mine"]) == 1
    assert not (ours.taught[0]["others"][1] == ours.taught[0]["mine"]).any(), "alone"


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["AVERAGE", "LOW"])
def test_events_of_others_do_not_reveal_the_only_holder_asked(level: str) -> None:
    """Drawing head counts charges only me. People who join in the meantime are asked from the next batch on."""
    history = run_of(0.5, "open; attempt; other_gives 0 LOW; draw_counts; vote; finish", choices={})
    paid(history, levels="-" * 12, my_level=level)


@pytest.mark.exhaustive
def test_holder_who_is_copied_into_teachers_of_another_group_is_charged_for_all_of_them() -> None:
    history = run_of(1.0, "open; vote; i_withdraw; finish", small_groups="copy")
    ours, _theirs = paid(history, levels="HHHHHHHHHHAA", my_level="LOW", counts=(10, 2, 1))
    assert len(ours.taught[0]["mine"]) == 2


@pytest.mark.exhaustive
def test_empty_study_does_not_reveal_its_only_holder() -> None:
    ours, theirs = both([("draw_counts",), *run_of(0.5), *run_of(0.4, choices={})], levels="-" * 12)
    assert theirs.views[-1]["runs"][-1]["status"] == "finished"
    assert differences(ours, theirs) == []


levels = st.sampled_from(Level.values)
PROPOSALS: list[dict[str, Any]] = [
    {"batch_size": 1},
    {"batch_size": 7, "variant": "standard", "aggregator": LNMAX, "wanted_labels": 4},
    {"batch_size": 3, "variant": "upsampling", "aggregator": CONFIDENT, "on_exhausted": "retire"},
    {"batch_size": 3, "aggregator": QUIET, "small_groups": "leave_out"},
    {"batch_size": 2, "choices": {"rounds": 3, "kernel": "epanechnikov"}},
    {"batch_size": 7, "choices": {"rounds": 1, "sigma": 3.0}, "wanted_labels": 4},
    {"batch_size": 2, "steps": {"sigma": 2.0, "clip_norm": 2.0}},
    {"batch_size": 7, "steps": {}},
    {"batch_size": 2, "samples": {"network": "mlp"}},
    {"batch_size": 7, "samples": {"steps": 3}},
    {"table": {"column": "class", "across": "width"}},
    {"table": {"column": "length", "weighing": "alike"}},
    {"rows": {"bins": 2}},
    {"counted": {"sigma": 2.0}},
]
masks = st.integers(0, 15)
answered = st.tuples(st.just("i_answer"), masks, masks)
mine = st.one_of(st.tuples(st.just("i_give"), levels), st.sampled_from(script("i_withdraw; i_keep")), answered)
theirs = st.one_of(
    st.tuples(st.just("other_gives"), st.integers(0, 11), levels),
    st.tuples(st.just("other_withdraws"), st.integers(0, 11)),
    st.sampled_from(script("policy 0.9 1.8 2.5; policy 1.0 2.0 3.0; draw_counts; count_answers")),
)
work = st.sampled_from(script("train; open; vote; attempt; crash True; crash False; redeliver; finish"))
rounds = st.tuples(
    st.tuples(st.just("approve"), st.sampled_from([0.2, 0.4, 0.5]), st.sampled_from(PROPOSALS)),
    st.one_of(mine, theirs, work),
    st.just(("open",)),
    st.one_of(mine, work),
    st.sampled_from([("vote",), ("attempt",)]),
    st.one_of(mine, theirs),
    st.one_of(work, st.just(("cancel",))),
    st.just(("finish",)),
)


@pytest.mark.exhaustive
@settings(max_examples=4, phases=(Phase.generate,))
@given(st.lists(rounds, min_size=1, max_size=3), levels, st.sampled_from([1, 3, 7]))
def test_nothing_public_follows_from_one_holder_in_any_history(rounds: list[Any], my_level: str, chunks: int) -> None:
    history = [step for steps in rounds for step in steps]
    ours, theirs = both(history, chunks=chunks, my_level=my_level)
    assert differences(ours, theirs) == []


def plan_by_accounts(patch: pytest.MonkeyPatch, world: World) -> None:
    """Plan group sizes from people with remaining budget."""

    def counted(run: Run) -> list[tuple[str, str, float, int]]:
        snapshot = consent_snapshot(run.study)
        left = balances(run.study).of(snapshot.holders) < caps_of(snapshot.epsilons, run.study.delta)
        sizes = [int((left & (snapshot.levels == place)).sum()) for place in range(3)]
        return [(level, level, place + 1.0, sizes[place]) for place, level in enumerate(LEVELS)]

    patch.setattr(planning, "_counted", counted)


def partition_by_permutation(patch: pytest.MonkeyPatch, world: World) -> None:
    """Assign holders to teachers in turn."""

    def assign(plan: Any, holders: Any, group_of: Any, key: bytes, progress: Any) -> tuple[np.ndarray, np.ndarray]:
        order = np.random.default_rng(int.from_bytes(key[:4])).permutation(np.flatnonzero(group_of != LEFT_OUT))
        turn = np.arange(len(order))
        own = [np.flatnonzero(plan.members(index)) for index in range(len(plan.groups))]
        teachers = [own[group][place % len(own[group])] for place, group in zip(turn, group_of[order], strict=True)]
        return order, np.array(teachers)

    patch.setattr(pate_teachers, "assign_keyed", assign)


def release_before_the_commit(patch: pytest.MonkeyPatch, world: World) -> None:
    """Reveal results while the transaction that charges for them can still fail."""
    real = asking.batch_commit

    def commit(run: Run, released: Released, *rest: Any, **about: Any) -> None:
        world.leaked = released.size
        real(run, released, *rest, **about)

    patch.setattr(asking, "batch_commit", commit)


def count_without_charge(patch: pytest.MonkeyPatch, world: World) -> None:
    real = drawings.release_record
    patch.setattr(drawings, "release_record", lambda **fields: real(**fields | {"holders": None, "charges": None}))


def attempt_kept(patch: pytest.MonkeyPatch, world: World) -> None:
    """Release what holders answered, even if they have left since."""
    patch.setattr(questions, "attempt_renew", lambda run, people_now: None)


def earlier_rounds_forgotten(patch: pytest.MonkeyPatch, world: World) -> None:
    """Let each round begin with the whole cap."""
    real, record = questions.participants, commits.release_record
    patch.setattr(questions, "account_balances", lambda study, holders: np.zeros(len(holders)))

    def participants(run: Run) -> People:
        people = real(run)
        return dataclasses.replace(people, limits=np.full(len(people.limits), 0.3), spent=0.0 * people.spent)

    patch.setattr(questions, "participants", participants)
    patch.setattr(commits, "release_record", lambda **fields: record(**fields | {"limits": None}))


def records_counted(patch: pytest.MonkeyPatch, world: World) -> None:
    """Count every record of a person in full, and charge one of them."""
    real = CountsQuestion.contributions

    def contributions(self: CountsQuestion, people: People, records: Records) -> Any:
        weights = np.floor(self.plan.weights(people.caps)[records.owner] * PERSON)
        places = Places(records)
        sums = [np.bincount(places.cells(each), weights, number_of_cells(each)) for each in self.tables]
        return np.concatenate(sums).astype(np.int64), real(self, people, records)[1]

    patch.setattr(CountsQuestion, "contributions", contributions)


def takes_part_without_room(patch: pytest.MonkeyPatch, world: World) -> None:
    """Charge and draw people whose remaining budget is less than the run costs."""
    real, record = SampledGradients.people, commits.release_record

    def people_of(self: SampledGradients, run: Run) -> People:
        people = questions.participants(run)
        with pytest.MonkeyPatch.context() as free:
            free.setattr(questions, "participants", lambda _run: dataclasses.replace(people, spent=0.0 * people.spent))
            kept = np.isin(people.holders, real(self, run).holders)
        return people.of(kept)

    patch.setattr(SampledGradients, "people", people_of)
    patch.setattr(commits, "release_record", lambda **fields: record(**fields | {"limits": None}))


STAYS_AND_LEAVES = "open; attempt; i_withdraw; vote"
DIES = "open; crash True; vote"
#: Faults, each with a history in which the comparison finds it, one for each check; quick ones come first.
#: `benchmarks.planted_faults` plants other faults in the code itself.
PLANTS: list[tuple[Any, list[Step], str]] = [
    (count_without_charge, [("draw_counts",)], "but 0 was charged"),
    (release_before_the_commit, run_of(1.0, DIES, choices={"sigma": 20.0}), "was charged"),
    (attempt_kept, run_of(1.0, STAYS_AND_LEAVES, table={}), "someone contributed after leaving"),
    (records_counted, run_of(0.5, table={"column": "class"}), "was charged"),
    (plan_by_accounts, run_of(1.0), "public runs differ"),
    (partition_by_permutation, run_of(1.0), "others are in different teachers"),
    (release_before_the_commit, run_of(1.0, DIES), "was charged"),
    (attempt_kept, run_of(1.0, STAYS_AND_LEAVES, choices={"sigma": 5.0}), "someone contributed after leaving"),
    (attempt_kept, run_of(1.0, STAYS_AND_LEAVES, steps={}), "someone contributed after leaving"),
    (
        attempt_kept,
        run_of(1.0, "open; vote; attempt; i_withdraw; vote", samples={}),
        "someone contributed after leaving",
    ),
    (
        takes_part_without_room,
        [*run_of(0.6, samples={}), ("i_give", "HIGH"), *run_of(0.4, samples={})],
        "of the promise in force",
    ),
    (records_counted, run_of(0.5, rows={}), "was charged"),
    (records_counted, run_of(0.5, counted={}), "was charged"),
    (
        earlier_rounds_forgotten,
        run_of(1.0, choices={"sigma": 3.0, "radius_share": 0.5, "rounds": 2, "first_queries": 4}),
        "more than an ε of",
    ),
]
QUICK = 5


@pytest.mark.parametrize(
    ("plant", "history", "fault"),
    [
        pytest.param(*row, marks=[pytest.mark.exhaustive][place < QUICK :], id=row[0].__name__)
        for place, row in enumerate(PLANTS)
    ],
)
def test_a_planted_fault_is_found(plant: Any, history: list[Step], fault: str) -> None:
    found = differences(*both(history, chunks=3, plant=plant, levels=OTHERS))
    assert any(fault in each for each in found), found
