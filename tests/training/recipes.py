"""One small run for each method: what to propose, how to run it up to its first release, and how to forge it.

A new method needs a recipe here. `test_method_contract.py` then checks the rules for all methods.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accounting.accounts import charges_of
from accounting.models import Release
from common.artifacts import arrays_load, arrays_save
from consent.models import Study
from tests.training.asking import (
    ASKING_RUN,
    COUNTED_STEPS_RUN,
    COUNTS_RUN,
    SAMPLED_RUN,
    STEPS_RUN,
    SYNTHESIS_RUN,
    attempt,
)
from tests.training.people import small_study
from tests.training.runs import TABLE_RUN, run_begun, run_like, run_teach, teachers_chosen
from training.methods import IMPLEMENTED, RunMethod, method_by
from training.models import Batch, Query, Round, Run, RunResult, StudentModel
from training.services.advance import chunk_train, run_advance, shard_ask, step_of

#: A change to a finished run, and a part of the fault that verification reports for it.
Forgery = tuple[Callable[[Run], object], str]
DENIABLE_CHOICES = {"released": 40, "plausible": 20, "epsilon0": 2.0, "fewest": 2, "most": 3, "values": 4}
DENIABLE_RUN = SYNTHESIS_RUN | {"variant": Run.Variant.DENIABILITY, "choices": DENIABLE_CHOICES}


@dataclass(frozen=True)
class Recipe:
    """A small run of a method.

    Attributes:
        fields: fields of its proposal, for `run_like`.
        otherwise: choices that change its plan.
        planned: what the plan must say about the choices: a path into its JSON, and the value there.
        forgeries: forgeries that only this method's releases can have, in addition to those of `forgeries_of`.
        shard: name of the class with the number of holders in a shard; empty if the method has no shards.
        rehearsed: number of holders in its rehearsals.
        has_people: whether a study with real people may have such runs.
    """

    fields: dict[str, Any]
    otherwise: dict[str, Any]
    planned: dict[str, Any]
    forgeries: list[Forgery] = field(default_factory=list)
    shard: str = ""
    rehearsed: int = 30
    has_people: bool = True

    @property
    def method(self) -> RunMethod:
        return method_by(self.fields.get("method", Run.Method.PATE), self.fields.get("variant", ""))

    def study(self, slug: str = "table") -> Study:
        return small_study(slug=slug)

    def started(self, study: Study, **fields: Any) -> Run:
        """Return an approved run that may use half of every cap."""
        return run_like(study, self.fields, **fields)

    def answered(self, run: Run) -> Run:
        """Return the same run after its people have answered for the first time, and before anything is released."""
        return run_teach(run) if "teachers" in self.fields["choices"] else attempt(run_begun(run))


def finish(run: Run, note: Callable[[Run], object] = lambda run: None, *, times: int = 1) -> Run:
    """Do the work of workers until the run ends, delivering each message ``times`` times.

    ``note`` sees the run in between.

    Messages about parts of an earlier batch are repeated, too, and a step is also taken by a worker with an outdated
    copy of the run.
    """
    sent: list[tuple[Callable[[Any], object], Any]] = []
    for _ in range(100):
        stale = Run.objects.get(pk=run.pk)
        if stale.has_ended:
            return stale
        parts = [(shard_ask, pk) for pk in stale.shards.values_list("pk", flat=True)]
        parts += [(chunk_train, pk) for pk in stale.chunks.values_list("pk", flat=True)]
        for _ in range(times):
            for deliver, pk in [*(sent if times > 1 else []), *parts, (run_advance, run.pk)]:
                deliver(pk)
                note(Run.objects.get(pk=run.pk))
        step = step_of(stale)
        if times > 1 and step is not None:
            with suppress(FileNotFoundError):  # of a released batch
                step(stale)
        sent = parts
    raise AssertionError(f"The run makes no progress: {run.status}, {run.message}")


def released(run: Run) -> list[Any]:
    """Return everything that a run has released and published."""
    files = [arrays_load(name) for name in run.batches.values_list("released", flat=True) if name]
    digests = [each.objects.filter(run=run.pk).values_list("digest", flat=True) for each in (StudentModel, RunResult)]
    published = list(map(list, digests))
    return [
        list(run.queries.order_by("row").values_list("row", "label", "counts")),
        [{name: array.tolist() for name, array in file.items()} for file in files],
        published,
    ]


def charged(run: Run) -> dict[int, float]:
    """Return each holder's charge for a run in μ², by id."""
    spent: dict[int, float] = {}
    for release in Release.objects.filter(run=run.pk, batch__isnull=False).exclude(charges=""):
        charges = charges_of(release)
        for holder, each in zip(charges.holders.tolist(), charges.spent.tolist(), strict=True):
            spent[holder] = spent.get(holder, 0.0) + each
    return spent


