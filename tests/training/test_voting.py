"""The vote: what stops it, what it charges, who is heard, and that labels and costs are one."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.db import IntegrityError, connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounting.models import HolderSpending, LedgerEntry, SpendingHistory
from accounting.selectors import account_consumption
from consent import services as consent_services
from consent.models import ConsentForm, DataHolder, Study
from tests.factories import policy_approve, user_create
from tests.training.runs import (
    TABLE_RUN,
    assert_labels_and_ledger_agree,
    run_finish,
    run_start,
    run_teach,
    study_with_table,
)
from training.artifacts import arrays_load
from training.ballot import ballot_load
from training.models import Query, Run, VoteBatch
from training.pate import SimulationNoise
from training.services import lifecycle, voting

pytestmark = pytest.mark.django_db

CHEAP = {"name": "gnmax", "sigma": 40.0}


def run_voting(study: Study, **fields: Any) -> Run:
    """A run whose vote has been opened; no batch has been put to it."""
    run = run_teach(run_start(study, **TABLE_RUN | fields))
    assert voting.vote_open(run)
    return Run.objects.get(pk=run.pk)


def vote_to_the_end(run: Run) -> Run:
    while voting.vote_batch(run):
        run.refresh_from_db()
    return run


def holder_of(study: Study, level: str) -> DataHolder:
    return DataHolder.objects.filter(consent_events__level=level, study=study).earliest("pk")


def teachers_of(run: Run, holder: DataHolder) -> list[int]:
    assignment = arrays_load(run.assignment)
    return assignment["teacher"][assignment["holder"] == holder.pk].tolist()


def level_change(holder: DataHolder, level: str) -> None:
    form = ConsentForm.objects.filter(study=holder.study).latest("version")
    consent_services.consent_give(holder=holder, level=level, form=form, acting_user=None)


def spent(run: Run) -> dict[str, list[float]]:
    return {group.name: group.spent_rdp for group in run.account.groups.all()}


# --- Stopping -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason", "labels"),
    [
        ({"aggregator": CHEAP}, Run.StopReason.USED_UP, 12),
        ({"aggregator": CHEAP, "wanted_labels": 5}, Run.StopReason.ENOUGH, 5),
        ({"aggregator": {"name": "gnmax", "sigma": 6.0}}, Run.StopReason.BUDGET, None),
    ],
)
def test_a_vote_says_why_it_ended(fields: dict[str, Any], reason: str, labels: int | None) -> None:
    run = vote_to_the_end(run_voting(study_with_table(), **fields))
    assert (run.status, run.stop_reason) == (Run.Status.STUDENT, reason)
    if labels is None:
        assert 0 < run.labels < 12
    else:
        assert run.labels == labels


def test_enough_labels_are_enough_even_where_points_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voting, "SystemNoise", lambda: SimulationNoise(1))
    picky = {"name": "confident_gnmax", "sigma": 40.0, "sigma_threshold": 60.0, "threshold": 6.0}
    run = vote_to_the_end(run_voting(study_with_table(points=30), aggregator=picky, wanted_labels=4, batch_size=30))
    assert (run.labels, run.stop_reason) == (4, Run.StopReason.ENOUGH)
    assert run.rejected == run.queries.filter(label__isnull=True).count() > 0
    assert run.queries.latest("row").label is not None, "the query that brought the last label is the last"


def test_batches_are_of_the_size_asked_for_and_the_labels_do_not_depend_on_it() -> None:
    study = study_with_table()
    run = vote_to_the_end(run_voting(study, aggregator=CHEAP, batch_size=5))
    assert list(run.batches.values_list("index", "start", "queries")) == [(0, 0, 5), (1, 5, 5), (2, 10, 2)]


counter = itertools.count()


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    levels=st.text("HAL", min_size=1, max_size=4),
    epsilons=st.lists(st.floats(0.05, 8.0), min_size=3, max_size=3, unique=True).map(sorted),
    sigma=st.floats(1.0, 60.0),
    threshold=st.one_of(st.none(), st.floats(1.0, 6.0)),
    variant=st.sampled_from(Run.Variant.values),
    method=st.sampled_from(Run.Method.values),
    conversion=st.sampled_from(["improved", "classic"]),
    on_exhausted=st.sampled_from(Run.OnExhausted.values),
    batch_size=st.integers(1, 12),
)
def test_no_vote_exceeds_a_budget(
    levels: str,
    epsilons: list[float],
    sigma: float,
    threshold: float | None,
    variant: str,
    method: str,
    conversion: str,
    on_exhausted: str,
    batch_size: int,
) -> None:
    study = study_with_table(f"study-{next(counter)}", levels="-", holders=12, delta=1e-3)
    policy_approve(study, *epsilons)
    form = ConsentForm.objects.get(study=study)
    for place, holder in enumerate(study.holders.order_by("pk")):
        level = {"H": "HIGH", "A": "AVERAGE", "L": "LOW"}[levels[place % len(levels)]]
        consent_services.consent_give(holder=holder, level=level, form=form, acting_user=None)
    aggregator: dict[str, Any] = {"name": "gnmax", "sigma": sigma}
    if threshold is not None:
        aggregator = {"name": "confident_gnmax", "sigma": sigma, "sigma_threshold": 2 * sigma, "threshold": threshold}
    run = run_voting(
        study,
        aggregator=aggregator,
        variant=variant,
        method=method,
        conversion=conversion,
        on_exhausted=on_exhausted,
        batch_size=batch_size,
        teachers=4,
    )
    run = vote_to_the_end(run)
    assert run.status == Run.Status.STUDENT
    promised = dict(zip(("HIGH", "AVERAGE", "LOW"), epsilons, strict=True))
    for item in account_consumption(run.account):
        assert item.budget == promised[item.group.level]
        assert item.spent <= item.budget
        assert item.spent <= item.published * (1 + 1e-9), "no method may find more than the worst case"
    assert run.labels <= run.position == run.queries.count()
    if run.stop_reason == Run.StopReason.USED_UP:
        assert run.position == 12


# --- Charging -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["standard", "weighting", "upsampling"])
def test_what_is_published_is_the_closed_form(variant: str) -> None:
    """Papernot et al. 2018, Proposition 8 and its threshold check, with a group's sensitivity w in place of 1."""
    confident = {"name": "confident_gnmax", "sigma": 30.0, "sigma_threshold": 50.0, "threshold": 5.0}
    run = run_voting(study_with_table(), aggregator=confident, variant=variant, method="data_dependent")
    run = vote_to_the_end(run)
    noise, orders = run.plan["aggregator"], np.asarray(run.account.orders)
    assert run.position
    for group in run.account.groups.all():
        plan = run.plan["groups"][run.plan["group_of"][group.index]]
        moved = plan["weight"] * plan["factor"]
        check = run.position * orders * moved**2 / (2 * noise["sigma_threshold"] ** 2)
        label = run.labels * orders * moved**2 / noise["sigma"] ** 2
        np.testing.assert_allclose(group.published_rdp, check + label, rtol=1e-9)
        assert (np.array(group.spent_rdp) <= np.array(group.published_rdp) * (1 + 1e-9)).all()


