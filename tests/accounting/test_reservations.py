"""What is held for a run from its approval to its end, and what that leaves for others."""

import numpy as np
import pytest
from django.core.exceptions import ValidationError

from accounting.models import HolderSpending, PrivacyGroup, RunAccount, SpendingHistory
from accounting.privacy import DEFAULT_ORDERS, epsilon_from_rdp, gaussian_rate, remaining_epsilon
from accounting.selectors import account_consumption, remaining_by_group
from accounting.verification import study_faults
from consent.models import DataHolder, Study
from consent.services import consent_withdraw
from tests.factories import policy_approve, user_create
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, run_teach, study_with_table
from training.models import Run
from training.pate import PlanError
from training.services.lifecycle import run_approve, run_cancel
from training.services.voting import vote_batch, vote_open

pytestmark = pytest.mark.django_db

NOTHING = np.zeros(len(DEFAULT_ORDERS))
#: More points than the budgets are good for: the run spends all it may.
LONG = {"points": 200}
DEAR = {"aggregator": {"name": "gnmax", "sigma": 12.0}, "batch_size": 10}


def left(study: Study) -> dict[str, float]:
    return {group.name: group.remaining for group in remaining_by_group(study)}


def of_curves(*curves: np.ndarray, delta: float = 1e-4) -> float:
    return float(epsilon_from_rdp(np.sum(curves, axis=0), delta)[0])


# --- How much is held -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_shares_of_what_is_left_add_up(share: float) -> None:
    """Two shares that make a whole use up the budget together: in RDP, where costs add, not in ε."""
    past, epsilon, delta = 0.01 * DEFAULT_ORDERS, 2.0, 1e-5
    parts = [remaining_epsilon(past, epsilon, delta, share=part) for part in (share, 1 - share)]
    curves = [DEFAULT_ORDERS * gaussian_rate(NOTHING, part, delta) for part in parts]
    assert of_curves(past, *curves, delta=delta) == pytest.approx(epsilon, rel=1e-9)
    assert sum(parts) > remaining_epsilon(past, epsilon, delta)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_where_all_is_held_rounding_leaves_nothing(share: float, epsilon: float) -> None:
    held, delta = NOTHING, 1e-5
    for part in (share, 1.0):
        held = held + DEFAULT_ORDERS * gaussian_rate(
            NOTHING, remaining_epsilon(held, epsilon, delta, share=part), delta
        )
    assert remaining_epsilon(held, epsilon, delta) == 0.0


def test_approval_holds_the_share_and_the_end_releases_what_was_not_spent() -> None:
    study = study_with_table()
    first = run_start(study, **TABLE_RUN | {"wanted_labels": 1}, share=0.5)
    half = {name: remaining_epsilon(NOTHING, epsilon, study.delta, share=0.5) for name, epsilon in
            (("HIGH", 1.0), ("AVERAGE", 2.0), ("LOW", 3.0))}  # fmt: skip
    assert left(study) == pytest.approx(half, rel=1e-9)
    assert {group.name: group.allowance for group in PrivacyGroup.objects.all()} == pytest.approx(half, rel=1e-9)
    first = run_finish(first)
    assert first.status == Run.Status.FINISHED
    for group in first.account.groups.all():
        expected = remaining_epsilon(np.array(group.spent_rdp), group.epsilon, study.delta)
        assert left(study)[group.name] == pytest.approx(expected, rel=1e-12)
    assert list(study_faults(study)) == []


def test_a_run_for_which_all_is_held_leaves_nothing_until_it_ends() -> None:
    study = study_with_table()
    first = run_start(study, **TABLE_RUN)
    assert set(left(study).values()) == {0.0}
    with pytest.raises(PlanError, match="reserved for other runs"):
        run_start(study, **TABLE_RUN)
    run_cancel(run=first, acting_user=user_create("olga"))
    assert left(study) == pytest.approx({"HIGH": 1.0, "AVERAGE": 2.0, "LOW": 3.0}, rel=1e-9)
    assert not RunAccount.objects.exists(), "of what never voted nothing stays"
    assert not SpendingHistory.objects.exists()
    assert not HolderSpending.objects.exists()
    assert run_finish(run_start(study, **TABLE_RUN)).status == Run.Status.FINISHED


def test_a_simulation_holds_nothing() -> None:
    study = study_with_table()
    run_start(study, **TABLE_RUN, simulation=True)
    assert left(study) == pytest.approx({"HIGH": 1.0, "AVERAGE": 2.0, "LOW": 3.0}, rel=1e-9)


# --- What a run may spend -------------------------------------------------------------------------------------------


def test_a_run_spends_at_most_its_epsilon_per_level() -> None:
    study = study_with_table(**LONG)
    wanted = {"HIGH": 0.4, "AVERAGE": 1.1, "LOW": 5.0}
    run = run_approve(run=run_draft(study, **TABLE_RUN | DEAR), acting_user=user_create("olga"), epsilons=wanted)
    run = run_finish(run)
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.BUDGET)
    alone = {group.level: float(run.account.epsilon(group.spent_rdp)) for group in run.account.groups.all()}
    assert all(alone[level] <= min(wanted[level], 3.0) for level in wanted)
    assert any(alone[level] > 0.8 * wanted[level] for level in wanted), "it went on until an allowance was used up"
    assert run.account.groups.get(level="LOW").allowance is None, "more than is left means all that is left"


