"""One history in two worlds, with and without one holder, in which all releases are the same.

The noise is replaced so that noisy numbers equal predetermined ones. Then everything public must be the same bit for
bit, and the exact numbers may differ by no more than the one holder was charged for (section 7 of the guarantee).
Nothing here uses the application's charges: the cost of a difference is computed independently.
"""

import contextlib
import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from scipy.stats import norm

from accounting.accounts import balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release, ShareRecord
from accounting.verification import study_faults
from common import jobs
from common.artifacts import arrays_load, model_fetch
from consent import services
from consent.models import DataHolder, Study
from consent.promises.questions import KEYS
from consent.selectors import consent_form_in_force, consent_snapshot, promise_last
from learning.formats import ImageSchema, Rows
from learning.mechanisms.protocol import PlanError
from learning.published import published_load
from tests import factories
from tests.snapshots import built_once
from tests.training.asking import (
    ASKING_RUN,
    COUNTED_STEPS_RUN,
    COUNTS_RUN,
    SAMPLED_RUN,
    STEPS_RUN,
    SYNTHESIS_RUN,
    asking_of,
    vote_batch,
)
from tests.training.runs import TABLE, run_approve, run_draft, table_rows
from training import tasks
from training.engine import commits
from training.engine import questions as engine_questions
from training.methods import method_of, pate_teachers
from training.methods.counts import TableCells
from training.methods.neighbours import Votes
from training.methods.pate_teachers import predictions_load, vote_open
from training.methods.steps import GradientQuestions
from training.methods.synthesis import MarginalCells
from training.models import Batch, Query, Round, Run, RunResult, StudentModel
from training.services import drawings
from training.services import runs as run_commands
from training.services.advance import chunk_train, shard_ask, step_of
from training.services.datasets import dataset_import
from training.services.drawings import check_answers_count, head_counts_draw, head_counts_enter
from training.verification import release_faults

#: Other participants, by first decision.
OTHERS = "HALHALHALHAL"
POINTS = 10
PICTURES = ImageSchema(8, 8, 3, ("red", "blue"))
FIRST_ID = 5_000_000
#: Position of the one holder among the pseudonyms: in the middle, so that others precede and follow in every order.
ME = 5
#: Noise of head counts is smaller, and that of gradient steps larger.
_LARGEST_OF_COUNTS = 1e4
LEVELS = {"H": "HIGH", "A": "AVERAGE", "L": "LOW"}

Step = tuple[Any, ...]


class Crash(Exception):
    """Simulates the death of the process."""


class Forced:
    """Noise that produces the noisy numbers ``target``, and stores the exact ones."""

    __array_ufunc__ = None

    def __init__(self, draws: list["Draw"], kind: str, scale: float, target: np.ndarray) -> None:
        self._draws, self._kind, self._scale, self._target = draws, kind, scale, target

    def __radd__(self, exact: np.ndarray) -> np.ndarray:
        self._draws.append(Draw(self._kind, self._scale, np.array(exact, dtype=np.float64), self._target))
        return self._target


@dataclass(frozen=True, eq=False)
class Draw:
    """Exact numbers, the scale of the noise that should have hidden them, and the released noisy numbers."""

    kind: str
    scale: float
    exact: np.ndarray
    noisy: np.ndarray

    def of(self, rows: Any) -> "Draw":
        return Draw(self.kind, self.scale, self.exact[rows], self.noisy[rows])

    @property
    def public(self) -> tuple[str, float, list[float]]:
        return self.kind, self.scale, self.noisy.tolist()


