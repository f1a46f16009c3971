"""Steps over samples: charged in advance, who contributes, and atomic chunks."""

from typing import Any

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from accounting.accounts import balances, charged_slack
from accounting.caps import caps_of, slack_of
from accounting.models import Release
from accounting.privacy import sampled_gaussian_mu
from accounting.shares import share_free
from common.artifacts import arrays_load, arrays_save, model_fetch, model_store
from consent.models import DataHolder, Study
from consent.selectors import consent_snapshot
from learning.mechanisms.protocol import PlanError
from learning.mechanisms.sampled_steps.run_plan import BASELINES
from learning.published import published_load
from tests.factories import decide, policy_approve, user_create
from tests.training.asking import SAMPLED_RUN, asking_of, assert_whole, attempt, charged, commit, run_ask
from tests.training.people import everybody, small_study, withdraw
from tests.training.runs import rehearsal_with_table, run_begun, run_draft, run_like
from training.engine.questions import state_before
from training.engine.records import records_load
from training.methods import method_of
from training.methods.sampled_steps import question_load
from training.models import Run, Shard
from training.services import advance
from training.services import runs as run_commands
from training.uses import usage
from training.verification import release_faults, replay_faults

pytestmark = pytest.mark.django_db


def approved(study: Study, *, share: float = 0.5, **fields: Any) -> Run:
    """Return an approved run; ``choices`` are added to those about the steps."""
    return run_like(study, SAMPLED_RUN, share=share, **fields)


def begun(study: Study, **fields: Any) -> Run:
    """Return a run that is about to charge everybody."""
    return attempt(run_begun(approved(study, **fields)))


def weights(run: Run, batch: int) -> np.ndarray:
    return arrays_load(run.batches.get(index=batch).released)["weights"]


def contributions(run: Run, batch: int, among: list[DataHolder]) -> np.ndarray:
    """Return the sum of some holders' contributions to the first step of a chunk, from PyTorch's own gradients."""
    import torch

    from learning.mechanisms.sampled_steps.networks import network_create, with_weights

    chunk = run.rounds.get()
    task, private = question_load(chunk), records_load(run.private_dataset)
    caps = [budget["cap"] for budget in run.plan["budgets"]]
    state, total = state_before(task, chunk, batch), 0.0
    network = with_weights(network_create(task.network, task.shape, task.classes), state.weights).double()
    for who in among:
        mine = private["holder"] == who.pk
        x = torch.tensor(task.fitted.transform(private["x"][mine]) * task.scale, dtype=torch.float64)
        loss = torch.nn.functional.cross_entropy(network(x), torch.tensor(private["y"][mine]))
        parts = torch.autograd.grad(loss, list(network.parameters()))
        gradient = torch.cat([part.flatten() for part in parts]).numpy()
        first = arrays_load(run.batches.get(index=0).attempt)
        cap = first["cap"][np.searchsorted(first["holder"], who.pk)]
        norm = task.plan.mechanism.norms[caps.index(cap)]
        total = total + gradient * min(1.0, norm / np.linalg.norm(gradient))
    return total


def heard(run: Run, batch: int, among: list[DataHolder]) -> None:
    """Check that a chunk of one step without noise contains exactly these holders' clipped gradients."""
    task = question_load(run.rounds.get())
    before = state_before(task, run.rounds.get(), batch)
    expected = contributions(run, batch, among) / task.plan.mechanism.expected
    moved = (before.weights - weights(run, batch)) / task.step_size - task.momentum * before.velocity
    np.testing.assert_allclose(moved, expected, atol=1e-4)