def test_two_runs_of_a_half_stay_within_the_budget_and_both_get_their_part() -> None:
    study = study_with_table(**LONG)
    first = run_start(study, **TABLE_RUN | DEAR, share=0.5)
    second = run_start(study, **TABLE_RUN | DEAR)
    labels = []
    for run in (first, second):
        run = run_finish(run)
        assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.BUDGET)
        assert all(item.spent <= item.budget for item in account_consumption(run.account))
        labels.append(run.labels)
    assert labels[0] == pytest.approx(labels[1], abs=3), "half of what is left is half of the labels"
    assert list(study_faults(study)) == []


def test_a_vote_leaves_alone_what_is_promised_to_a_run_that_was_approved_meanwhile() -> None:
    study = study_with_table(**LONG)
    first = run_teach(run_start(study, **TABLE_RUN | DEAR, share=0.5))
    vote_open(first)
    vote_batch(first)
    second = run_start(study, **TABLE_RUN | DEAR)
    promised = {group.level: group for group in PrivacyGroup.objects.filter(account__run=second.pk)}
    first = run_finish(first)
    for group in first.account.groups.all():
        reserved = np.array(promised[group.level].reserved_rdp)
        assert of_curves(np.array(group.spent_rdp), reserved) <= group.epsilon * (1 + 1e-9)
    assert list(study_faults(study)) == []
    second = run_finish(second)
    assert second.labels > 0
    assert all(item.spent <= item.budget for item in account_consumption(second.account))


@pytest.mark.parametrize("approved_in_between", [False, True])
def test_a_run_that_is_counted_more_strictly_keeps_what_was_reserved_for_it(approved_in_between: bool) -> None:
    """By the classic conversion the same budget is good for less: what that leaves is not for others meanwhile."""
    study = study_with_table(levels="L", **LONG)
    first = run_start(study, **TABLE_RUN | DEAR, share=0.5)
    if approved_in_between:
        first = run_teach(first)
        vote_open(first)
        vote_batch(first)
    classic = run_start(study, **TABLE_RUN | DEAR, conversion="classic")
    with pytest.raises(PlanError, match="reserved for other runs"):
        run_start(study, **TABLE_RUN | DEAR)
    (reserved,) = PrivacyGroup.objects.filter(account__run=classic.pk).values_list("reserved_rdp", flat=True)
    assert run_finish(first).labels > 0
    assert list(study_faults(study)) == []
    classic = run_finish(classic)
    assert classic.labels >= int(reserved[0] / DEFAULT_ORDERS[0] * 12.0**2 * (1 - 1e-6)) > 0
    assert list(study_faults(study)) == []


def test_a_vote_whose_costs_are_no_gaussian_is_in_order_after_every_batch() -> None:
    """Between the orders the curve of its costs crosses the one that was reserved for it."""
    study = study_with_table(holders=12, points=60)
    fields = {"aggregator": {"name": "gnmax", "sigma": 6.0}, "variant": "standard", "teachers": 3, "method": "exact"}
    run = run_teach(run_start(study, **TABLE_RUN | fields | {"batch_size": 1}))
    vote_open(run)
    while Run.objects.get(pk=run.pk).status == Run.Status.VOTING:
        vote_batch(run)
        assert list(study_faults(study)) == []
    run.refresh_from_db()
    assert run.stop_reason == Run.StopReason.BUDGET


def test_a_smaller_epsilon_before_the_vote_cuts_what_is_held_to_it() -> None:
    study = study_with_table(**LONG)
    run = run_teach(run_start(study, **TABLE_RUN | DEAR))
    policy_approve(study, 0.5, 1.0, 1.5)
    assert list(study_faults(study)) == [], "what was promised when it was approved was not too much"
    vote_open(run)
    assert list(study_faults(study)) == []
    for group in PrivacyGroup.objects.all():
        assert of_curves(np.array(group.reserved_rdp)) == pytest.approx(group.epsilon, rel=1e-9)
    assert run_finish(run).status == Run.Status.FINISHED


def test_who_leaves_an_approved_run_has_their_budget_back_when_it_votes() -> None:
    study = study_with_table()
    run = run_teach(run_start(study, **TABLE_RUN | {"wanted_labels": 1}))
    holder = DataHolder.objects.filter(study=study).earliest("pk")
    assert HolderSpending.objects.filter(holder=holder).exists(), "it is held for the run"
    consent_withdraw(holder=holder, acting_user=None)
    run = run_finish(run)
    assert run.status == Run.Status.FINISHED
    assert not HolderSpending.objects.filter(holder=holder).exists()
    assert list(study_faults(study)) == []


# --- Bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"share": 0.0}, "share"),
        ({"share": 1.5}, "share"),
        ({"share": float("nan")}, "share"),
        ({"epsilons": {"HIGH": 1.0}}, "epsilons"),
        ({"epsilons": {"HIGH": 0, "AVERAGE": 1, "LOW": 1}}, "epsilons"),
        ({"epsilons": {"HIGH": "1", "AVERAGE": 1, "LOW": 1}}, "epsilons"),
        ({"epsilons": {"HIGH": True, "AVERAGE": 1, "LOW": 1}}, "epsilons"),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_run_stays_a_draft(asked: dict, field: str) -> None:
    study = study_with_table()
    run = run_draft(study, **TABLE_RUN)
    with pytest.raises(ValidationError) as error:
        run_approve(run=run, acting_user=user_create("olga"), **asked)
    assert set(error.value.message_dict) == {field}
    run.refresh_from_db()
    assert run.status == Run.Status.DRAFT
    assert not RunAccount.objects.exists()
