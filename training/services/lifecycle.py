"""The life of a run: draft → approved → training → voting → student → finished, or failed or cancelled.

The row is the truth. Every step can be repeated after a crash and goes on where it stopped; starting what has started,
or ending what has ended, does nothing.
"""

import logging
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.privacy import DEFAULT_ORDERS
from accounting.services import account_open, account_settle
from consent.models import Level, Study
from consent.services import study_lock
from ipate_web.logging import logging_run
from training.artifacts import arrays_delete_folder
from training.ballot import run_folder
from training.dispatch import send
from training.errors import RunError
from training.formats import DataError
from training.learners import learner_create
from training.leases import lease, stale_before
from training.models import Dataset, Run, TeacherChunk
from training.pate import InteractiveGNMax, PlanError, aggregator_from_parameters
from training.selectors import run_is_claimed
from training.services import students, teaching, voting
from training.services.planning import openings, plan_to_json, run_plan

logger = logging.getLogger(__name__)


@transaction.atomic
def run_propose(*, study: Study, acting_user: AbstractBaseUser, **fields: Any) -> Run:
    """A draft of a run. Raises ValidationError, by field, where it could not be carried out.

    What the private records say about that is for those alone who may see group sizes; the draft of anyone else is
    checked against them when it is approved.
    """
    run = Run(study=study, created_by_id=acting_user.pk, **fields)
    if run.simulation and run.seed is None:
        run.seed = secrets.randbits(31)
    run_check(run, private=acting_user.has_perm("consent.view_group_sizes", study))  # type: ignore[attr-defined]
    run.save()
    return run


def run_check(run: Run, *, private: bool = True) -> None:
    """Is this run well formed? Looks at its parameters and datasets, not at consents. Raises ValidationError.

    Where ``private`` is false, nothing in the answer depends on private records: neither how many holders own them nor
    which classes occur.
    """
    errors: dict[str, list[str]] = {}

    def wrong(field: str, message: object) -> None:
        errors.setdefault(field, []).append(str(message))

    try:
        run.full_clean()
    except ValidationError as error:
        errors.update(error.message_dict)
    for field in ("learner", "student_learner"):
        parameters = "learner_parameters" if field == "learner" else "student_parameters"
        try:
            learner_create(getattr(run, field), getattr(run, parameters))
        except (ValueError, TypeError) as error:
            wrong(field if "no learner" in str(error) else parameters, error)
    try:
        if isinstance(aggregator_from_parameters(run.aggregator), InteractiveGNMax):
            wrong(
                "aggregator", _("interactive_gnmax asks a student during the vote, and a run's student comes after it.")
            )
    except (ValueError, TypeError, AttributeError) as error:
        wrong("aggregator", error)
    if run.seed is not None and not run.simulation:
        wrong("seed", _("Only a simulation may have a seed: noise that can be repeated protects nobody."))
    _check_datasets(run, wrong)
    if private and not errors.keys() & {"private_dataset", "public_dataset"}:
        _check_private_records(run, wrong)
    if errors:
        raise ValidationError(errors)


def _check_datasets(run: Run, wrong: Callable[[str, object], None]) -> None:
    kinds = {"private_dataset": Dataset.Kind.PRIVATE, "public_dataset": Dataset.Kind.PUBLIC}
    if run.test_dataset_id:
        kinds["test_dataset"] = Dataset.Kind.TEST
    present = [field for field in kinds if getattr(run, f"{field}_id")]
    for field in present:
        dataset = getattr(run, field)
        if dataset.study_id != run.study_id:
            wrong(field, _("This dataset belongs to another study. Choose one of this study."))
        elif dataset.kind != kinds[field]:
            kind_words = {"kind": dataset.get_kind_display(), "wanted": kinds[field].label}
            wrong(field, _("This dataset is %(kind)s; choose a %(wanted)s one.") % kind_words)
        elif run.private_dataset_id and dataset.schema != run.private_dataset.schema:
            wrong(
                field,
                _("Its columns or classes differ from those of the private dataset. Import it with that schema."),
            )