def plan_set(run: Run, change: Callable[[dict[str, Any]], object]) -> None:
    change(run.plan)
    Run.objects.filter(pk=run.pk).update(plan=run.plan)


def file_change(run: Run, name: str, change: Callable[[np.ndarray], object], batch: int = 1) -> None:
    """Change an array in the file of a released batch."""
    kept = run.batches.get(index=batch).released
    arrays = arrays_load(kept)
    change(arrays[name])
    arrays_save(kept, **arrays)


def add(to: Any, number: float) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[to] += number

    return change


def label_change(run: Run) -> None:
    query = run.queries.filter(label__isnull=False).earliest("pk")
    Query.objects.filter(pk=query.pk).update(label=(query.label + 1) % 3)


def counts_change(run: Run) -> None:
    """Change the counts so that the label still belongs to the largest one."""
    query = run.queries.earliest("pk")
    largest = max(range(3), key=lambda place: query.counts[place])
    counts = [count + (place == largest) for place, count in enumerate(query.counts)]
    Query.objects.filter(pk=query.pk).update(counts=counts)


def step_size_change(run: Run) -> None:
    plan_set(run, lambda plan: plan["rounds"][0]["plan"].update(step_size=99.0))


def charges_halve(run: Run) -> None:
    """Make the plan claim a lower cost than was charged."""
    plan_set(run, lambda plan: plan["rounds"][0]["plan"].update(charges=[0.1] * 3))


def budget_cut(run: Run) -> None:
    """Make the plan claim a smaller budget than was charged."""
    plan_set(run, lambda plan: plan["budgets"][0].update(allowed=1e-3, cap=1e-2))


#: Forgeries of a batch that are found for every method.
FORGERIES: list[Forgery] = [
    (lambda run: run.batches.order_by("index").last().delete(), "is missing"),
    (lambda run: run.batches.order_by("index").update(start=3), "does not follow the batch before it"),
    (lambda run: Run.objects.filter(pk=run.pk).update(spent=[0.0, 0.0, 0.0]), "are not the sum of its releases"),
    (lambda run: Run.objects.filter(pk=run.pk).update(position=99), "its position or number of labels does not match"),
    (lambda run: Run.objects.filter(pk=run.pk).update(share=0.9), "differs from the one that was granted"),
    (lambda run: Round.objects.filter(run=run).update(sigma=99.0), "the description of its round differs"),
    (lambda run: Round.objects.filter(run=run).update(position=0), "ends after the last position of its round"),
    (budget_cut, "does not match the cost of run"),
]
OF_FILES: list[Forgery] = [
    (lambda run: Batch.objects.filter(run=run, index=1).update(released="rounds/none.npz"), "cannot be read")
]
OF_COUNTS: list[Forgery] = [
    (lambda run: file_change(run, "sums", add(slice(None), 2**20), 0), "differ from the released ones"),
    (lambda run: RunResult.objects.filter(run=run).update(content={}), "its table differs from the register"),
    (lambda run: RunResult.objects.filter(run=run).update(digest="0" * 64), "its table differs from the register"),
    (lambda run: RunResult.objects.filter(run=run).update(card={}), "its table differs from the register"),
    (lambda run: RunResult.objects.filter(run=run).update(artifact="none.csv"), "the file of its table is missing"),
    (
        lambda run: RunResult.objects.filter(run=run).update(withdrawn_at=run.ended_at),
        "whether its table is withdrawn differs",
    ),
]
OF_LABELS: list[Forgery] = [
    (label_change, "differ from the released ones"),
    (lambda run: run.queries.filter(batch__index=1).delete(), "found"),
]