@dataclass(eq=False)
class ForcedNoise:
    """Noise that makes releases depend only on the number of earlier releases."""

    draws: list[Draw]
    is_simulation = False
    drawn: int = 0

    def _rng(self, kind: int) -> np.random.Generator:
        self.drawn += 1
        return np.random.default_rng([kind, Batch.objects.count(), self.drawn])

    def normal(self, scale: float, shape: Any) -> Any:
        rng = self._rng(7)
        if len(shape) == 1:  # a check: passed or failed by a wide margin
            return Forced(self.draws, "check", scale, np.where(rng.random(shape) < 0.7, 1e9, -1e9))
        return Forced(self.draws, "gaussian", scale, rng.normal(size=shape))

    def laplace(self, scale: float, shape: Any) -> Any:
        rng = self._rng(8)
        return Forced(self.draws, "laplace", scale, rng.normal(size=shape))

    def rounded_normal(self, scale: float, shape: Any) -> Any:
        rng = self._rng(9)
        if scale < _LARGEST_OF_COUNTS:
            return Forced(self.draws, "head counts", scale, rng.integers(3, 9, size=shape))
        return Forced(self.draws, "steps", scale, np.rint(scale * rng.normal(size=shape)).astype(np.int64))


@built_once
def base_study(with_me: bool, levels: str, my_level: str, pictures: bool = False) -> Study:
    """Return a world's initial study: three datasets of a table or pictures, and everybody's first decision."""
    study = factories.study_open("forced", delta=1e-4, retain_votes=True)
    places = [place for place in range(len(levels) + 1) if with_me or place != ME]
    people = [DataHolder(pk=FIRST_ID + place, study=study, pseudonym=f"p-{place:02}") for place in places]
    DataHolder.objects.bulk_create(people)
    schema, drawn = (PICTURES, picture_rows) if pictures else (TABLE, table_rows)
    rows = (_picture_records if pictures else _records)(places, 2 * (len(levels) + 1))
    dataset_import(study=study, name="private", kind="private", rows=rows, schema=schema)
    for kind, number in (("public", POINTS), ("test", 6)):
        dataset_import(study=study, name=kind, kind=kind, rows=drawn(number), schema=schema)
    letters = iter(levels)
    for place in range(len(levels) + 1):
        letter = my_level[0] if place == ME else next(letters)
        if place in places and letter != "-":
            decide(study, place, LEVELS[letter])
    return study


def _records(places: list[int], number: int) -> Rows:
    """Return two records each; the one holder has all public points, with classes that mislead their teacher."""
    public, others = table_rows(POINTS), table_rows(number)
    assert public.y is not None and others.y is not None
    x, y, owners = [], [], []
    for place in places:
        own = slice(2 * place, 2 * place + 2)
        x.append(public.x if place == ME else others.x[own])
        y.append((public.y + 1) % 3 if place == ME else others.y[own])
        owners += [f"p-{place:02}"] * len(x[-1])
    return Rows(np.concatenate(x), np.concatenate(y), owners)


def picture_rows(number: int) -> Rows:
    """Return reddish and bluish pictures, none of them white."""
    rng, classes = np.random.default_rng(number), np.arange(number) % 2
    x = rng.integers(0, 120, (number, 8, 8, 3))
    x[np.arange(number), :, :, 2 * classes] += 120
    return Rows(x.astype(np.uint8), classes.astype(np.int64))


def _picture_records(places: list[int], number: int) -> Rows:
    """Return two pictures each; those of the one holder are white."""
    drawn = picture_rows(number)
    drawn.x[2 * ME : 2 * ME + 2] = 255
    assert drawn.y is not None
    kept = [2 * place + each for place in places for each in (0, 1)]
    return Rows(drawn.x[kept], drawn.y[kept], [f"p-{each // 2:02}" for each in kept])


def decide(study: Study, place: int, level: str) -> None:
    """Let the holder at ``place`` agree to a level on the newest form."""
    factories.decide(DataHolder.objects.get(pk=FIRST_ID + place), level)