def _check_private_records(run: Run, wrong: Callable[[str, object], None]) -> None:
    if run.private_dataset_id and run.public_dataset_id:
        unseen = set(run.public_dataset.seen_classes) - set(run.private_dataset.seen_classes)
        if unseen:
            names = ", ".join(run.public_dataset.classes[number] for number in sorted(unseen))
            wrong(
                "public_dataset",
                _(
                    "It holds points of a class that no private record has (%(names)s): no teacher can learn it. "
                    "Add private records of that class, or import the public points without it."
                )
                % {"names": names},
            )
    if run.private_dataset_id and run.teachers > run.private_dataset.holders:
        wrong(
            "teachers",
            _("The private dataset has %(holders)d holders; ask for at most as many teachers.")
            % {"holders": run.private_dataset.holders},
        )


@transaction.atomic
def run_approve(
    *, run: Run, acting_user: AbstractBaseUser, share: float = 1.0, epsilons: Mapping[str, float] | None = None
) -> Run:
    """Let a draft start, on the consents of this moment, and reserve what it may spend until it ends.

    That is ``share`` (above 0, at most 1) of what is left of every holder's budget and not reserved for another run,
    or, if given, ``epsilons``: level → the ε that the run alone may cost. Approving what has started changes nothing.
    Raises PlanError or ValidationError where the run could not be carried out.
    """
    study_lock(run.study_id)
    run = Run.objects.select_for_update().get(pk=run.pk)
    if run.status != Run.Status.DRAFT:
        if run.status == Run.Status.CANCELLED:
            raise ValidationError(_("This run was cancelled. Propose it anew."))
        return run
    spending_check(share, epsilons or {})
    run.spending_share, run.spending_epsilons = share, dict(epsilons or {})
    run_check(run)
    planned = run_plan(run)
    run.plan = plan_to_json(planned)
    run.snapshot_at = planned.snapshot.at
    run.consent_sequence = planned.snapshot.sequence
    teaching.assignment_create(run, planned)
    if not run.simulation:
        account_open(
            study=run.study,
            run=run.pk,
            at=planned.snapshot.at,
            simulation=False,
            orders=DEFAULT_ORDERS,
            method=run.method,
            conversion=run.conversion,
            groups=openings(run, planned),
            is_reservation=True,
        )
    run.status = Run.Status.APPROVED
    run.approved_by_id = acting_user.pk
    run.approved_at = run.heartbeat = timezone.now()
    run.save()
    send("run_advance", run.pk)
    return run


def spending_check(share: float, epsilons: Mapping[str, float]) -> None:
    """May a run spend so much, see :func:`run_approve`? Raises ValidationError, by parameter."""
    if not 0 < share <= 1:
        raise ValidationError({"share": _("Give a share above 0, and at most 1 for all that is left.")})
    if epsilons and set(epsilons) != set(Level.values):
        raise ValidationError({"epsilons": _("Give an ε for each of HIGH, AVERAGE and LOW, or none at all.")})
    if not all(type(value) in (int, float) and 0 < value < math.inf for value in epsilons.values()):
        raise ValidationError({"epsilons": _("Each ε must be a number above 0.")})
    if epsilons and epsilons[Level.HIGH] > epsilons[Level.LOW]:
        raise ValidationError(
            {"epsilons": _("High protection would be given a larger ε than low protection. Are the values swapped?")}
        )


@transaction.atomic
def run_cancel(*, run: Run, acting_user: AbstractBaseUser) -> Run:
    """End a run that has not ended. What was released stays released and charged; what was reserved is free again."""
    study_lock(run.study_id)
    run = Run.objects.select_for_update().get(pk=run.pk)
    if run.has_ended:
        return run
    run.status = Run.Status.CANCELLED
    run.message = gettext_noop("An operator has cancelled the run.")
    run.ended_at = timezone.now()
    run.save()
    account_settle(run=run.pk)
    with logging_run(run.pk):
        logger.info("The run was cancelled by user %s.", acting_user.pk)
    transaction.on_commit(lambda: run_forget(run))
    return run


def run_fail(run_id: str | UUID, message: str) -> None:
    """End a run that cannot go on; ``message`` is read by staff and holds nothing of the private data."""
    with transaction.atomic():
        run = Run.objects.get(pk=run_id)
        study_lock(run.study_id)
        failed = Run.objects.filter(pk=run_id, status__in=Run.ACTIVE).update(
            status=Run.Status.FAILED, message=message, ended_at=timezone.now()
        )
        if failed:
            account_settle(run=run.pk)
    if failed:
        logger.warning("The run failed: %s", message)
        run_forget(Run.objects.get(pk=run_id))


