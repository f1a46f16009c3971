"""States of studies (locked, faulty, unverified, silent) for pages, metrics and ``/readyz``, and emails about them.

Operators also get emails about privacy groups with little budget left.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from accounting.group_budgets import GroupBudget
from accounting.restores import missing_rows
from common.models import Pulse
from consent.models import Level, Mail, Membership, Role, Study
from consent.services.mail import MailKind, kinds_register, mails_send
from training.models import Alliance, AllianceSite, Run, RunResult, StudentModel, Verification
from training.selectors import study_budgets

#: Time after which a nightly event is overdue.
OVERDUE = timedelta(hours=26)


@dataclass(frozen=True)
class Watch:
    """State of a study or of the installation, as shown to a particular reader.

    Attributes:
        study: the study; None for the installation.
        locked: whether its database is older than its journal.
        fault: whether there are faults that the reader may see.
        verified_at: time of the last verification; None if there was none.
        overdue: whether the last verification is overdue.
        details: names of checks with messages, for readers who may see exact numbers of people.
    """

    study: Study | None
    locked: bool
    fault: bool
    verified_at: datetime | None
    overdue: bool
    details: tuple[tuple[str, str], ...] = ()

    @property
    def is_fine(self) -> bool:
        return not (self.locked or self.fault or self.overdue)

    @property
    def warnings(self) -> list[str]:
        """One sentence for each problem."""
        problems = (
            (self.locked, _("This study is locked.")),
            (self.fault, _("The verification found a fault.")),
            (self.overdue, _("The verification is overdue.")),
        )
        return [str(text) for is_so, text in problems if is_so]

    @property
    def verdict(self) -> str:
        """The state in one to three words."""
        if self.locked:
            return str(_("locked"))
        if self.fault:
            return str(_("fault found"))
        if self.overdue:
            return str(_("overdue"))
        return str(_("no fault found") if self.verified_at else _("not verified yet"))


def alliances_silence() -> timedelta:
    """Return the longest time since the last message from a hub or site of any alliance that has not ended."""
    hubs = Alliance.objects.exclude(own_name="").filter(left_at=None).aggregate(last=Min("last_contact"))["last"]
    joined = AllianceSite.objects.filter(alliance__left_at=None, left_at=None, joined_at__isnull=False)
    heard = [each for each in (hubs, joined.aggregate(last=Min("last_contact"))["last"]) if each is not None]
    return max((timezone.now() - each for each in heard), default=timedelta(0))


def watch_of(study: Study, *, sees_all: bool = False) -> Watch:
    """Return the state of one study; ``sees_all`` is True for readers who may see exact numbers of people."""
    (watch,) = watches([study], all_of={study.pk} if sees_all else set())
    return watch


def watches(studies: Iterable[Study], *, all_of: Iterable[int] = ()) -> list[Watch]:
    """Return the states of studies; ``all_of`` are ids of those where the reader may see exact numbers of people."""
    studies, sees_all, now = list(studies), set(all_of), timezone.now()
    outcomes = Verification.objects.filter(study__in=studies).in_bulk(field_name="study_id")
    states = []
    for study in studies:
        outcome = outcomes.get(study.pk, Verification(study=study))
        has_fault = outcome.faults > 0 if study.pk in sees_all else outcome.fault_for_deciders
        states.append(
            Watch(
                study=study,
                # The restore may have been settled in the meantime.
                locked=outcome.locked and bool(missing_rows(study)),
                fault=has_fault,
                verified_at=outcome.verified_at,
                overdue=now - (outcome.verified_at or study.created_at) > OVERDUE,
                details=tuple((check, fault) for check, fault in outcome.found) if study.pk in sees_all else (),
            )
        )
    return states


def installation_watch() -> Watch:
    """Return the state of the installation, for auditors and administrators."""
    outcome = Verification.objects.filter(study=None).first() or Verification(verified_at=None)
    return Watch(
        study=None,
        locked=False,
        fault=outcome.faults > 0,
        verified_at=outcome.verified_at,
        overdue=False,  # verified with the studies, whose states show this
        details=tuple((check, fault) for check, fault in outcome.found),
    )


def all_watches() -> list[Watch]:
    """Return states of the installation and of all studies, in the form shown to people who decide about runs."""
    return [installation_watch(), *watches(Study.objects.all())]


def longest_time_unverified() -> timedelta:
    """Return the longest time since the last verification of any study."""
    now = timezone.now()
    moments = Study.objects.values_list(Coalesce("verification__verified_at", "created_at"), flat=True)
    return max((now - moment for moment in moments), default=timedelta())


def budgets_low(study: Study, budgets: Iterable[GroupBudget]) -> list[GroupBudget]:
    """Return groups of a study with less budget left than its threshold; empty if it has no threshold."""
    threshold = study.budget_warning
    return [] if threshold is None else [budget for budget in budgets if budget.share_left < threshold]


def budget_is_low(study: Study) -> bool:
    """Return whether :func:`budgets_watch`, which runs every five minutes, last found a group with little budget."""
    if study.budget_warning is None or study.is_closed:
        return False
    return Pulse.objects.filter(name=f"budget {study.pk}").exclude(note="").exists()


def budgets_watch() -> None:
    """Email a study's operators, once per group, when a group's remaining budget falls below the threshold."""
    for study in Study.objects.filter(budget_warning__isnull=False, closed_at=None, rehearsal=False):
        low = budgets_low(study, study_budgets(study))
        note = ",".join(f"{budget.level}{budget.policy}" for budget in low)[:200]
        pulse, _made = Pulse.objects.get_or_create(name=f"budget {study.pk}", defaults={"at": timezone.now()})
        if note == pulse.note:
            continue
        is_mine = Pulse.objects.filter(pk=pulse.pk, note=pulse.note).update(at=timezone.now(), note=note)
        if is_mine and set(note.split(",")) - set(pulse.note.split(",")) - {""}:
            operators = Membership.objects.filter(study=study, role=Role.OPERATOR)
            mails_send("budget_low", operators.values_list("user_id", flat=True), study=study)


# --- Kinds of emails --------------------------------------------------------------------------------------------------


def _run(mail: Mail) -> dict[str, Any] | None:
    run = Run.objects.filter(pk=mail.about).first()
    return {"run": run} if run else None


def _model(mail: Mail) -> dict[str, Any] | None:
    model = StudentModel.objects.filter(pk=mail.about).select_related("run").first()
    return {"model": model, "run": model.run} if model else None


def _result(mail: Mail) -> dict[str, Any] | None:
    result = RunResult.objects.filter(run__pk=mail.about).select_related("run").first()
    return {"result": result, "run": result.run} if result else None


def _waiting_run(mail: Mail) -> dict[str, Any] | None:
    run = Run.objects.filter(pk=mail.about, status=Run.Status.DRAFT).first()
    return {"run": run} if run else None


def _proposal(mail: Mail) -> dict[str, Any] | None:
    alliance = Alliance.objects.filter(pk=mail.about, left_at=None).first()
    return {"alliance": alliance} if alliance and alliance.open_proposals else None


def _key(mail: Mail) -> dict[str, Any] | None:
    alliance = Alliance.objects.filter(pk=mail.about, left_at=None).first()
    return {"alliance": alliance} if alliance and (alliance.renewal or alliance.offered) else None


def _waiting_alliance(mail: Mail) -> dict[str, Any] | None:
    alliance = Alliance.objects.filter(pk=mail.about, left_at=None).first()
    if alliance is None or not alliance.runs.filter(status__in=Run.ACTIVE).exists():
        return None
    return {"alliance": alliance}


def _outcome(mail: Mail) -> dict[str, Any] | None:
    outcome = Verification.objects.filter(study=mail.study_id).first()
    return {"outcome": outcome} if outcome and (outcome.faults or outcome.locked) else None


def _budget_low(mail: Mail) -> dict[str, Any] | None:
    low = budgets_low(mail.study, study_budgets(mail.study)) if mail.study else []
    groups = [(capfirst(Level(each.level).label), each.policy, round(100 * each.share_left, 1)) for each in low]
    return {"groups": groups} if groups else None


def mail_kinds_register() -> None:
    """Register the kinds of emails above, once at start-up."""
    kinds_register(
        MailKind("run_waiting", _("a run is waiting for approval"), _waiting_run, wish="approvals"),
        MailKind("run_approved", _("a run was approved"), _run, wish="approvals"),
        MailKind("approval_failed", _("an approved run could not be planned"), _waiting_run, wish="approvals"),
        MailKind("run_ended", _("a run has ended"), _run, wish="ends"),
        MailKind("share_used", _("a group has used most of its share in a run"), _run, wish="shares"),
        MailKind("budget_low", _("a privacy group has little of its budget left"), _budget_low, wish="shares"),
        MailKind("joint_proposed", _("a hub proposes a run across sites"), _proposal, wish="approvals"),
        MailKind("key_waiting", _("a site's new key needs to be confirmed"), _key, wish="approvals"),
        MailKind(
            "site_silent", _("a run across sites is waiting for a site or the hub"), _waiting_alliance, wish="ends"
        ),
        MailKind("model_withdrawn", _("a model that you downloaded was withdrawn"), _model),
        MailKind("result_withdrawn", _("a table that you downloaded was withdrawn"), _result),
        MailKind("new_use", _("a new run has started"), _run),
        MailKind("installation_fault", _("a verification found a fault that belongs to no study"), _outcome),
        MailKind("fault_found", _("a verification found a fault in a study"), _outcome),
        MailKind("fault_found_committee", _("a verification found a fault (for the committee)"), _outcome),
    )