@dataclass(eq=False)
class World:
    """A study with a history; ``with_me`` says whether the one holder exists."""

    with_me: bool
    levels: str = OTHERS
    my_level: str = "AVERAGE"
    pictures: bool = False
    counts: tuple[int, int, int] = (4, 5, 4)
    draws: list[Draw] = field(default_factory=list)
    seen: list[list[Draw]] = field(default_factory=list)
    absent: list[bool] = field(default_factory=list)
    views: list[dict[str, Any]] = field(default_factory=list)
    accounts: list[dict[int, float]] = field(default_factory=list)
    releases_seen: list[int] = field(default_factory=list)
    taught: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    leaked: int = 0
    promised: float = 0.0
    #: For each view: what the one holder has been charged for later steps, and the cap in force if holders are asked.
    ahead: list[float] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)
    #: For the workers: tasks and ids.
    messages: deque[tuple[str, str]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.study = base_study(self.with_me, self.levels, self.my_level, self.pictures)
        self.olga = factories.user_create("olga")
        if self.with_me:
            self._promise_note()
        counts = dict(zip(("HIGH", "AVERAGE", "LOW"), self.counts, strict=True))
        head_counts_enter(study=self.study, acting_user=self.olga, counts=counts)

    # --- Actions ---

    def play(self, history: list[Step]) -> "World":
        for name, *arguments in history:
            getattr(self, name)(*arguments)
            self._look()
        return self

    def _give(self, place: int, level: str) -> None:
        decide(self.study, place, level)
        if place == ME:
            self._promise_note()

    def _promise_note(self) -> None:
        epsilons = consent_snapshot(self.study, among=np.array([FIRST_ID + ME])).epsilons
        self.promised = max(self.promised, *epsilons.tolist())

    def _withdraw(self, place: int) -> None:
        try:
            services.consent_withdraw(holder=DataHolder.objects.get(pk=FIRST_ID + place), acting_user=None)
        except ValidationError:
            return

    def i_give(self, level: str) -> None:
        if self.with_me:
            self._give(ME, level)

    def i_keep(self) -> None:
        """Keep the last promise, if there is one."""
        if self.with_me:
            me = DataHolder.objects.get(pk=FIRST_ID + ME)
            last = promise_last(me)
            if last is not None:
                form = consent_form_in_force(self.study)
                services.consent_keep(holder=me, epsilon=last.epsilon, form=form, acting_user=None)

    def i_withdraw(self) -> None:
        if self.with_me:
            self._withdraw(ME)

    def other_gives(self, place: int, level: str) -> None:
        self._give(place + (place >= ME), level)

    def other_withdraws(self, place: int) -> None:
        self._withdraw(place + (place >= ME))

    def policy(self, *epsilons: float) -> None:
        factories.policy_approve(self.study, *epsilons)

    def i_answer(self, answered: int, right: int) -> None:
        """Open first answers to the check questions, given as bit masks of opened and of correct answers."""
        if self.with_me:
            self._answers(ME, answered, right)

    def other_answers(self, place: int, answered: int, right: int) -> None:
        self._answers(place + (place >= ME), answered, right)

    def _answers(self, place: int, answered: int, right: int) -> None:
        holder, form = DataHolder.objects.get(pk=FIRST_ID + place), consent_form_in_force(self.study)
        for question in range(len(KEYS)):
            if answered >> question & 1:
                services.check_answer_keep(holder=holder, form=form, place=question, right=bool(right >> question & 1))

    def count_answers(self) -> None:
        self._draw(check_answers_count)

    def draw_counts(self) -> None:
        self._draw(head_counts_draw)

    def _draw(self, draw: Callable[..., object]) -> None:
        before = len(self.draws)
        try:
            with transaction.atomic():
                draw(study=self.study, acting_user=self.olga, noise=ForcedNoise(self.draws))
        except ValidationError as error:
            self.events.append(str(error))
            return
        self.seen.append(self.draws[before:])
        self.absent.append(False)

    def approve(self, share: float, fields: dict[str, Any]) -> None:
        """Propose and approve a run; σ depends on every label released so far, as an adversary would choose it."""
        labels = sum(label or 0 for label in Query.objects.order_by("pk").values_list("label", flat=True))
        recipes: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            "choices": (ASKING_RUN, {"sigma": 5.0 + labels % 3, "radius_share": 0.3}),
            "samples": (SAMPLED_RUN, {"steps": 7, "expected": 1e6, "clip_norm": 0.3 + 0.1 * (labels % 3)}),
            "table": (COUNTS_RUN, {"column": "length", "bins": 3 + labels % 3}),
            "rows": (SYNTHESIS_RUN, {"rows": 100, "bins": 3 + labels % 3}),
            "steps": (STEPS_RUN, {"sigma": 5.0 + labels % 3, "steps": 7}),
            "counted": (COUNTED_STEPS_RUN, {"sigma": 5.0 + labels % 3, "steps": 7}),
        }
        chosen: dict[str, Any] = {"teachers": 4, "learner_parameters": {}, "batch_size": 3}
        chosen |= {"aggregator": {"name": "gnmax", "sigma": 9.0 + labels % 5}, **fields}
        for name in recipes.keys() & fields.keys():
            recipe, choices = recipes[name]
            rest = {other: value for other, value in fields.items() if other != name}
            size = {} if name in ("table", "rows") else {"batch_size": 3}
            chosen = recipe | size | rest | {"choices": choices | fields[name]}
        try:
            with transaction.atomic():
                run = run_draft(self.study, **chosen)
                run_approve(run=run, acting_user=self.olga, share=share)
        except (PlanError, ValidationError) as error:
            self.events.append(f"refused: {error}")

    def _run(self) -> Run | None:
        runs = Run.objects.filter(study=self.study).order_by("created_at")
        return runs.filter(status=Run.Status.ASKING).first() or runs.filter(status__in=Run.ACTIVE).first()

    def train(self) -> None:
        """Train up to the last teacher; the vote is not opened."""
        if (run := self._run()) and run.method == Run.Method.PATE:
            pate_teachers.run_prepare(run)
            for chunk in run.chunks.all():
                chunk_train(chunk.pk)

    def open(self) -> None:
        run = self._run()
        if run and run.method != Run.Method.PATE:
            asking_of(run).open(run)
            return
        while run and run.status in ("approved", "preparing"):
            self.train()
            vote_open(run)
            run.refresh_from_db()
        if run and run.status == "asking":
            assignment = arrays_load(run.assignment)
            kept = assignment["holder"] != FIRST_ID + ME
            self.taught.append(
                {
                    "mine": assignment["teacher"][~kept],
                    "others": [assignment[name][kept] for name in ("holder", "teacher", "group")],
                    "seeds": assignment["seeds"],
                    "predictions": predictions_load(run),
                }
            )

    def work(self, most: int = 1_000) -> None:
        """Let workers handle the ``most`` oldest broker messages or, by default, all messages, newest first."""
        for _message in range(most):
            if not self.messages:
                return
            task, pk = self.messages.popleft() if most < 1_000 else self.messages.pop()
            getattr(tasks, task)(pk)
        assert most < 1_000, "messages keep increasing"

    def forget(self) -> None:
        """Lose all of the broker's messages, including those for work that is already done."""
        self.messages.clear()

    def crash_while_opening(self) -> None:
        self.train()
        run = self._run()
        if run and run.status == "preparing":
            with contextlib.suppress(Crash), transaction.atomic():
                vote_open(run)
                raise Crash

    def vote(self, run: Run | None = None) -> None:
        """Vote on one batch; ``run`` may be an outdated copy."""
        run = run or self._run()
        if run is None or run.status != Run.Status.ASKING:
            return
        drawn, committed = len(self.draws), Batch.objects.count()
        self.leaked = 0
        with contextlib.suppress(Crash):
            if run.method == Run.Method.PATE:
                vote_batch(run)
            while self._run() == run and self._asks() and Batch.objects.count() == committed:
                self.attempt()
                asking_of(run).step(run)
        latest = Batch.objects.order_by("pk").last()
        released = latest.size if latest and Batch.objects.count() > committed else 0
        if rows := max(released, self.leaked):
            if run.method in (Run.Method.SGD, Run.Method.COUNTS, Run.Method.SYNTHESIS):
                self.seen.append(self.draws[-rows:])  # a draw for each step or table; discarded draws stay unseen
            else:
                self.seen.append([draw.of(slice(rows)) for draw in self.draws[drawn:]])
            me = consent_snapshot(self.study, among=np.array([FIRST_ID + ME]))
            self.absent.append(run.method != Run.Method.PATE and not len(me))

    def attempt(self) -> None:
        """Ask every shard of a batch without releasing anything."""
        while self._asks() and (run := self._run()) and not run.shards.exists():
            asking_of(run).step(run)
        if self._asks() and (run := self._run()):
            for shard in run.shards.all():
                shard_ask(shard.pk)

    def _asks(self) -> bool:
        run = self._run()
        return run is not None and run.method != Run.Method.PATE and run.status == Run.Status.ASKING

    def crash(self, after: bool) -> None:
        """Process a batch whose worker dies before or after it has written the charges."""
        real = commits.release_record

        def dies(**fields: Any) -> Any:
            if after:
                real(**fields)
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commits, "release_record", dies)
            self.vote()

    def redeliver(self) -> None:
        """Deliver the same message twice: two workers begin with the same row."""
        self.attempt()
        run = self._run()
        if run:
            requests = list(run.shards.all())
            self.vote(Run.objects.get(pk=run.pk))
            self._look()
            for shard in requests:
                shard_ask(shard.pk)
            self.vote(run)

    def finish(self) -> None:
        run = self._run()
        while run and run.status == Run.Status.ASKING:
            self.vote()
            self._look()
            run.refresh_from_db()
        if run and run.status == "learning" and (run.labels or not method_of(run).releases_labels):
            step = step_of(run)
            assert step is not None, "it has something to learn from"
            step(run)

    def cancel(self) -> None:
        if run := self._run():
            run_commands.run_cancel(run=run, acting_user=self.olga)

    def send(self, task: str, *ids: object) -> None:
        """Accept a message for the broker."""
        if task.startswith("training.tasks."):
            self.messages.append((task.rpartition(".")[2], *map(str, ids)))

    # --- Views ---

    def _look(self) -> None:
        now = balances(self.study)
        self.views.append(public_view(self.study) | {"events": list(self.events)})
        self.accounts.append(dict(zip(now.holders.tolist(), now.spent.tolist(), strict=True)))
        self.releases_seen.append(len(self.seen))
        me = FIRST_ID + ME
        paid = Release.objects.filter(study=self.study, content__has_key="slack")
        self.ahead.append(sum(float(charges_of(release).of(np.array([me]))[0]) for release in paid))
        snapshot = consent_snapshot(self.study, among=np.array([me]))
        in_force = float(caps_of(snapshot.epsilons, self.study.delta)[0]) if len(snapshot) else 0.0
        run = self._run()
        self.limits.append(in_force if run is not None and run.method != Run.Method.PATE else None)

    def verify(self) -> None:
        self.faults += study_faults(self.study)
        for run in Run.objects.filter(study=self.study):
            self.faults += release_faults(run)


