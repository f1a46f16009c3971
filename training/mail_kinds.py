"""Mails about runs: to operators, to whoever proposed and approved one, and to holders who wish to hear of uses."""

from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext_lazy as _

from consent.mail import MailKind, holders_mail, kinds_register, mails_send
from consent.models import Mail, Membership, Role
from training.models import Run, StudentModel


def _run(mail: Mail) -> dict[str, Any] | None:
    run = Run.objects.filter(pk=mail.about).first()
    return {"run": run} if run else None


def _model(mail: Mail) -> dict[str, Any] | None:
    model = StudentModel.objects.filter(pk=mail.about).select_related("run").first()
    return {"model": model, "run": model.run} if model else None


def _waiting_run(mail: Mail) -> dict[str, Any] | None:
    run = Run.objects.filter(pk=mail.about, status=Run.Status.DRAFT).first()
    return {"run": run} if run else None


def register() -> None:
    """Register these kinds, once, at start-up."""
    kinds_register(
        MailKind("run_waiting", _("a run waits for approval"), _waiting_run),
        MailKind("run_ended", _("a run has ended"), _run),
        MailKind("model_withdrawn", _("a model that you took was withdrawn"), _model),
        MailKind("new_use", _("a new run begins"), _run),
    )


def run_waiting_mail(run: Run) -> None:
    """Tell those who may approve a draft of it."""
    operators = Membership.objects.filter(study=run.study_id, role=Role.OPERATOR).exclude(user=run.created_by_id)
    mails_send("run_waiting", operators.values_list("user_id", flat=True), study=run.study, about=run.pk)


def run_begun_mail(run: Run) -> None:
    """Tell holders who wish it of an approved run; a rehearsal concerns nobody."""
    if not run.rehearsal:
        holders_mail("new_use", run.study, about=run.pk, wishing=True)


def run_ended_mail(run: Run) -> None:
    """Tell whoever proposed and approved a run that it has finished or failed."""
    people = {run.created_by_id, run.approved_by_id} - {None}
    mails_send("run_ended", [person for person in people if person is not None], study=run.study, about=run.pk)


def model_withdrawn_mail(model: StudentModel, users: Iterable[int]) -> None:
    """Tell those who took a model that it was withdrawn."""
    mails_send("model_withdrawn", sorted(users), study=model.run.study, about=model.pk)
