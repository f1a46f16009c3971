"""Kinds of mails about runs; :mod:`training.notices` sends them."""

from typing import Any

from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from consent.models import Level, Mail
from consent.services.mail import MailKind, kinds_register
from training.models import Alliance, Run, RunResult, StudentModel, Verification
from training.selectors import study_budgets
from training.watch import budgets_low


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


def _low(mail: Mail) -> dict[str, Any] | None:
    low = budgets_low(mail.study, study_budgets(mail.study)) if mail.study else []
    groups = [(capfirst(Level(each.level).label), each.policy, round(100 * each.share_left, 1)) for each in low]
    return {"groups": groups} if groups else None


def register() -> None:
    """Register these kinds, once, at start-up."""
    kinds_register(
        MailKind("run_waiting", _("a run waits for approval"), _waiting_run, wish="approvals"),
        MailKind("run_approved", _("a run was approved"), _run, wish="approvals"),
        MailKind("run_ended", _("a run has ended"), _run, wish="ends"),
        MailKind("share_used", _("a group has used most of a run's share"), _run, wish="shares"),
        MailKind("budget_low", _("a privacy group has little of its budget left"), _low, wish="shares"),
        MailKind("joint_proposed", _("a hub proposes a run over sites"), _proposal, wish="approvals"),
        MailKind("key_waiting", _("a new key of a site waits to be confirmed"), _key, wish="approvals"),
        MailKind("site_silent", _("a run over sites waits for a site or the hub"), _waiting_alliance, wish="ends"),
        MailKind("model_withdrawn", _("a model that you took was withdrawn"), _model),
        MailKind("result_withdrawn", _("a table that you took was withdrawn"), _result),
        MailKind("new_use", _("a new run begins"), _run),
        MailKind("installation_fault", _("a verification found a fault in what belongs to no study"), _outcome),
        MailKind("fault_found", _("a verification found a fault"), _outcome),
        MailKind("fault_found_committee", _("a verification found a fault, for the committee"), _outcome),
    )