def test_merged_groups_share_teachers_and_are_charged_each_on_its_own_account() -> None:
    study = study_with_table(levels="HHHHHAAAAL", holders=20)
    run = vote_to_the_end(run_voting(study, teachers=4))
    groups = {group.name: group for group in run.account.groups.all()}
    assert run.plan["group_of"] == [0, 1, 1]
    assert groups["AVERAGE"].spent_rdp == groups["LOW"].spent_rdp, "one vote of the same weight"
    assert (groups["AVERAGE"].epsilon, groups["LOW"].epsilon) == (2.0, 3.0)
    entries = LedgerEntry.objects.filter(run=run.pk, batch=0)
    assert set(entries.values_list("group__name", flat=True)) == {"HIGH", "AVERAGE", "LOW"}


def test_retained_votes_replay_to_the_ledger() -> None:
    study = study_with_table(retain_votes=True)
    run = run_finish(run_start(study, **TABLE_RUN | {"method": "exact", "aggregator": CHEAP}))
    assert run.labels == 12
    ballot_load.cache_clear()
    assert_labels_and_ledger_agree(run)


def test_a_simulation_leaves_no_trace_in_ledger_or_histories_and_repeats_itself() -> None:
    study = study_with_table(retain_votes=True)
    fields = TABLE_RUN | {"simulation": True, "seed": 7, "aggregator": {"name": "gnmax", "sigma": 12.0}}
    runs = [run_finish(run_start(study, **fields)) for _ in range(2)]
    other = run_finish(run_start(study, **fields | {"seed": 8}))
    labels = [list(run.queries.values_list("row", "label")) for run in runs]
    assert labels[0] == labels[1] != list(other.queries.values_list("row", "label"))
    assert spent(runs[0]) == spent(runs[1])
    assert runs[0].student.accuracy == runs[1].student.accuracy
    assert not LedgerEntry.objects.exists()
    assert not HolderSpending.objects.exists()
    assert not SpendingHistory.objects.exists()
    simulated = np.sum([batch.simulated_rdp for batch in runs[0].batches.all()], axis=0)
    np.testing.assert_allclose(simulated, list(spent(runs[0]).values()), rtol=1e-12)


