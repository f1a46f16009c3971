"""Notices about events of runs and models: emails to people, and events to programs with webhooks."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from dateutil.relativedelta import relativedelta
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounting.models import Release
from accounting.shares import ROUNDING
from consent.models import ConsentEvent, Membership, News, Role, Study
from consent.services import study_lock
from consent.services.mail import holders_mail, mails_send, news_send
from consent.services.webhooks import event_send
from training.models import Alliance, Run, RunResult, StudentModel

#: Used shares of a run's budget at which its operators are notified about a group.
SHARES_OF_NOTICE = (0.8, 1.0)


def notify_run_proposed(run: Run) -> None:
    """Notify everyone who may approve a draft."""
    _event_send("run.proposed", run)
    operators = Membership.objects.filter(study=run.study_id, role=Role.OPERATOR).exclude(user=run.created_by_id)
    mails_send("run_waiting", operators.values_list("user_id", flat=True), study=run.study, about=run.pk)


def notify_run_approved(run: Run) -> None:
    """Notify the proposer of an approved run and, except for a rehearsal, holders who want emails about new uses."""
    _event_send("run.approved", run)
    if run.created_by_id is not None:
        mails_send("run_approved", [run.created_by_id], study=run.study, about=run.pk)
    if not run.rehearsal:
        holders_mail("new_use", run.study, about=run.pk, wishing=True)


def notify_approval_failed(run: Run, people: Iterable[int]) -> None:
    """Notify a draft's proposer and approver that the approval could not be carried out."""
    _event_send("run.approval_failed", run)
    mails_send("approval_failed", people, study=run.study, about=run.pk)


def notify_run_ended(run: Run) -> None:
    """Notify a run's proposer and approver that it finished or failed. If it was cancelled, notify only programs."""
    _event_send(f"run.{run.status}", run)
    if run.status != Run.Status.CANCELLED:
        people = {run.created_by_id, run.approved_by_id} - {None}
        mails_send("run_ended", [person for person in people if person is not None], study=run.study, about=run.pk)


def notify_published(run: Run) -> None:
    """Notify the study's people about a run's first published model or its table, once; rehearsals notify no one."""
    if not run.rehearsal:
        news_send(study=run.study, kind=News.Kind.RESULT, about=str(run.pk))


def notify_share_used(run: Run, used: Sequence[float], before: Sequence[float]) -> None:
    """Notify the operators when a group has just used most or all of a run's share.

    Args:
        used: the part of the run's share that each group of the plan has used; public.
        before: the part used before the latest charge.
    """
    names = [group["name"] for group in run.plan.get("groups", run.plan["promises"])]
    groups = []
    for name, now, then in zip(names, used, before, strict=True):
        crossed = [limit for limit in SHARES_OF_NOTICE if then < limit <= now + ROUNDING]
        if crossed:
            groups.append({"group": name, "share": max(crossed)})
    if groups:
        operators = Membership.objects.filter(study=run.study_id, role=Role.OPERATOR)
        mails_send("share_used", operators.values_list("user_id", flat=True), study=run.study, about=run.pk)
        _event_send("share.used", run, groups=groups)


def notify_joint_proposed(alliance: Alliance) -> None:
    """Notify operators of a site that the hub has proposed a run, which any of them can accept."""
    _notify_alliance("joint_proposed", "joint.proposed", alliance)


def notify_key_waiting(alliance: Alliance) -> None:
    """Notify operators that one of them must compare and confirm a site's new key."""
    _notify_alliance("key_waiting", "alliance.key", alliance)


def notify_silence(alliance: Alliance, silent: Sequence[str]) -> None:
    """Notify operators that a joint run is waiting for ``silent`` sites or the hub."""
    _notify_alliance("site_silent", "site.silent", alliance, silent=list(silent))


def _notify_alliance(mail: str, event: str, alliance: Alliance, **facts: Any) -> None:
    operators = Membership.objects.filter(study=alliance.study_id, role=Role.OPERATOR)
    mails_send(mail, operators.values_list("user_id", flat=True), study=alliance.study, about=alliance.pk)
    event_send(event, alliance.study, alliance=alliance.name, **facts)


def model_withdrawn_mail(model: StudentModel, users: Iterable[int]) -> None:
    """Notify the people who downloaded or used a model that it was withdrawn."""
    mails_send("model_withdrawn", sorted(users), study=model.run.study, about=model.pk)


def result_withdrawn_mail(result: RunResult, users: Iterable[int]) -> None:
    """Notify the people who downloaded a table that it was withdrawn."""
    mails_send("result_withdrawn", sorted(users), study=result.run.study, about=result.pk)


def _event_send(event: str, run: Run, **facts: Any) -> None:
    """Send an event about a run, with ``facts`` that every recipient may see."""
    page = settings.SITE_URL + run.get_absolute_url()  # type: ignore[attr-defined]
    run_facts = {"id": str(run.pk), "title": run.title, "status": run.status}
    event_send(event, run.study, run=run_facts, url=page, **facts)


# --- Every year -------------------------------------------------------------------------------------------------------


def notify_yearly() -> int:
    """Notify the people of each open study about its results after each year in which something was released.

    Years are counted from the first decision and later from the last such notice, so no one is notified twice in a
    year. Years without questions or publications are skipped.

    Returns:
        The number of studies whose people were notified.
    """
    open_ones = Study.objects.filter(rehearsal=False, closed_at=None).order_by("pk")
    return sum(_notify_study(study) for study in open_ones)


@transaction.atomic
def _notify_study(study: Study) -> bool:
    now, since = timezone.now(), _last_news(study)
    if since is None or since + relativedelta(years=1) > now:
        return False
    study_lock(study.pk)
    if _last_news(study) != since:  # another worker was faster
        return False
    until = since + relativedelta(years=relativedelta(now, since).years)
    counts = Q(batch__isnull=False) | Q(kind=Release.Kind.MODEL)
    used = Release.objects.filter(counts, study=study, recorded_at__gt=since, recorded_at__lte=until)
    return used.exists() and news_send(study=study, kind=News.Kind.YEAR) is not None


def _last_news(study: Study) -> datetime | None:
    """Return the time of a study's last yearly notice, or else of its first decision (None if none)."""
    moment = News.objects.filter(study=study, kind=News.Kind.YEAR).values_list("published_at", flat=True).first()
    return moment or ConsentEvent.chain(study.pk).values_list("recorded_at", flat=True).first()