def test_everybody_is_charged_for_all_steps_before_the_first() -> None:
    study = small_study(retain_votes=False)
    run = commit(begun(study))
    assert (run.position, run.batches.get().size) == (0, 0)
    plan = run.plan["rounds"][0]["plan"]
    mu = np.sqrt(plan["charges"])
    own = np.array([plan["sigma"] * plan["clip_norm"] / norm for norm in plan["phases"][0]["norms"]])
    np.testing.assert_allclose(mu, np.sqrt(6) / own, rtol=1e-12)  # everybody in each of six steps
    due = {who.pk: plan["charges"][place % 3] for place, who in enumerate(everybody(study))}
    assert charged(run) == due
    caps = caps_of(consent_snapshot(study).epsilons, study.delta)
    np.testing.assert_allclose(balances(study).spent, 0.5 * caps, rtol=1e-3)
    (release,) = Release.objects.filter(run=run.pk)
    assert (release.charge, release.content["slack"]) == (max(plan["charges"]), slack_of(study.delta))
    run = run_ask(run)
    assert (run.status, run.stop_reason, run.position) == (Run.Status.FINISHED, Run.StopReason.STEPS, 6), run.message
    assert list(run.batches.values_list("start", "size")) == [(0, 0), (0, 2), (2, 2), (4, 2)]
    assert list(Release.objects.filter(run=run.pk, batch__gt=0).values_list("charges", "charge")) == [("", 0.0)] * 3
    assert charged(run) == due and share_free(study) == pytest.approx(0.5)
    assert_whole(run)


@pytest.mark.parametrize("variant", ["sample", pytest.param("scale", marks=pytest.mark.exhaustive)])
def test_sampled_holders_are_charged_as_the_loss_distribution_says(variant: str) -> None:
    study = small_study()
    asking = {"steps": 3, "expected": 4, "network": "mlp"}
    run = run_ask(approved(study, variant=variant, choices=asking))
    assert run.status == Run.Status.FINISHED, run.message
    plan = run.plan["rounds"][0]["plan"]
    (phase,) = plan["phases"]
    assert phase["expected"] == pytest.approx(4)
    for rate, norm, charge in zip(phase["rates"], phase["norms"], plan["charges"], strict=True):
        own = phase["sigma"] * phase["clip_norm"] / norm
        assert charge == sampled_gaussian_mu(rate, own, 3, slack_of(study.delta)) ** 2
    for charge, budget in zip(plan["charges"], run.plan["budgets"], strict=True):
        assert 0.99 * budget["allowed"] < charge <= budget["allowed"]
    assert_whole(run)


def test_holder_with_too_little_left_takes_no_part_and_is_charged_nothing() -> None:
    study = small_study()
    people = everybody(study)
    run_ask(approved(study, share=0.6))
    before = balances(study).of(np.array([who.pk for who in people]))
    decide(people[1], "HIGH")  # 0.6 of an average holder's cap is more than all of the strictest holder's
    run = run_ask(approved(study, share=0.4))
    assert set(charged(run)) == {who.pk for who in people if who != people[1]}
    after = balances(study).of(np.array([who.pk for who in people]))
    assert after[1] == before[1] and (after[[0, 2, 3]] > before[[0, 2, 3]]).all()
    assert_whole(run)


def test_people_who_leave_or_lower_their_level_stop_contributing_and_nobody_joins(exact: None) -> None:
    study = small_study(levels="HALHAL------", records=2)
    people = everybody(study)
    run = commit(begun(study, batch_size=1))
    withdraw(people[4])
    decide(people[2], "HIGH")
    decide(people[8], "LOW")
    decide(people[0], "LOW")
    rest = [who for who in people[:6] if who not in (people[4], people[2])]
    run = commit(attempt(run))
    heard(run, 1, rest)
    run = attempt(run)
    withdraw(people[3])  # between the answer and its release
    run = commit(run)
    heard(run, 2, [who for who in rest if who != people[3]])
    decide(people[3], "HIGH")  # returns to the level at which they were charged
    run = commit(attempt(run))
    heard(run, 3, rest)
    assert set(charged(run)) == {who.pk for who in people[:6]}, "the charge remains"
    assert_whole(run_ask(run))
    assert usage(people[8]).uses == [] and usage(people[0]).uses != []