def test_a_run_that_is_no_simulation_does_not_repeat_itself() -> None:
    study, votes = study_with_table(points=40), []
    for _ in range(2):
        run = vote_to_the_end(run_voting(study, aggregator={"name": "gnmax", "sigma": 200.0}, batch_size=40))
        votes.append(list(run.queries.values_list("label", flat=True)))
        lifecycle.run_cancel(run=run, acting_user=user_create("olga"))
    assert votes[0] != votes[1]


# --- Atomic ---------------------------------------------------------------------------------------------------------


def ledger_fails(patch: pytest.MonkeyPatch) -> None:
    def refuse(entries: Any) -> None:
        raise IntegrityError("disk full")

    patch.setattr(LedgerEntry, "append", refuse)


def position_fails(patch: pytest.MonkeyPatch) -> None:
    """The very last statement of a batch fails, after labels and charges have been written."""

    def refuse() -> None:
        raise IntegrityError("connection lost")

    patch.setattr(voting.timezone, "now", refuse)


@pytest.mark.parametrize("fails", [ledger_fails, position_fails])
def test_a_batch_that_fails_midway_leaves_neither_labels_nor_charges(
    fails: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_voting(study_with_table(), aggregator=CHEAP)
    assert voting.vote_batch(run)
    before = spent(run)
    with monkeypatch.context() as patch:
        fails(patch)
        with pytest.raises(IntegrityError):
            voting.vote_batch(run)
    run.refresh_from_db()
    assert (run.position, run.labels) == (4, 4)
    assert (VoteBatch.objects.count(), Query.objects.count(), LedgerEntry.objects.count()) == (1, 4, 3)
    assert spent(run) == before
    run = vote_to_the_end(run)
    assert run.labels == 12
    assert_labels_and_ledger_agree(run)


def test_workers_that_know_the_run_as_it_was_charge_nothing_twice() -> None:
    run = run_voting(study_with_table(), aggregator=CHEAP)
    one, two = Run.objects.get(pk=run.pk), Run.objects.get(pk=run.pk)
    for worker in (one, two, two, one):
        voting.vote_batch(worker)
    run.refresh_from_db()
    assert (run.position, run.status) == (12, Run.Status.STUDENT)
    assert_labels_and_ledger_agree(run)


@pytest.mark.django_db(transaction=True)
def test_workers_that_vote_at_the_same_time_charge_nothing_twice() -> None:
    run = run_voting(study_with_table(points=30), aggregator={"name": "gnmax", "sigma": 60.0}, batch_size=1)
    troubles = []

    def work() -> None:
        try:
            while voting.vote_batch(Run.objects.get(pk=run.pk)):
                pass
        except Exception as trouble:
            troubles.append(trouble)
        finally:
            connection.close()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert troubles == []
    run.refresh_from_db()
    assert (run.position, run.status) == (30, Run.Status.STUDENT)
    assert_labels_and_ledger_agree(run)


def test_only_one_run_of_a_study_votes_at_a_time() -> None:
    study = study_with_table()
    first = run_voting(study, aggregator=CHEAP, share=0.5)
    second = run_teach(run_start(study, **TABLE_RUN))
    simulation = run_voting(study, simulation=True)
    elsewhere = run_voting(study_with_table("elsewhere"))
    lifecycle.run_advance(second.pk)
    second.refresh_from_db()
    assert second.status == Run.Status.TRAINING
    assert second.message == "Waits for the vote of another run of this study to end."
    assert simulation.status == elsewhere.status == Run.Status.VOTING
    first = vote_to_the_end(first)
    second = run_finish(second)
    assert second.status == Run.Status.FINISHED, second.message
    for group in second.account.groups.all():
        np.testing.assert_array_equal(group.past_rdp, spent(first)[group.name])
    with pytest.raises(IntegrityError):
        Run.objects.filter(study=study, simulation=False).update(status=Run.Status.VOTING)


# --- Who is heard ---------------------------------------------------------------------------------------------------


def test_a_withdrawal_silences_the_teachers_that_learned_from_the_holder_from_the_next_batch_on() -> None:
    study = study_with_table()
    run = run_voting(study, aggregator=CHEAP)
    voting.vote_batch(run)
    holder = holder_of(study, "HIGH")
    consent_services.consent_withdraw(holder=holder, acting_user=None)
    run = vote_to_the_end(run)
    silent = [batch.silent_teachers for batch in run.batches.all()]
    assert silent == [[], teachers_of(run, holder), teachers_of(run, holder)]
    assert run.labels == 12, "the others still vote"
    ballot = ballot_load(run.pk)
    heard = ballot.votes(slice(4, 8), np.isin(np.arange(6), teachers_of(run, holder)))
    np.testing.assert_allclose(heard.sum(axis=1), 6 - run.plan["groups"][0]["weight"])


def test_who_returns_after_a_withdrawal_is_not_heard_in_a_running_vote() -> None:
    study = study_with_table()
    run = run_voting(study, aggregator=CHEAP)
    holder = holder_of(study, "LOW")
    consent_services.consent_withdraw(holder=holder, acting_user=None)
    level_change(holder, "LOW")
    voting.vote_batch(run)
    assert run.batches.get().silent_teachers == teachers_of(run, holder)


def test_in_upsampling_all_teachers_of_a_withdrawn_holder_fall_silent() -> None:
    study = study_with_table()
    run = run_voting(study, variant="upsampling", aggregator=CHEAP)
    holder = holder_of(study, "LOW")
    consent_services.consent_withdraw(holder=holder, acting_user=None)
    voting.vote_batch(run)
    silent = run.batches.get().silent_teachers
    assert silent == sorted(teachers_of(run, holder))
    assert len(silent) == 3


def test_a_change_to_stronger_protection_silences_and_one_to_weaker_changes_nothing() -> None:
    study = study_with_table()
    run = run_voting(study, aggregator=CHEAP)
    stricter, weaker = holder_of(study, "AVERAGE"), holder_of(study, "HIGH")
    level_change(weaker, "LOW")
    voting.vote_batch(run)
    level_change(stricter, "HIGH")
    voting.vote_batch(run)
    assert [batch.silent_teachers for batch in run.batches.all()] == [[], teachers_of(run, stricter)]


def test_a_vote_without_teachers_left_ends() -> None:
    study = study_with_table()
    run = run_voting(study, aggregator=CHEAP)
    voting.vote_batch(run)
    for holder in study.holders.all():
        consent_services.consent_withdraw(holder=holder, acting_user=None)
    charged = spent(run)
    run = vote_to_the_end(run)
    assert (run.stop_reason, run.position) == (Run.StopReason.RETIRED, 4)
    assert spent(run) == charged


def test_a_smaller_epsilon_holds_at_once_during_the_vote() -> None:
    study = study_with_table(points=40)
    run = run_voting(study, aggregator={"name": "gnmax", "sigma": 20.0}, batch_size=2)
    voting.vote_batch(run)
    so_far = {item.group.level: item.spent for item in account_consumption(run.account)}
    policy_approve(study, high=so_far["HIGH"] * 1.01, average=2.0, low=3.0)
    run = vote_to_the_end(run)
    assert (run.stop_reason, run.position) == (Run.StopReason.BUDGET, 2)


def test_who_becomes_stricter_before_the_vote_is_taken_out_and_who_becomes_less_strict_stays() -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN))
    stricter, looser = holder_of(study, "LOW"), holder_of(study, "HIGH")
    level_change(stricter, "HIGH")
    level_change(looser, "LOW")
    voting.vote_open(run)
    run = run_teach(run)
    assert voting.vote_open(run)
    run.refresh_from_db()
    assert not HolderSpending.objects.filter(holder=stricter).exists(), "a vote that they are not in costs them nothing"
    assert stricter.pk not in arrays_load(run.assignment)["holder"]
    group = HolderSpending.objects.get(holder=looser).history.group
    assert (group.level, group.epsilon, group.holders) == ("LOW", 3.0, 1)
    sensitivity = ballot_load(run.pk).sensitivities[group.index]
    assert sensitivity == min(ballot_load(run.pk).sensitivities), "their teacher votes with the weight of before"
    run = vote_to_the_end(run)
    assert all(item.spent <= item.budget for item in account_consumption(run.account))