def public_view(study: Study) -> dict[str, Any]:
    """Return everything that decision-makers can see, with random ids replaced by their order."""
    runs = list(Run.objects.filter(study=study).order_by("created_at"))
    names: dict[Any, str] = {run.pk: f"run {place}" for place, run in enumerate(runs)}
    for subject in ShareRecord.chain(study.pk).values_list("subject", flat=True):
        names.setdefault(subject, f"subject {len(names)}")
    points = arrays_load(study.datasets.get(kind="public", drawn_by=None).artifact, "x")["x"]
    columns = ("status", "variant", "share", "plan", "position", "labels", "stop_reason")
    columns += ("spent", "outcome", "message", "method", "choices")
    rounds = Round.objects.filter(run__study=study).order_by("run__created_at", "index")
    return {
        "runs": [{name: getattr(run, name) for name in columns} for run in runs],
        "shares": [
            (names[row.subject], row.purpose, row.kind, row.share, row.limit) for row in ShareRecord.chain(study.pk)
        ],
        "releases": [
            (row.sequence, row.kind, names.get(row.run), row.batch, _but_digest(row.content), row.charge)
            for row in Release.chain(study.pk)
        ],
        "batches": list(
            Batch.objects.filter(run__study=study)
            .order_by("run__created_at", "index")
            .values_list("index", "start", "size", "labels", "round__index")
        ),
        "queries": list(
            Query.objects.filter(run__study=study)
            .order_by("run__created_at", "row")
            .values_list("batch__index", "row", "label", "counts")
        ),
        "rounds": [(each.index, each.representation, each.size, each.position, _asks(each)) for each in rounds],
        "steps": [
            {name: array.tolist() for name, array in arrays_load(file).items()}
            for file in Batch.objects.filter(run__study=study)
            .exclude(released="")
            .order_by("run__created_at", "index")
            .values_list("released", flat=True)
        ],
        "drawn": list(study.datasets.exclude(drawn_by=None).order_by("pk").values_list("name", "rows", "digest")),
        "head counts": list(study.head_counts.order_by("pk").values_list("level", "epsilon", "count", "sigma")),
        "tables": [
            (result.content, result.digest, {**result.card, "run": ""})
            for result in RunResult.objects.filter(run__study=study).order_by("run__created_at")
        ],
        "students": [
            {**student.card, "run": "", "says": _says(student, points)}
            for student in StudentModel.objects.filter(run__study=study).order_by("run__created_at")
        ],
    }