PATE_RUN: dict[str, Any] = teachers_chosen(dict(TABLE_RUN))
RECIPES: dict[str, Recipe] = {
    "neighbours": Recipe(
        ASKING_RUN,
        otherwise={"sigma": 12.0},
        planned={"rounds.0.sigma": 10.0, "rounds.0.queries": 12},
        forgeries=[*OF_LABELS, (label_change, "do not follow from the released counts")],
        shard="training.methods.neighbours.Votes",
    ),
    "teachers": Recipe(
        PATE_RUN,
        otherwise={"aggregator": {"name": "gnmax", "sigma": 20.0}},
        planned={"aggregator.sigma": 10.0},
        forgeries=[*OF_FILES, *OF_LABELS, (label_change, "does not follow from the releases")],
    ),
    "teachers that release counts": Recipe(
        teachers_chosen(TABLE_RUN | {"aggregator": {"name": "noisy_counts", "sigma": 10.0}}),
        otherwise={"aggregator": {"name": "noisy_counts", "sigma": 20.0}},
        planned={"aggregator.sigma": 10.0},
        forgeries=[
            *OF_LABELS,
            (label_change, "do not follow from the released counts"),
            (counts_change, "differ from the released ones"),
        ],
    ),
    "steps": Recipe(
        STEPS_RUN | {"batch_size": 1, "choices": {"steps": 3, "sigma": 10.0}},
        otherwise={"steps": 4},
        planned={"rounds.0.plan.steps": 3, "rounds.0.plan.sigma": 10.0, "rounds.0.until": 1.0},
        forgeries=[
            *OF_FILES,
            (step_size_change, "the released question differs"),
            (step_size_change, "differs from its plan"),
            (lambda run: Batch.objects.filter(run=run, index=2).update(size=2), "has 2 steps"),
            (lambda run: file_change(run, "sums", add((0, 0, 0), 1 << 32)), "differ from the released ones"),
            (lambda run: file_change(run, "sums", add((0, 0, 0), 1 << 32)), "does not follow from the releases"),
            (lambda run: file_change(run, "state.parameters", add(0, 1.0)), "does not follow from the releases"),
        ],
        shard="training.methods.steps.GradientQuestions",
    ),
    "steps without public points": Recipe(
        COUNTED_STEPS_RUN | {"batch_size": 2, "choices": {"steps": 2, "sigma": 10.0}},
        otherwise={"steps": 3},
        planned={"rounds.3.plan.steps": 2, "rounds.0.until": 0.01, "rounds.3.until": 1.0},
        forgeries=[(lambda run: file_change(run, "sums", add(slice(None), 2**20), 0), "differ from the released ones")],
        shard="training.methods.synthesis.MarginalCells",
    ),
    "samples": Recipe(
        SAMPLED_RUN | {"choices": {"steps": 4, "expected": 1e6}},
        otherwise={"steps": 5},
        planned={"rounds.0.plan.expected": 12},
        forgeries=[
            *OF_FILES,
            (step_size_change, "the released question differs"),
            (charges_halve, "does not match the cost of run"),
            (lambda run: Batch.objects.filter(run=run, index=2).update(size=1), "has 1 steps"),
            (lambda run: Batch.objects.filter(run=run, index=0).update(size=1), "is not the charge for the whole"),
            (lambda run: file_change(run, "weights", add(0, 1e-9), 2), "differ from the released ones"),
        ],
    ),
    "counts": Recipe(
        COUNTS_RUN,
        otherwise={"column": "length"},
        planned={"rounds.0.until": 1.0},
        forgeries=OF_COUNTS,
        shard="training.methods.counts.Cells",
    ),
    "synthesis": Recipe(
        SYNTHESIS_RUN | {"choices": {"rows": 100, "bins": 4}},
        otherwise={"bins": 8},
        planned={"rounds.2.until": 1.0},
        forgeries=OF_COUNTS,
        shard="training.methods.synthesis.MarginalCells",
    ),
    "deniability": Recipe(
        DENIABLE_RUN,
        otherwise={"released": 20},
        planned={},
        shard="training.methods.synthesis.Seeds",
        rehearsed=400,
        has_people=False,
    ),
}

if _missing := [type(each).__name__ for each in IMPLEMENTED if each not in {one.method for one in RECIPES.values()}]:
    raise NotImplementedError(f"{', '.join(_missing)}: add a recipe for each to RECIPES of {__file__}.")
