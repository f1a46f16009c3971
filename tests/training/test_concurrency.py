"""Many workers and operators at once: nothing is promised twice, started twice, or voted on side by side."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from celery import current_app
from django.core.files.storage import storages
from django.db import IntegrityError, connection, transaction

from accounting.models import HolderSpending, RunAccount
from accounting.privacy import DEFAULT_ORDERS
from accounting.verification import study_faults
from consent.models import Study
from tests.accounting.test_random_runs import epsilon_of, largest_rate
from tests.factories import user_create
from tests.training.runs import (
    TABLE_RUN,
    assert_labels_and_ledger_agree,
    run_draft,
    run_start,
    run_teach,
    study_with_table,
)
from training.artifacts import arrays_load
from training.ballot import run_folder
from training.models import Run
from training.pate import PlanError
from training.services.lifecycle import run_advance, run_approve

pytestmark = pytest.mark.django_db(transaction=True)

EPSILONS = {"HIGH": 1.0, "AVERAGE": 2.0, "LOW": 3.0}
#: How many runs of equal ε fit into the budget of each level: the last gets the half that is left.
FIT = {"HIGH": 3.5, "AVERAGE": 5.5, "LOW": 7.5}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the broker would have been given: task and id."""
    given: list[tuple[str, str]] = []
    monkeypatch.setattr(
        current_app._get_current_object(), "send_task", lambda name, ids: given.append((name.split(".")[-1], *ids))
    )
    return given


