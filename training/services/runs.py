"""Services to propose, edit, check and cancel a run, and to delete data that must not outlive it.

Ending a run that has ended has no effect. Only its proposer may change a draft, because otherwise people could approve
their own changes. Each change is logged and creates a new revision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from secrets import randbits
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from accounting.shares import share_settle
from common.artifacts import arrays_delete, arrays_delete_folder, arrays_list
from common.logging import logging_run
from common.sentences import Sentence, gettext_noop
from consent.models import Study
from consent.services import study_lock, study_open_check
from consent.services.changes import changes_recorded
from learning.formats import TabularSchema, encodes_alike, schema_from_json
from learning.outcomes import OUTCOME_LABELS
from training.alliances.documents import sums_tidy
from training.alliances.wire import agreement_forget
from training.comparison import run_parameters
from training.engine.budgets import rehearsed_check
from training.engine.commits import used_share, waiting_runs_wake
from training.engine.questions import attempt_files, released_tidy, run_folder
from training.engine.scheduling import send
from training.errors import PROPOSER, STATE
from training.methods import METHODS, MethodOutcome, method_by, method_of
from training.methods.base import RunMethod
from training.methods.pate_teachers import predictions_forget_erased
from training.methods.student_training import checkpoints_folder, student_check
from training.models import Dataset, ProposalChange, Run
from training.notices import notify_run_ended, notify_run_proposed
from training.selectors import run_is_claimed

logger = logging.getLogger(__name__)


@transaction.atomic
def run_propose(*, study: Study, acting_user: AbstractBaseUser, **fields: Any) -> Run:
    """Create a draft of a run. Raises ValidationError with errors by field if the run could not be carried out."""
    study = study_lock(study.pk)
    study_open_check(study)
    name = fields.get("method", Run.Method.PATE)
    if name in METHODS:
        fields.setdefault("batch_size", method_by(name, fields.get("variant", "")).batch_size)
    run = Run(study=study, rehearsal=study.rehearsal, created_by_id=acting_user.pk, **fields)
    if run.rehearsal and run.seed is None:
        run.seed = randbits(31)
    run_check(run)
    with changes_recorded([run], acting_user=acting_user):
        run.save()
    notify_run_proposed(run)
    return run


def run_check(run: Run) -> RunMethod:
    """Check that a run is well formed using only public information, fill in defaults, and return its method.

    The result does not depend on consents or private records (condition 1 in docs/gaussian-accounts.md); otherwise it
    would reveal something about them to people who propose or approve runs.

    Raises:
        ValidationError: errors by field.
    """
    errors: dict[str, list[str]] = {}

    def wrong(field: str, message: object) -> None:
        errors.setdefault(field, []).append(str(message))

    # Skip references here: the database checks that they exist, and other rules about them are checked below, by
    # methods, or on approval. A query for each reference would take longer than all other checks.
    references = {each.name for each in Run._meta.concrete_fields if each.is_relation and getattr(run, each.attname)}
    try:
        run.clean_fields(exclude=references)
    except ValidationError as error:
        errors.update(error.message_dict)
    _check_datasets(run, wrong)
    method = method_of(run) if run.method in METHODS else None
    learns = method is None or method.outcome == MethodOutcome.MODEL
    taught = not run.private_dataset_id or bool(run.private_dataset.outcome.categories)
    if method is not None and run.private_dataset_id:
        _check_outcome(run, method, wrong)
    of_texts = bool(run.private_dataset_id) and not run.encoder and _is_of_texts(run.private_dataset)
    if run.public_dataset_id and learns and taught and not of_texts:
        student_check(run, wrong)
    elif (run.public_dataset_id and learns) or (method is not None and not method.needs_public_points):
        run.student_learner, run.student_parameters = "", {}
    else:
        wrong("public_dataset", _("Choose the public points that this method queries or learns from."))
    if of_texts and learns and run.method != Run.Method.SGD:
        wrong("method", _("Learning from texts requires gradient steps or an encoder. Choose one of them."))
    if run.seed is not None and not run.rehearsal:
        wrong("seed", _("Only a rehearsal can have a seed, because noise that can be repeated protects no one."))
    if run.rehearsal:
        try:
            run.rehearsed = rehearsed_check(run.rehearsed)
        except ValidationError as error:
            wrong("rehearsed", "; ".join(error.messages))
    elif run.rehearsed:
        wrong("rehearsed", _("Only runs of rehearsal studies can have these parameters. Remove them."))
    if method is not None:
        method.check(run, wrong)
    if errors:
        raise ValidationError(errors)
    assert method is not None, "the name of a method is one of the model's choices"
    return method


def _is_of_texts(dataset: Dataset) -> bool:
    schema = schema_from_json(dataset.schema)
    return isinstance(schema, TabularSchema) and schema.text is not None


def _check_outcome(run: Run, method: RunMethod, wrong: Callable[[str, object], None]) -> None:
    kind = run.private_dataset.outcome.kind
    if kind not in method.learns:
        words = {"kind": _(OUTCOME_LABELS[kind])}
        wrong(
            "method",
            _("This method cannot learn %(kind)s, which the private dataset declares. Choose private gradient steps.")
            % words,
        )


def _check_datasets(run: Run, wrong: Callable[[str, object], None]) -> None:
    kinds = {"private_dataset": Dataset.Kind.PRIVATE, "public_dataset": Dataset.Kind.PUBLIC}
    if run.test_dataset_id:
        kinds["test_dataset"] = Dataset.Kind.TEST
    if run.labelled_dataset_id:
        kinds["labelled_dataset"] = Dataset.Kind.PUBLIC
        _check_labelled(run, wrong)
    present = [field for field in kinds if getattr(run, f"{field}_id")]
    for field in present:
        dataset = getattr(run, field)
        if dataset.study_id != run.study_id:
            wrong(field, _("This dataset belongs to another study. Choose one from this study."))
        elif dataset.removed_at is not None:
            wrong(field, _("This dataset was removed. Choose another one."))
        elif dataset.drawn_by.filter(withdrawn_at__isnull=False).exists():
            wrong(field, _("These synthetic rows were withdrawn. Choose another dataset."))
        elif dataset.kind != kinds[field]:
            kind_words = {"kind": dataset.get_kind_display(), "wanted": kinds[field].label}
            wrong(field, _("This dataset is %(kind)s; choose a %(wanted)s one.") % kind_words)
        elif run.private_dataset_id and not encodes_alike(dataset.schema, run.private_dataset.schema):
            wrong(
                field,
                _(
                    "This dataset's columns or classes differ from those of the private dataset. Import it with the "
                    "private dataset's schema."
                ),
            )


def _check_labelled(run: Run, wrong: Callable[[str, object], None]) -> None:
    """Report an error if the student cannot learn from the chosen labelled public rows as well."""
    field, labelled = "labelled_dataset", run.labelled_dataset
    assert labelled is not None, "it was chosen"
    if run.alliance_id:
        wrong(field, _("Leave this empty, because in a run across sites, students learn only from releases."))
    elif not run.public_dataset_id or (run.method in METHODS and method_of(run).outcome != MethodOutcome.MODEL):
        wrong(field, _("Leave this empty, because without public points no student learns from labelled rows."))
    elif labelled.pk == run.public_dataset_id:
        wrong(field, _("These are the points that the run queries. Choose other labelled rows."))
    elif labelled.kind == Dataset.Kind.PUBLIC and not labelled.seen_classes:
        wrong(field, _("This dataset has no class labels. Import it with its labels, or choose another one."))


@transaction.atomic
def run_cancel(
    *, run: Run, acting_user: AbstractBaseUser | None, message: str = gettext_noop("An operator has cancelled the run.")
) -> Run:
    """End a run that has not ended. Releases and charges remain, and the reserved budget is freed.

    ``acting_user`` is None if the run ends because the last day of the study's records has passed. ``message`` is the
    reason.
    """
    study_lock(run.study_id)
    run = Run.objects.select_for_update().get(pk=run.pk)
    if run.has_ended:
        return run
    run.status = Run.Status.CANCELLED
    run.message = message
    run.ended_at = timezone.now()
    run.save()
    notify_run_ended(run)
    share_settle(study=run.study, subject=run.pk, used=used_share(run))
    waiting_runs_wake(run)
    with logging_run(run.pk):
        logger.info("The run was cancelled by user %s.", acting_user.pk if acting_user else "no one (its study ended)")
    transaction.on_commit(lambda: run_forget(run))
    return run


# --- Drafts -----------------------------------------------------------------------------------------------------------


PROPOSED = (
    *("title", "purpose", "private_dataset", "public_dataset", "test_dataset", "labelled_dataset"),
    *("method", "variant", "choices"),
    *("student_learner", "student_parameters", "batch_size", "wanted_labels", "seed", "rehearsed"),
)
"""Fields of a run that its proposer chooses."""


@transaction.atomic
def run_edit(*, run: Run, acting_user: AbstractBaseUser, **fields: Any) -> Run:
    """Replace a draft with another proposal; do nothing if they are equal.

    Args:
        **fields: All fields of the new proposal, as in `run_propose`; missing fields get their defaults.

    Raises:
        ValidationError: errors by field if the run could not be carried out, is no longer a draft, or was proposed by
            another user.
    """
    study_open_check(study_lock(run.study_id))
    run = _own_draft(run, acting_user, _("Only a draft can be changed. Propose a similar run instead."))
    if run.alliance_id:
        raise ValidationError(_("To change a run across sites, propose it again at its hub."), code=STATE)
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
        run.message = ""
        with changes_recorded([run], acting_user=acting_user):
            run.save(update_fields=[*PROPOSED, "revision", "message"])
        _record(run, ProposalChange.Kind.EDITED, changes, acting_user)
    return run


@transaction.atomic
def run_withdraw(*, run: Run, acting_user: AbstractBaseUser) -> Run:
    """Withdraw a draft permanently; do nothing if it is already withdrawn.

    Raises:
        ValidationError: it is no longer a draft, or was proposed by another user.
    """
    study_lock(run.study_id)
    if Run.objects.filter(pk=run.pk, status=Run.Status.WITHDRAWN, created_by_id=acting_user.pk).exists():
        return Run.objects.get(pk=run.pk)
    run = _own_draft(run, acting_user, _("Only a draft can be withdrawn. Ask an operator to cancel the run."))
    run.status, run.ended_at = Run.Status.WITHDRAWN, timezone.now()
    run.message = gettext_noop("The person who proposed this run has withdrawn it.")
    run.save(update_fields=["status", "ended_at", "message"])
    _record(run, ProposalChange.Kind.WITHDRAWN, [], acting_user)
    return run


_DATASETS = ("private_dataset", "public_dataset", "test_dataset", "labelled_dataset")


def _own_draft(run: Run, acting_user: AbstractBaseUser, otherwise: str) -> Run:
    """Lock and return a draft; raise an error with the message ``otherwise`` if it is no longer a draft."""
    related = ("study", *_DATASETS)
    run = Run.objects.select_for_update(of=("self",)).select_related(*related).get(pk=run.pk)
    if run.created_by_id != acting_user.pk:
        raise ValidationError(
            _("Another person proposed this run. Only they can change or withdraw it."), code=PROPOSER
        )
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


# --- The end of a run -------------------------------------------------------------------------------------------------


def run_fail(run_id: str | UUID, message: str) -> None:
    """End a run that cannot continue; ``message`` is for staff, so it must contain no private data."""
    with transaction.atomic():
        run = Run.objects.select_related("study").get(pk=run_id)
        study_lock(run.study_id)
        run.refresh_from_db(fields=["spent", "plan"])
        failed = Run.objects.filter(pk=run_id, status__in=Run.ACTIVE).update(
            status=Run.Status.FAILED, message=message, ended_at=timezone.now()
        )
        if failed:
            share_settle(study=run.study, subject=run.pk, used=used_share(run))
            waiting_runs_wake(run)
            run.refresh_from_db(fields=["status"])
            notify_run_ended(run)
    if failed:
        logger.warning("The run failed: %s", message)
        run_forget(Run.objects.get(pk=run_id))


def run_forget(run: Run) -> None:
    """Delete data that must not outlive a run: teachers' members and predictions, and the lists of people asked.

    Unreleased noise and results are deleted as well. If the study keeps votes, the data for a replay are kept.

    A worker that is still working on the run may write such data again; the sweep then deletes it.
    """
    released_tidy(run)
    if run.alliance is not None:
        agreement_forget(run.joint)
        sums_tidy(run.joint)
        if not run.alliance.is_hub:  # so that the other sites do not wait for this one
            send("alliance_contact", run.alliance.pk)
    arrays_delete_folder(checkpoints_folder(run))
    if run.study.retain_votes and run.status == Run.Status.FINISHED:
        files = {run.assignment, *run.chunks.values_list("artifact", flat=True)}
        files |= attempt_files(run)
        arrays_delete(*(name for name in arrays_list(run_folder(run)) if name not in files))
        predictions_forget_erased(run)
        return
    claimed = run_is_claimed(run)
    arrays_delete_folder(run_folder(run))
    if not claimed:
        Run.objects.filter(pk=run.pk).update(forgotten_at=timezone.now())


# --- Suggestions ------------------------------------------------------------------------------------------------------

FEW_POINTS = 1000
"""Number of public images below which their number limits the student: true labels would not make it more accurate."""


@dataclass(frozen=True)
class Suggestion:
    """Suggested method and student, by name, with the sentence ``because`` that explains the suggestion."""

    method: str
    student: str
    because: Sentence


def suggested_method(kind: str, points: int) -> Suggestion:
    """Return the method that was most accurate in measurements on similar data.

    The suggestion does not depend on the number of people: on Adult, the ranking of methods was the same with 300
    people as with 32,561. The plan shows whether the answers of a few people stand out from the noise.

    Args:
        kind: Kind of records, "image" or "table".
        points: Number of public points; 0 if there are none yet.

    >>> suggested_method("table", 1000).method, suggested_method("image", 1000).method
    ('sgd', 'neighbours')
    """
    if kind != "image":
        reason = gettext_noop(
            "For tables, a linear model trained with gradient steps was the most accurate in our measurements for "
            "every promise, by a wide margin for rare outcomes."
        )
        return Suggestion("sgd", "shares", Sentence(reason))
    if 0 < points < FEW_POINTS:
        reason = gettext_noop(
            "For images, a student learns best from noisy counts. With so few public images, the student is limited "
            "by their number, not by privacy. Add more images; they need no labels."
        )
        return Suggestion("neighbours", "consistency", Sentence(reason))
    reason = gettext_noop(
        "For images, noisy counts need the fewest people for the same accuracy if the student learns from all public "
        "points."
    )
    return Suggestion("neighbours", "consistency", Sentence(reason))


def suggestion_for(study: Study) -> Suggestion:
    """Return the suggestion for a proposal, based on the study's last public dataset or, if it has none, for tables."""
    public = study.datasets.filter(kind=Dataset.Kind.PUBLIC, removed_at=None).order_by("-imported_at").first()
    if public is None:
        return suggested_method("table", 0)
    return suggested_method(public.schema["kind"], public.rows)
