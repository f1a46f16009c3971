"""Changes of a draft by whoever proposed it, until it is approved. Each is on record, and makes another revision.

Nobody else changes a proposal: whoever did would have proposed it, too, and could then approve it alone.
"""

import logging
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from common.logging import logging_run
from consent.services import study_lock, study_open_check
from consent.services.changes import changes_recorded
from training.comparison import run_parameters
from training.errors import PROPOSER, STATE
from training.methods import METHODS, method_by
from training.models import ProposalChange, Run
from training.services.runs import run_check

logger = logging.getLogger(__name__)

PROPOSED = (
    *("title", "purpose", "private_dataset", "public_dataset", "test_dataset", "labelled_dataset"),
    *("method", "variant", "choices"),
    *("student_learner", "student_parameters", "batch_size", "wanted_labels", "seed", "rehearsed"),
)
"""The fields of a run that its proposer chooses."""


@transaction.atomic
def run_edit(*, run: Run, acting_user: AbstractBaseUser, **fields: Any) -> Run:
    """Put another proposal in the place of a draft; a change of nothing leaves everything as it is.

    Args:
        run: The draft.
        acting_user: Its proposer.
        **fields: All fields of the new proposal, as `run_propose` takes them; what is missing has its default.

    Raises:
        ValidationError: by field, where it could not be carried out; or it is no draft any more, or another's.
    """
    study_open_check(study_lock(run.study_id))
    run = _own_draft(run, acting_user, _("Only a draft can be changed. Propose a similar run."))
    if run.alliance_id:
        raise ValidationError(_("A run over sites is proposed anew at its hub, and not changed."), code=STATE)
    before = _state_of(run)
    name = fields.get("method", Run.Method.PATE)
    if name in METHODS:
        fields.setdefault("batch_size", method_by(name, fields.get("variant", "")).batch_size)
    if run.rehearsal and fields.get("seed") is None:
        fields["seed"] = run.seed
    defaults = {field.name: field.get_default() for field in Run._meta.concrete_fields}
    for field in PROPOSED:
        setattr(run, field, fields.get(field, defaults[field]))
    run_check(run)
    after = _state_of(run)
    changes = [
        {"name": each, "before": before.get(each), "after": after.get(each)}
        for each in dict.fromkeys([*before, *after])
        if before.get(each) != after.get(each)
    ]
    if changes:
        run.revision += 1
        with changes_recorded([run], acting_user=acting_user):
            run.save(update_fields=[*PROPOSED, "revision"])
        _record(run, ProposalChange.Kind.EDITED, changes, acting_user)
    return run


@transaction.atomic
def run_withdraw(*, run: Run, acting_user: AbstractBaseUser) -> Run:
    """Withdraw a draft for good; one that was withdrawn stays so.

    Raises:
        ValidationError: it is no draft any more, or another's.
    """
    study_lock(run.study_id)
    if Run.objects.filter(pk=run.pk, status=Run.Status.WITHDRAWN, created_by_id=acting_user.pk).exists():
        return Run.objects.get(pk=run.pk)
    run = _own_draft(run, acting_user, _("Only a draft can be withdrawn. An operator can cancel a run."))
    run.status, run.ended_at = Run.Status.WITHDRAWN, timezone.now()
    run.message = gettext_noop("Its proposer has withdrawn the proposal.")
    run.save(update_fields=["status", "ended_at", "message"])
    _record(run, ProposalChange.Kind.WITHDRAWN, [], acting_user)
    return run


_DATASETS = ("private_dataset", "public_dataset", "test_dataset", "labelled_dataset")


def _own_draft(run: Run, acting_user: AbstractBaseUser, otherwise: str) -> Run:
    """The draft, locked; ``otherwise`` is said where it is none any more."""
    related = ("study", *_DATASETS)
    run = Run.objects.select_for_update(of=("self",)).select_related(*related).get(pk=run.pk)
    if run.created_by_id != acting_user.pk:
        raise ValidationError(_("Somebody else proposed this run. They can change or withdraw it."), code=PROPOSER)
    if run.status != Run.Status.DRAFT:
        raise ValidationError(otherwise, code=STATE)
    return run


def _state_of(run: Run) -> dict[str, Any]:
    return {"title": run.title, "purpose": run.purpose, **run_parameters(run)}


def _record(run: Run, kind: str, content: list[dict[str, Any]], acting_user: AbstractBaseUser) -> None:
    change = ProposalChange(
        study=run.study, run=run, kind=kind, revision=run.revision, content=content, changed_by_id=acting_user.pk
    )
    ProposalChange.append([change])
    with logging_run(run.pk):
        logger.info("The proposal was %s by user %s: revision %d.", kind, acting_user.pk, run.revision)