def test_a_worker_that_waited_for_the_lock_does_not_open_the_vote_before_teachers_have_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN))
    gone = holder_of(study, "LOW")
    consent_services.consent_withdraw(holder=gone, acting_user=None)
    faster = iter([True])

    def lock(study_id: int) -> Study:
        if next(faster, False):
            assert voting.vote_open(Run.objects.get(pk=run.pk)), "the other worker sends a teacher back to learn"
        return consent_services.study_lock(study_id)

    monkeypatch.setattr(voting, "study_lock", lock)
    assert not voting.vote_open(run)
    run = run_finish(run)
    assert not HolderSpending.objects.filter(holder=gone).exists()
    assert run.status == Run.Status.FINISHED


def test_a_level_whose_budget_shrinks_below_what_it_spent_is_taken_out_and_the_others_vote() -> None:
    study = study_with_table(points=40)
    first = run_finish(run_start(study, share=0.5, **TABLE_RUN))
    spent_by = {item.group.level: item.spent for item in account_consumption(first.account)}
    second = run_start(study, **TABLE_RUN)
    policy_approve(study, high=0.9, average=spent_by["LOW"] * 0.98, low=spent_by["LOW"] * 0.99)
    second = run_finish(second)
    assert second.status == Run.Status.FINISHED, second.message
    assert second.labels
    assert {group.level for group in second.account.groups.all()} == {"HIGH", "AVERAGE"}