def _asks(current: Round) -> str:
    """Return the digest of everything that a round asks."""
    return asking_of(current.run).questions.question(current).digest()


def _but_digest(content: dict[str, Any]) -> dict[str, Any]:
    """Return a release without the digests of cards and model files, because these contain the run's id or the time."""
    others = {"card", "digest", "onnx"} if "learner" in content else {"card"}
    return {name: value for name, value in content.items() if name not in others}


def _says(student: StudentModel, points: np.ndarray) -> list[Any]:
    return _predicted(student.learner, model_fetch(student.artifact), points.tobytes(), points.dtype.str, points.shape)


@lru_cache(maxsize=32)
def _predicted(learner: str, model: bytes, points: bytes, kind: str, shape: tuple[int, ...]) -> list[Any]:
    """Return a model's predictions, which every later view requests again."""
    return published_load(learner, model).predict_proba(np.frombuffer(points, kind).reshape(shape)).tolist()


Plant = Callable[[pytest.MonkeyPatch, World], None]
W = TypeVar("W", bound=World)


def world_play(
    history: list[Step],
    *,
    with_me: bool,
    chunks: int,
    plant: Plant | None = None,
    kind: type[W] = World,  # type: ignore[assignment]
    **fields: Any,
) -> W:
    """Return a world of this ``kind`` after ``history``; the database does not keep it.

    Teachers learn in ``chunks`` tasks, and holders are asked in as many, depending on the head counts.
    """
    with pytest.MonkeyPatch.context() as patch, transaction.atomic():
        keys: Iterator[int] = iter(range(1_000))
        patch.setattr(pate_teachers, "token_bytes", lambda size: hashlib.blake2b(bytes([next(keys)])).digest()[:size])
        patch.setattr(pate_teachers, "CHUNKS", chunks)
        world = kind(with_me, **fields)
        for questions in (Votes, GradientQuestions, TableCells, MarginalCells):
            patch.setattr(questions, "shard", math.ceil(sum(world.counts) / chunks))
        patch.setattr(engine_questions, "noise_of", lambda run: ForcedNoise(world.draws))
        patch.setattr(jobs, "send", world.send)
        patch.setattr(drawings, "SystemNoise", lambda: ForcedNoise(world.draws))
        if plant:
            plant(patch, world)
        world.play(history)
        if plant is None:
            world.verify()
        transaction.set_rollback(True)
    return world