def run_forget(run: Run) -> None:
    """Delete what a run that has ended must not keep: who was in which teacher, and what the teachers predicted.

    While a worker still holds something of the run it may write once more: then the sweep deletes again.
    """
    if run.study.retain_votes and run.status == Run.Status.FINISHED:
        return
    claimed = run_is_claimed(run)
    arrays_delete_folder(run_folder(run))
    if not claimed:
        Run.objects.filter(pk=run.pk).update(forgotten_at=timezone.now())


STEPS: dict[str, Callable[[Run], bool]] = {
    Run.Status.APPROVED: teaching.run_prepare,
    Run.Status.TRAINING: voting.vote_open,
    Run.Status.VOTING: voting.vote_batch,
    Run.Status.STUDENT: students.student_train,
}
"""What is done in each status: True where the next step can follow at once, False where the run has to wait."""


@contextmanager
def _guarded(run_id: str | UUID) -> Iterator[None]:
    """End the run where it cannot go on; leave it to the sweep where database or storage do not answer."""
    try:
        yield
    except (RunError, PlanError, DataError) as error:
        run_fail(run_id, str(error))
    except (DatabaseError, OSError):
        logger.exception("The run could not go on; it is tried again.")
        Run.objects.filter(pk=run_id, status__in=Run.ACTIVE).update(
            message=gettext_noop(
                "Database or storage did not answer; the run is tried again. If it stays so, see the logs."
            )
        )
    except Exception:
        logger.exception("The run failed unexpectedly.")
        run_fail(run_id, gettext_noop("An unexpected error; the logs of the worker tell it under this run's id."))


def run_advance(run_id: str | UUID) -> None:
    """Take a run as far as it goes: until it ends, or waits for teachers or for another run's vote."""
    with logging_run(run_id), _guarded(run_id):
        with lease(Run, run_id) as token:
            if token is None:
                return
            while True:
                run = Run.objects.select_related("study", "account").get(pk=run_id)
                if run.status not in STEPS or not STEPS[run.status](run):
                    break
        run = Run.objects.select_related("study").get(pk=run_id)
        if run.has_ended:
            run_forget(run)
        # The last teacher may have been trained while this worker held the run: nobody else would go on then.
        elif run.status == Run.Status.TRAINING and teaching.chunks_done(run) and voting.vote_may_open(run):
            send("run_advance", run_id)


def chunk_train(chunk_id: str | int) -> None:
    """Train a chunk of teachers, and go on with the run after the last one."""
    chunk = TeacherChunk.objects.select_related("run").filter(pk=chunk_id).first()
    if chunk is None or chunk.run.status != Run.Status.TRAINING:
        return
    with logging_run(chunk.run_id), _guarded(chunk.run_id):
        teaching.chunk_train(chunk)
        if teaching.chunks_done(chunk.run):
            send("run_advance", chunk.run_id)


def runs_sweep() -> list[str]:
    """Send on every run that nobody alive works on, and forget what ended runs left behind; returns the ids sent."""
    silent = Q(heartbeat__isnull=True) | Q(heartbeat__lt=stale_before())
    quiet = Run.objects.filter(silent, status__in=Run.ACTIVE)
    busy = quiet.filter(chunks__heartbeat__gte=stale_before(), chunks__state="running")
    ids = []
    for pk in quiet.exclude(pk__in=busy.values("pk")).values_list("pk", flat=True):
        # The heartbeat says that the run was just sent, so that no other sweep sends it again; the dead worker's claim
        # goes, because a fresh heartbeat would make it look alive.
        if Run.objects.filter(silent, pk=pk, status__in=Run.ACTIVE).update(heartbeat=timezone.now(), claimed_by=""):
            send("run_advance", pk)
            ids.append(pk)
    if ids:
        logger.info("Sent on %d runs that nobody was working on (timeout %gs).", len(ids), settings.HEARTBEAT_TIMEOUT)
    kept = Q(status=Run.Status.FINISHED, study__retain_votes=True)
    for run in Run.objects.filter(~kept, status__in=Run.ENDED, forgotten_at=None).select_related("study"):
        run_forget(run)
    return [str(pk) for pk in ids]
