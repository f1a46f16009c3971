"""Rehearsals of votes of teachers: who is in which teacher, and the whole vote with the papers' accounting."""

from typing import Any, cast

import numpy as np

from accounting.models import Release
from accounting.privacy import Conversion, Method
from learning.mechanisms.pate import Group, Plan, assign, simulate_vote
from training.engine.commits import batch_commit
from training.engine.questions import Released
from training.engine.records import owners_of
from training.engine.rehearsals import rehearsed_check
from training.methods.pate.ballot import labelled_queries
from training.models import Run


def rehearsal_assignment(run: Run, plan: Any, promises: list[Any]) -> dict[str, np.ndarray]:
    """Assignment of owners to teachers: pairs ``holder``, ``teacher``, ``group`` and the teachers' ``seeds``."""
    rng = np.random.default_rng(run.seed)
    owners = rng.permutation(owners_of(run.private_dataset))
    group_of = np.repeat([promise.group for promise in promises], [promise.holders for promise in promises])
    position, teacher = assign(plan, group_of, rng)
    return {
        "holder": owners[position],
        "teacher": teacher,
        "group": group_of[position],
        "seeds": rng.integers(2**32, size=plan.teachers, dtype=np.int64),
    }


def rehearsal_vote(run: Run, plan: Plan, predictions: np.ndarray) -> dict[str, Any]:
    """Hold the whole vote of a rehearsal in the caller's transaction; returns what each level would have spent."""
    rehearsed = rehearsed_check(run.rehearsed)
    promises = run.plan["promises"]
    vote = simulate_vote(
        plan,
        [Group(promise["name"], promise["epsilon"], promise["holders"]) for promise in promises],
        predictions,
        len(run.classes),
        delta=run.study.delta,
        seed=run.seed or 0,
        method=cast(Method, rehearsed["method"]),
        conversion=cast(Conversion, rehearsed["conversion"]),
        wanted_labels=run.wanted_labels,
    )
    queries = labelled_queries(run, vote.labels, vote.answered)
    released = Released(size=len(queries), labels=int(vote.answered.sum()), bounds=[], content={}, queries=queries)
    batch_commit(run, released, [], None, kind=Release.Kind.LABELS)
    epsilons = [
        {"level": promise["level"], "epsilon": promise["epsilon"], "spent": float(spent)}
        for promise, spent in zip(promises, vote.epsilons, strict=True)
    ]
    return {"epsilons": epsilons, "method": rehearsed["method"], "conversion": rehearsed["conversion"]}