def at_once(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Begin all ``jobs`` at the same moment, each in a thread of its own; what each returned, or raised."""
    outcomes: list[Any] = [None] * len(jobs)
    start = threading.Barrier(len(jobs))

    def work(place: int) -> None:
        try:
            start.wait()
            outcomes[place] = jobs[place]()
        except Exception as trouble:
            outcomes[place] = trouble
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def reserved_curves(study: Study) -> dict[int, np.ndarray]:
    """Holder → the sum of what is reserved for the runs that they are in, by who is in which of their teachers."""
    totals: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(len(DEFAULT_ORDERS)))
    for run in study.runs.exclude(status=Run.Status.DRAFT):
        assignment = arrays_load(run.assignment)
        groups = {group.index: group for group in RunAccount.objects.get(run=run.pk).groups.all()}
        for holder, group in set(zip(assignment["holder"].tolist(), assignment["group"].tolist(), strict=True)):
            totals[holder] += np.array(groups[group].reserved_rdp)
    return totals


def epsilon_alone(level: str, delta: float) -> float:
    """The ε of a Gaussian mechanism that fits ``FIT`` times into the budget of a level."""
    return epsilon_of(largest_rate(EPSILONS[level], delta) / FIT[level] * DEFAULT_ORDERS, delta)


@pytest.mark.parametrize("by_share", [False, True], ids=["an ε for each level", "all that is left"])
def test_of_fifty_runs_that_are_approved_at_once_only_those_are_that_fit(
    sent: list[tuple[str, str]], by_share: bool
) -> None:
    study, olga = study_with_table(holders=12, delta=1e-5), user_create("olga")
    asked: dict[str, Any] = {"share": 1.0}
    if not by_share:
        asked = {"epsilons": {level: epsilon_alone(level, study.delta) for level in EPSILONS}}
    drafts = [run_draft(study, **TABLE_RUN | {"teachers": 3}) for _ in range(50)]
    outcomes = at_once([lambda run=run: run_approve(run=run, acting_user=olga, **asked) for run in drafts])

    approved = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    refused = [(run, outcome) for run, outcome in zip(drafts, outcomes, strict=True) if not isinstance(outcome, Run)]
    assert [str(error) for _, error in refused if not isinstance(error, PlanError)] == []
    assert len(approved) == (1 if by_share else math.ceil(max(FIT.values())))
    assert sorted(sent) == sorted(("run_advance", str(run.pk)) for run in approved)
    assert set(RunAccount.objects.values_list("run", flat=True)) == {run.pk for run in approved}
    for draft, error in refused:
        draft.refresh_from_db()
        assert "reserved for other runs" in str(error)
        assert (draft.status, draft.plan, draft.assignment, draft.snapshot_at) == (Run.Status.DRAFT, {}, "", None)
        assert not storages["private"].exists(run_folder(draft))
    totals = reserved_curves(study)
    levels = dict(study.consent_events.values_list("holder_id", "level"))
    assert totals.keys() == levels.keys() == set(HolderSpending.objects.values_list("holder_id", flat=True))
    for holder, curve in totals.items():
        budget = EPSILONS[levels[holder]]
        assert epsilon_of(curve, study.delta) == pytest.approx(budget, rel=1e-6), "all of it, and no more"
    assert list(study_faults(study)) == []


def test_a_run_that_ten_approve_at_once_is_approved_once(sent: list[tuple[str, str]]) -> None:
    study, olga = study_with_table(), user_create("olga")
    draft = run_draft(study, **TABLE_RUN)
    outcomes = at_once([lambda: run_approve(run=Run.objects.get(pk=draft.pk), acting_user=olga, share=0.5)] * 10)
    assert [run.status for run in outcomes] == [Run.Status.APPROVED] * 10
    assert len({run.assignment for run in outcomes}) == len({run.approved_at for run in outcomes}) == 1
    assert sent == [("run_advance", str(draft.pk))]
    assert RunAccount.objects.get().groups.count() == 3
    assert len(storages["private"].listdir(run_folder(draft))[1]) == 1
    for holder, curve in reserved_curves(study).items():
        level = study.consent_events.get(holder=holder).level
        half = largest_rate(EPSILONS[level], study.delta) / 2
        np.testing.assert_allclose(curve, half * DEFAULT_ORDERS, rtol=1e-6)
    assert list(study_faults(study)) == []


def test_runs_that_many_workers_carry_on_vote_one_after_the_other(sent: list[tuple[str, str]]) -> None:
    study = study_with_table(retain_votes=True)
    fields = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 14.0}, "batch_size": 3}
    runs = [run_teach(run_start(study, **fields, share=share)) for share in (0.25, 0.33, 0.5, 1.0)]
    voting, beside = Run.objects.filter(study=study, status=Run.Status.VOTING), []
    deadline = time.monotonic() + 120

    def work(first: int) -> None:
        """Carry on one run after the other, as messages in any order would have it, until all have ended."""
        turn = runs[first % 4 :] + runs[: first % 4]
        while Run.objects.filter(study=study, status__in=Run.ACTIVE).exists() and time.monotonic() < deadline:
            for run in turn:
                run_advance(run.pk)
                if voting.count() > 1:
                    beside.append(list(voting))

    assert at_once([lambda first=first: work(first) for first in range(8)]) == [None] * 8
    assert beside == []
    ended = list(study.runs.order_by("voting_at"))
    assert [(run.status, run.message) for run in ended] == [(Run.Status.FINISHED, "")] * 4
    for before, after in pairwise(ended):
        assert before.batches.latest("index").recorded_at < after.voting_at, "a vote began before another had ended"
    spent: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(len(DEFAULT_ORDERS)))
    for run in ended:
        assert run.labels > 0
        assert_labels_and_ledger_agree(run)
        assignment = arrays_load(run.assignment)
        weights = {group["name"]: group["weight"] for group in run.plan["groups"]}
        for holder in set(assignment["holder"].tolist()):
            weight = weights[study.consent_events.get(holder=holder).level]
            spent[holder] = spent[holder] + run.labels * DEFAULT_ORDERS * (weight / 14.0) ** 2
    for holder, curve in spent.items():
        assert epsilon_of(curve, study.delta) <= EPSILONS[study.consent_events.get(holder=holder).level]
    assert list(study_faults(study)) == []
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(pk__in=[run.pk for run in runs[:2]]).update(status=Run.Status.VOTING)