def test_who_has_spent_more_at_another_level_than_theirs_allows_does_not_end_the_vote_of_the_others() -> None:
    study = study_with_table(levels="HLL", points=40)
    waiting = run_teach(run_start(study, share=0.3, **TABLE_RUN))
    holder = holder_of(study, "HIGH")
    level_change(holder, "LOW")
    between = run_finish(run_start(study, **TABLE_RUN))
    assert between.labels
    level_change(holder, "HIGH")
    waiting = run_finish(waiting)
    assert waiting.status == Run.Status.FINISHED, waiting.message
    assert waiting.labels
    assert HolderSpending.objects.get(holder=holder).history.group.account == between.account


# --- Exhaustion -----------------------------------------------------------------------------------------------------

PROPORTIONS = {"variant": "weighting", "weight_scheme": "proportional", "batch_size": 2}


def test_going_on_without_an_exhausted_group_charges_it_nothing_more() -> None:
    study = study_with_table(points=60)
    stop = vote_to_the_end(run_voting(study, **PROPORTIONS, simulation=True))
    run = vote_to_the_end(run_voting(study, **PROPORTIONS, on_exhausted="retire"))
    assert stop.stop_reason == Run.StopReason.BUDGET
    assert run.position > stop.position, "the vote went on"
    groups = {group.name: group for group in run.account.groups.all()}
    first = min((group for group in groups.values() if group.retired_at), key=lambda group: group.retired_at)
    entries = list(LedgerEntry.objects.filter(group=first).order_by("batch"))
    paid = [entry.batch for entry in entries if np.any(entry.rdp)]
    assert paid == list(range(len(paid)))
    assert len(paid) < len(entries)
    silent = run.batches.get(index=len(paid)).silent_teachers
    assert len(silent) == run.plan["groups"][first.index]["teachers"]
    assert all(item.spent <= item.budget for item in account_consumption(run.account))


def test_a_retired_group_whose_budget_shrinks_does_not_hold_up_the_others() -> None:
    study = study_with_table(points=20)
    run = run_voting(study, aggregator=CHEAP, on_exhausted="retire", batch_size=2)
    voting.vote_batch(run)
    so_far = {item.group.level: item.spent for item in account_consumption(run.account)}
    policy_approve(study, high=so_far["HIGH"] / 2, average=2.0, low=3.0)
    run = vote_to_the_end(run)
    assert (run.status, run.position) == (Run.Status.STUDENT, 20)
    high = run.account.groups.get(name="HIGH")
    assert high.retired_at
    assert high.spent_rdp == LedgerEntry.objects.get(group=high, batch=0).rdp
