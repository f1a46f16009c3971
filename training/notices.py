"""Notices of what happens to runs and models: mails to people, events to the programs that webhooks lead to."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings

from accounting.shares import ROUNDING
from consent.models import Membership, Role
from consent.services.mail import holders_mail, mails_send
from consent.services.webhooks import event_send
from training.models import Run, StudentModel

#: Parts of a run's share at which its operators are told that a group has used them.
SHARES_TOLD = (0.8, 1.0)


def run_proposed_tell(run: Run) -> None:
    """Tell those who may approve a draft of it."""
    operators = Membership.objects.filter(study=run.study_id, role=Role.OPERATOR).exclude(user=run.created_by_id)
    mails_send("run_waiting", operators.values_list("user_id", flat=True), study=run.study, about=run.pk)
    event_send("run.proposed", run.study, **_about(run))


def run_approved_tell(run: Run) -> None:
    """Tell its proposer of an approved run, and holders who wish it; a rehearsal concerns none of them."""
    if run.created_by_id is not None:
        mails_send("run_approved", [run.created_by_id], study=run.study, about=run.pk)
    if not run.rehearsal:
        holders_mail("new_use", run.study, about=run.pk, wishing=True)
    event_send("run.approved", run.study, **_about(run))


def run_ended_tell(run: Run) -> None:
    """Tell whoever proposed and approved a run that it has finished or failed; cancelling tells programs alone."""
    if run.status != Run.Status.CANCELLED:
        people = {run.created_by_id, run.approved_by_id} - {None}
        mails_send("run_ended", [person for person in people if person is not None], study=run.study, about=run.pk)
    event_send(f"run.{run.status}", run.study, **_about(run))


def share_used_tell(run: Run, used: Sequence[float], before: Sequence[float]) -> None:
    """Tell the operators where a group has just used most of a run's share, or all of it.

    Args:
        run: the run.
        used: the part of the run's share that each group of the plan has used: public.
        before: the same before what was just charged.
    """
    names = [group["name"] for group in run.plan.get("groups", run.plan["promises"])]
    groups = []
    for name, now, then in zip(names, used, before, strict=True):
        crossed = [limit for limit in SHARES_TOLD if then < limit <= now + ROUNDING]
        if crossed:
            groups.append({"group": name, "share": max(crossed)})
    if groups:
        operators = Membership.objects.filter(study=run.study_id, role=Role.OPERATOR)
        mails_send("share_used", operators.values_list("user_id", flat=True), study=run.study, about=run.pk)
        event_send("share.used", run.study, groups=groups, **_about(run))


def model_withdrawn_mail(model: StudentModel, users: Iterable[int]) -> None:
    """Tell those who took a model that it was withdrawn."""
    mails_send("model_withdrawn", sorted(users), study=model.run.study, about=model.pk)


def _about(run: Run) -> dict[str, Any]:
    """Facts that a program is told of a run, as every reader of it may know."""
    page = settings.SITE_URL + run.get_absolute_url()  # type: ignore[attr-defined]
    return {"run": {"id": str(run.pk), "title": run.title, "status": run.status}, "url": page}