def test_an_unplanned_promise_is_sampled_as_the_next_stricter_one(exact: None) -> None:
    study = small_study()
    people = everybody(study)
    run = approved(study)
    policy_approve(study, 0.5, 2.5, 3.0)
    assert asking_of(run).open(run)
    run = commit(attempt(Run.objects.get(pk=run.pk)))
    plan = run.plan["rounds"][0]["plan"]
    charges = charged(run)
    assert people[0].pk not in charges, "0.5 is below every promise of the plan"
    assert charges[people[1].pk] == plan["charges"][1], "2.5 is charged as 2"
    assert charges[people[2].pk] == plan["charges"][2]
    assert_whole(run_ask(run))


def test_a_cancelled_run_costs_all_after_its_charge_and_a_chunk_that_is_computed_anew_draws_anew() -> None:
    study, olga = small_study(), user_create("olga")
    early = begun(study)
    run_commands.run_cancel(run=early, acting_user=olga)
    assert share_free(study) == 1 and not balances(study).holders.size
    assert charged_slack(study) == 0
    late = attempt(commit(begun(study)))
    first = arrays_load(late.shards.get().artifact)["weights"]
    Shard.objects.filter(run=late).update(state="pending", claimed_by="")
    advance.shard_ask(late.shards.get().pk)
    assert (arrays_load(late.shards.get().artifact)["weights"] != first).mean() > 0.9
    run_commands.run_cancel(run=late, acting_user=olga)
    assert share_free(study) == pytest.approx(0.5)
    assert_whole(Run.objects.get(pk=late.pk))


SPENT = {"standard": [1, 1, 1], "without_strictest": [0, 2, 2], "group_after_group": [1, 2, 3]}
SPENT["non_private"] = [None] * 3


@pytest.mark.parametrize(
    ("variant", "spent"),
    [pytest.param(*each, marks=[pytest.mark.exhaustive][place % 2 :]) for place, each in enumerate(SPENT.items())],
)
def test_baselines_are_compared_in_rehearsals_alone(variant: str, spent: list[float | None]) -> None:
    run = run_ask(approved(rehearsal_with_table(), share=1.0, variant=variant))
    assert run.status == Run.Status.FINISHED, run.message
    for each, expected in zip(run.outcome["epsilons"], spent, strict=True):
        assert each["spent"] == (None if expected is None else pytest.approx(expected, rel=0.01))
    assert run.student.card["learned_from"]["queries"] == 6
    assert set(BASELINES) == {*SPENT}, "all are tried"
    real = small_study()
    with pytest.raises(ValidationError, match="rehearsal"):
        run_draft(real, **SAMPLED_RUN | {"variant": variant})
    if variant != "standard":  # teachers have a choice with the same name
        with pytest.raises(IntegrityError), transaction.atomic():
            Run.objects.filter(pk=approved(real).pk).update(variant=variant)


def test_a_network_that_is_not_where_the_steps_led_to_and_who_is_asked_without_a_charge_are_found() -> None:
    run = run_ask(approved(small_study(), choices={"publish": "model"}))
    name = run.student.artifact
    model = published_load("network_linear", model_fetch(name))
    model.scale *= 2
    model_store(name, model.to_bytes())
    assert any("not the result of its steps" in fault for fault in release_faults(run))
    chunk = run.batches.get(index=2)
    arrays = arrays_load(chunk.attempt)
    arrays_save(chunk.attempt, **arrays | {"holder": arrays["holder"] + 1})
    assert any("who was not charged" in fault for fault in replay_faults(chunk))


def test_a_study_whose_delta_leaves_no_parts_takes_no_samples() -> None:
    run = run_draft(small_study(delta=2e-9), **SAMPLED_RUN | {"choices": {"steps": 500, "expected": 4}})
    with pytest.raises(PlanError, match=r"This study's δ, 2e-09, is too small"):
        method_of(run).plan(run, 0.5)