def loss(ours: Draw, theirs: Draw) -> float:
    """Return the cost of the difference of two exact answers, in μ², with noise of this scale."""
    difference = ours.exact - theirs.exact
    if ours.kind != "laplace":
        return float((difference**2).sum() / ours.scale**2)
    pure = np.abs(difference).sum(axis=1) / ours.scale
    return float(((2 * norm.ppf(1 / (1 + np.exp(-pure)))) ** 2).sum())


def losses(ours: list[Draw], theirs: list[Draw]) -> float:
    """Return the one holder's loss by one release, in μ²; labels count if the query was answered."""
    total, answered = 0.0, slice(None)
    for draw, other in zip(ours, theirs, strict=True):
        total += loss(draw.of(answered), other.of(answered))
        if draw.kind == "check":
            answered = draw.noisy > 0
    return total


def differences(ours: World, theirs: World) -> list[str]:
    """Return all breaches of the guarantee for the one holder, who exists only in the first world."""
    found = [*(f"with: {fault}" for fault in ours.faults), *(f"without: {fault}" for fault in theirs.faults)]
    if len(ours.views) != len(theirs.views):
        found.append(f"one history has {len(ours.views)} steps, and the other {len(theirs.views)}")
    me = FIRST_ID + ME
    counted, before, credit = 0, 0.0, 0.0
    for step, (mine, other) in enumerate(zip(ours.views, theirs.views, strict=False)):
        found += [f"step {step}: public {name} differ" for name in mine if mine[name] != other[name]]
        accounts = {holder: spent for holder, spent in ours.accounts[step].items() if holder != me}
        if accounts != theirs.accounts[step]:
            found.append(f"step {step}: accounts of others differ")
        if me in theirs.accounts[step]:
            found.append(f"step {step}: a missing person was charged")
        result, until = 0.0, ours.releases_seen[step]
        if until != theirs.releases_seen[step]:
            return [*found, f"step {step}: one world has released {until} times, the other not"]
        pairs = zip(ours.seen[counted:until], theirs.seen[counted:until], ours.absent[counted:until], strict=True)
        for seen, beside, absent in pairs:
            if absent and losses(seen, beside):
                found.append(f"step {step}: someone contributed after leaving")
            if [draw.public for draw in seen] != [draw.public for draw in beside]:
                return [*found, f"step {step}: not the same numbers were released"]
            result += losses(seen, beside)
        counted = until
        charged, limit = ours.accounts[step].get(me, 0.0), ours.limits[step]
        if limit is not None and charged > max(before, limit * (1 + 1e-9)):
            found.append(f"step {step}: {charged:g} was charged, more than the {limit:g} of the promise in force")
        paid = charged - before + credit
        if result > paid + 1e-9 * charged:
            found.append(f"step {step}: the releases reveal {result:g}, but {paid:g} was charged")
        # A charge for later steps may be revealed later, but no other charge.
        credit, before = min(max(paid - result, 0.0), ours.ahead[step]), charged
    if ours.promised and before > caps_of(ours.promised, 1e-4):
        found.append(f"{before:g} was charged, more than an ε of {ours.promised:g} allows")
    found += _teaching_differences(ours, theirs)
    return found


def _teaching_differences(ours: World, theirs: World) -> list[str]:
    found = []
    for mine, other in zip(ours.taught, theirs.taught, strict=True):
        same = all(np.array_equal(a, b) for a, b in zip(mine["others"], other["others"], strict=True))
        if not same or not np.array_equal(mine["seeds"], other["seeds"]):
            found.append("others are in different teachers")
        elsewhere = np.setdiff1d(np.arange(len(mine["predictions"])), mine["mine"])
        if not np.array_equal(mine["predictions"][elsewhere], other["predictions"][elsewhere]):
            found.append("predictions of other teachers differ")
    return found


def loss_and_charge(ours: World, theirs: World) -> tuple[float, float]:
    """Return the one holder's loss by all releases, and what they were charged, in μ²."""
    result = sum(losses(seen, beside) for seen, beside in zip(ours.seen, theirs.seen, strict=True))
    return result, ours.accounts[-1].get(FIRST_ID + ME, 0.0)
