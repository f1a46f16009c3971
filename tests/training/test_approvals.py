"""An approval is recorded at once and carried out by a worker, even if something happens before it is planned."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.utils import timezone

from accounting.restores import missing_rows
from accounting.shares import share_free
from accounting.verification import study_faults
from consent.models import Mail, Membership, Role
from consent.services import conflict_declare, consent_withdraw, membership_add
from tests.factories import member, policy_approve, user_create
from tests.pages import as_
from tests.restored import backup_of, restore, settle
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_planned, run_start, study_with_table
from training.engine.commits import spending_may_begin
from training.engine.scheduling import work_item_of, work_items_due
from training.models import Run
from training.services import approvals
from training.services.advance import run_advance, runs_sweep
from training.services.approvals import approval_undo, run_approve
from training.services.drawings import head_counts_enter
from training.services.erasures import dataset_remove, records_erase
from training.services.runs import run_cancel, run_edit, run_withdraw
from training.verification import release_faults

pytestmark = pytest.mark.django_db


def approved(share: float = 0.5) -> Run:
    """Return a run that olga has approved and no worker has planned."""
    run = run_approve(run=run_draft(study_with_table(), **TABLE_RUN), acting_user=user_create("olga"), share=share)
    assert (run.status, run.plan, run.approved_by, run.snapshot_at) == ("planning", {}, user_create("olga"), None)
    assert share_free(run.study) == 1
    return run


def second_operator(run: Run) -> Any:
    return member(run.study, "oda", "operator")


def _withdraw(run: Run) -> None:
    consent_withdraw(holder=run.study.holders.order_by("pk")[0], acting_user=None)


def _erase(run: Run) -> None:
    _withdraw(run)
    assert records_erase(run.study_id) == 1


def _refused(act: Callable[[Run], object]) -> Callable[[Run], None]:
    def refused(run: Run) -> None:
        with pytest.raises(ValidationError):
            act(run)

    return refused


def _again(run: Run) -> None:
    """Undo the approval and let another operator approve the run with another share."""
    approval_undo(run=run, acting_user=user_create("olga"))
    run_approve(run=run, acting_user=second_operator(run), share=0.25)


def _edited_again(run: Run) -> None:
    approval_undo(run=run, acting_user=user_create("olga"))
    draft = Run.objects.get(pk=run.pk)
    fields = {name: getattr(draft, name) for name in ("private_dataset", "public_dataset", "test_dataset", "method")}
    fields |= {"student_learner": draft.student_learner, "choices": draft.choices, "title": "Another"}
    run_edit(run=draft, acting_user=user_create("otto"), **fields)
    run_approve(run=draft, acting_user=user_create("olga"), share=0.125, revision=2)


IN_BETWEEN: dict[str, tuple[Callable[[Run], object], str, Any]] = {
    "nothing": (lambda run: None, "approved", 0.5),
    "withdrawal": (_withdraw, "approved", 0.5),
    "erasure": (_erase, "approved", 0.5),
    "approved again": (lambda run: run_approve(run=run, acting_user=second_operator(run)), "approved", 0.5),
    "edited": (_refused(lambda run: run_edit(run=run, acting_user=user_create("otto"))), "approved", 0.5),
    "withdrawn": (_refused(lambda run: run_withdraw(run=run, acting_user=user_create("otto"))), "approved", 0.5),
    "data removed": (
        _refused(lambda run: dataset_remove(dataset=run.public_points, reason="Old.", acting_user=user_create("olga"))),
        "approved",
        0.5,
    ),
    "taken back": (lambda run: approval_undo(run=run, acting_user=user_create("olga")), "draft", ""),
    "cancelled": (lambda run: run_cancel(run=run, acting_user=user_create("olga")), "cancelled", "cancelled the run"),
    "by another": (_again, "approved", 0.25),
    "changed by its proposer": (_edited_again, "approved", 0.125),
    "policy": (lambda run: policy_approve(run.study, 0.5, 1.0, 2.0), "draft", "policy or the head counts changed"),
    "head counts": (
        lambda run: head_counts_enter(
            study=run.study, acting_user=user_create("olga"), counts={"HIGH": 9, "AVERAGE": 9, "LOW": 9}
        ),
        "draft",
        "policy or the head counts changed",
    ),
    "role": (lambda run: Membership.objects.filter(user__username="olga").delete(), "draft", "no longer approve"),
    "approver's account": (
        lambda run: type(user_create("olga"))._default_manager.filter(username="olga").update(is_active=False),
        "draft",
        "no longer approve",
    ),
    "conflict of interest": (
        lambda run: conflict_declare(study=run.study, acting_user=user_create("olga"), reason="Shares."),
        "draft",
        "conflict of interest",
    ),
}


@pytest.mark.parametrize("name", IN_BETWEEN)
def test_what_happens_while_a_run_is_planned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    act, status, outcome = IN_BETWEEN[name]
    run, plan, acts = approved(), approvals.with_majority, [act]
    monkeypatch.setattr(
        approvals, "with_majority", lambda *given: (acts and acts.pop()(Run.objects.get(pk=run.pk)), plan(*given))[1]
    )
    run_advance(run.pk)
    run.refresh_from_db()
    failed = status == "draft" and bool(outcome)
    mails = Mail.objects.filter(kind="approval_failed").values_list("user__username", flat=True)
    assert sorted(mails) == (["olga", "otto"] if failed else [])
    if status == "approved":
        assert run.status in Run.ACTIVE and run.status != "planning"
        assert (run.share, 1 - share_free(run.study)) == (outcome, outcome)
        assert run.plan and run.plan_basis == "" and run.snapshot_at > run.approved_at
    else:
        assert (run.status, run.plan, share_free(run.study)) == (status, {}, 1)
        assert outcome in run.message
    if status == "draft":
        assert (run.approved_by, run.approved_at, run.plan_basis) == (None, None, "")
    assert list(study_faults(run.study)) == [] == list(release_faults(run))


def test_an_approval_is_carried_out_once_whatever_dies_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    run = approved()
    with monkeypatch.context() as broken:  # the database disconnects during the last transaction
        broken.setattr(approvals, "notify_run_approved", lambda run: (_ for _ in ()).throw(OperationalError))
        run_advance(run.pk)
    run.refresh_from_db()
    assert (run.status, run.plan, share_free(run.study)) == ("planning", {}, 1) and "retried" in run.message
    Run.objects.filter(pk=run.pk).update(claimed_by="dead:1-2", heartbeat=timezone.now() - timedelta(hours=1))
    assert runs_sweep() == [str(run.pk)]
    assert approvals.run_plan(run) and not approvals.run_plan(run), "as by two workers"
    run.refresh_from_db()
    assert (run.status, run.message, share_free(run.study)) == ("approved", "", 0.5)
    assert run_finish(run).status == "finished"
    assert list(study_faults(run.study)) == [] == list(release_faults(run))


def test_an_unexpected_error_makes_a_draft_again_which_may_be_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    run, otto, page = approved(), as_("otto"), ""
    with monkeypatch.context() as broken:
        broken.setattr(approvals, "with_majority", lambda *given: 1 / 0)
        run_advance(run.pk)
    membership_add(study=run.study, user=user_create("otto"), role=Role.RESEARCHER, acting_user=None)
    page = otto.get(f"/studies/table/runs/{run.pk}/").text
    assert "An unexpected error" in page, page[3000:]
    assert "An unexpected error" in otto.get(f"/api/v1/runs/{run.pk}").json()["reason"]
    again = run_planned(run_approve(run=run, acting_user=user_create("olga"), share=0.5))
    assert (again.status, again.message) == ("approved", "")


@pytest.mark.django_db(transaction=True)
def test_a_restored_approval_waits_for_the_settlement_and_for_another_approval() -> None:
    run = approved()
    backup = backup_of(run.study)
    run_finish(run_planned(run))
    restore(run.study, backup)
    assert missing_rows(run.study)
    run_advance(run.pk)
    run.refresh_from_db()
    assert (run.status, run.plan) == ("draft", {}) and "restored" in run.message
    settle(run.study, "--share", "0.5")
    assert run_planned(run_approve(run=run, acting_user=user_create("olga"), share=0.25)).status == "approved"


def test_plans_come_before_other_work_and_runs_spend_in_the_order_of_their_approval() -> None:
    first = approved(0.25)
    second = run_start(first.study, share=0.25, **TABLE_RUN)
    assert [piece.pk for piece in work_items_due(work_item_of("run_advance", second.pk))] == [first.pk, second.pk]
    assert not spending_may_begin(second)
    approval_undo(run=first, acting_user=user_create("olga"))
    assert spending_may_begin(second)


def test_page_and_api_show_an_approval_and_take_it_back() -> None:
    run, olga = run_draft(study_with_table(), **TABLE_RUN), as_("olga")
    api, page = f"/api/v1/runs/{run.pk}", f"/studies/table/runs/{run.pk}/"
    for code, status in ((202, "planning"), (202, "planning")):
        answer = olga.post(f"{api}/approve", {"share": 0.5}, "application/json")
        assert (answer.status_code, answer["Location"], answer.json()["status"]) == (code, api, status)
    assert olga.get(f"{api}/plan").status_code == 409
    shown = olga.get(page).text
    assert "olga has approved this run" in shown and "Withdraw approval" in shown
    olga.post(f"{page}approve/undo/")
    run.refresh_from_db()
    assert run.status == "draft" and olga.get(f"{page}live/")["HX-Refresh"] == "true"
    assert [olga.delete(f"{api}/approve").json()["status"] for _ in range(2)] == ["draft"] * 2
    olga.post(f"{page}approve/", {"per_cent": "50"})
    run_planned(Run.objects.get(pk=run.pk))
    assert olga.delete(f"{api}/approve").status_code == 409
    answer = olga.post(f"{api}/approve", {"share": 0.5}, "application/json")
    assert (answer.status_code, answer.json()["status"]) == (200, "approved")
