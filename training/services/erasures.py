"""Deletion of records: erasure of a holder's records, removal of datasets, and the end of a study's retention period.

Accounts are not records. A holder's charges and the files that list who was asked are kept, because they are needed to
verify the guarantee and contain only ids and numbers.
"""

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

import numpy as np
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.ceilings import largest_charge_record
from common.artifacts import arrays_delete, arrays_delete_folder, arrays_list, arrays_load
from common.distinct import distinct
from common.keyrings import keys_destroy, ring_destroy
from common.progress import counted
from consent.models import Disposal, Study, study_lock
from consent.services.changes import changes_recorded
from consent.services.disposals import holders_erase, people_forget, scans_erase, study_close_record
from consent.services.erasures import disposal_record, holders_waiting
from consent.services.mail import holders_mail
from training.alliances.services import alliance_leave
from training.engine.questions import run_folder
from training.engine.records import records_load, records_store, ring_of
from training.engine.scheduling import send
from training.methods.pate_teachers import predictions_forget
from training.models import Alliance, Dataset, DatasetImport, Run
from training.services.datasets import classes_seen
from training.services.imports import import_drop
from training.services.runs import run_cancel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _RemainingRows:
    """New file of a dataset that omits some holders' rows; ``gone`` is the number of omitted rows by holder.

    The dataset does not use the file yet.
    """

    dataset: Dataset
    before: str
    artifact: str
    digest: str
    rows: int
    holders: int
    seen_classes: list[int]
    gone: Counter[int]


def records_erase(study_id: int | str) -> int:
    """Erase the records of everyone in a study who has requested it; return the number of people.

    This can be repeated after a crash, because a request stays open until its completion is recorded.
    """
    study, erased = Study.objects.get(pk=study_id), 0
    while waiting := holders_waiting(study):
        remaining = [rest for dataset in _private(study) if (rest := _file_without(dataset, waiting)) is not None]
        try:
            done = _commit(study, waiting, remaining)
        except BaseException:
            arrays_delete(*(rest.artifact for rest in remaining))
            raise
        if not done:  # someone consented again, or another worker was faster, so check again
            arrays_delete(*(rest.artifact for rest in remaining))
        erased += len(waiting) if done else 0
    if erased:
        logger.info("Study %s: erased the records of %s.", study.pk, counted(erased, "person", "people"))
    return erased


def _private(study: Study) -> list[Dataset]:
    return list(Dataset.objects.filter(study=study, kind=Dataset.Kind.PRIVATE, removed_at=None))


def _file_without(dataset: Dataset, holders: Collection[int]) -> _RemainingRows | None:
    """Write a new file of a dataset that omits the rows of ``holders``; return None if they own no rows."""
    arrays = records_load(dataset)
    before, owners = dataset.artifact, arrays_load(dataset.artifact, "holder")["holder"]
    gone, stays = np.isin(owners, list(holders)), ~np.isin(arrays["holder"], list(holders))
    if not gone.any():
        return None
    rest = {name: array[stays] for name, array in arrays.items()}
    artifact, digest = records_store(rest, before=before)
    return _RemainingRows(
        dataset,
        before,
        artifact,
        digest,
        rows=len(rest["holder"]),
        holders=len(distinct(rest["holder"])),
        seen_classes=classes_seen(dataset.outcome, rest.get("y")),
        gone=Counter(owners[gone].tolist()),
    )


@transaction.atomic
def _commit(study: Study, waiting: Collection[int], remaining: list[_RemainingRows]) -> bool:
    """Point the datasets to the new files and record the erasures; return False if the state has changed meanwhile."""
    study = study_lock(study.pk)
    if not set(waiting) <= holders_waiting(study):
        return False
    for rest in remaining:
        with changes_recorded([rest.dataset], acting_user=None):
            changed = Dataset.objects.filter(pk=rest.dataset.pk, artifact=rest.before).update(
                artifact=rest.artifact,
                digest=rest.digest,
                rows=rest.rows,
                holders=rest.holders,
                seen_classes=rest.seen_classes,
            )
        if not changed:
            transaction.set_rollback(True)
            return False
    rows = sum((rest.gone for rest in remaining), Counter[int]())
    holders_erase(study, {holder: rows[holder] for holder in waiting})
    for run in Run.objects.filter(study=study):
        if run.status == Run.Status.FINISHED:
            predictions_forget(run, waiting)
        else:
            coordinates_forget(run)
    transaction.on_commit(lambda: arrays_delete(*(rest.before for rest in remaining)))
    # Keys are destroyed before the commit. After a crash in between, the erasures are still pending and will be
    # repeated.
    for rest in remaining:
        keys_destroy(ring_of(rest.before), rest.gone)
    return True


def coordinates_forget(run: Run) -> None:
    """Delete a run's cached coordinates of records; they are computed again for the remaining participants."""
    folder = f"{run_folder(run)}/coordinates-"
    files = [name for name in arrays_list(run_folder(run)) if name.startswith(folder)]
    transaction.on_commit(lambda: arrays_delete(*files))


# --- The end of datasets and studies ----------------------------------------------------------------------------------


@transaction.atomic
def dataset_remove(*, dataset: Dataset, reason: str, acting_user: AbstractBaseUser) -> Dataset:
    """Delete the arrays of a dataset permanently and log this. Its row is kept for the runs that used it.

    Raises:
        ValidationError: there is no reason, or a run that has not ended uses it.
    """
    study = study_lock(dataset.study_id)
    dataset = Dataset.objects.get(pk=dataset.pk)
    if dataset.removed_at is not None:
        return dataset
    if not reason.strip():
        raise ValidationError({"reason": _("Enter a reason. It is logged.")})
    busy = dataset_runs(dataset).exclude(status__in=Run.ENDED).first()
    if busy is not None:
        raise ValidationError(
            _("The run “%(run)s” uses this dataset and has not ended. Cancel the run, or wait until it ends.")
            % {"run": busy.title}
        )
    rows = dataset.rows if dataset.kind == Dataset.Kind.PRIVATE else None
    _arrays_end(dataset, acting_user)
    disposal_record(
        study=study,
        kind=Disposal.Kind.DATASET,
        acting_user=acting_user,
        subject=dataset.name,
        rows=rows,
        reason=reason.strip(),
    )
    logger.info("User %s removed dataset %s.", acting_user.pk, dataset.pk)
    return dataset


def dataset_runs(dataset: Dataset) -> QuerySet[Run]:
    """Return the runs that have chosen a dataset."""
    public = Q(public_dataset=dataset) | Q(labelled_dataset=dataset)
    uses = Q(private_dataset=dataset) | public | Q(test_dataset=dataset)
    return Run.objects.filter(uses, study=dataset.study_id)


def _arrays_end(dataset: Dataset, acting_user: AbstractBaseUser | None) -> None:
    """Delete a dataset's arrays after the commit and, if it is private, the data that runs keep from it."""
    artifact = dataset.artifact
    dataset.removed_at, dataset.artifact = timezone.now(), ""
    if dataset.kind == Dataset.Kind.PRIVATE:
        dataset.digest, dataset.rows, dataset.holders, dataset.seen_classes = "", 0, 0, []
        for run in Run.objects.filter(private_dataset=dataset, forgotten_at=None):
            _run_end(run)
    with changes_recorded([dataset], acting_user=acting_user):
        dataset.save()

    def delete() -> None:
        ring_destroy(ring_of(artifact))
        arrays_delete(artifact)

    transaction.on_commit(delete)


def _run_end(run: Run) -> None:
    """Delete the private data that an ended run keeps for a replay, because a replay is no longer possible."""
    Run.objects.filter(pk=run.pk).update(forgotten_at=timezone.now())
    transaction.on_commit(lambda: arrays_delete_folder(run_folder(run)))


@transaction.atomic
def study_close(*, study: Study, reason: str, acting_user: AbstractBaseUser, erase_after: date | None = None) -> Study:
    """Close a study permanently and log this. This ends runs, participation, invitations and alliances.

    Releases and receipts are kept. Private records are erased after their last day.

    Args:
        reason: the reason, shown to holders.
        erase_after: the last day of the records; by default the day announced to holders, and never later.

    Raises:
        ValidationError: the reason or the last day is missing, the last day is later than announced, or a run has not
            ended.
    """
    study = study_lock(study.pk)
    if study.is_closed:
        return study
    errors = {}
    if not reason.strip():
        errors["reason"] = _("Enter a reason. Data holders read the reason, and it is logged.")
    last = erase_after or study.retention_until
    if last is None and not study.rehearsal:
        errors["erase_after"] = _("Enter the last day on which the private records are kept.")
    elif last is not None and study.retention_until is not None and last > study.retention_until:
        errors["erase_after"] = _("Data holders were promised an earlier day. Choose that day or an earlier one.")
    if errors:
        raise ValidationError(errors)
    if Run.objects.filter(study=study, status__in=Run.ACTIVE).exists():
        raise ValidationError(_("A run of this study is in progress. Wait until it has ended, or cancel it."))
    for unfinished in DatasetImport.objects.filter(study=study):
        import_drop(dataset_import=unfinished)
    for draft in Run.objects.filter(study=study, status=Run.Status.DRAFT):
        run_cancel(run=draft, acting_user=acting_user, message=gettext_noop("The study was closed."))
    _alliances_leave(study, acting_user)
    study = study_close_record(study=study, acting_user=acting_user, reason=reason.strip(), erase_after=last)
    holders_mail("study_closed", study)
    send("records_due_erase")
    return study


def _alliances_leave(study: Study, acting_user: AbstractBaseUser | None) -> None:
    """Leave every alliance of a study that is ending, because every run would otherwise wait for it."""
    for alliance in Alliance.objects.filter(study=study, left_at=None):
        alliance_leave(alliance=alliance, acting_user=acting_user)


@transaction.atomic
def records_expire(*, study: Study, today: date | None = None) -> int:
    """Erase all private records of a study after their last day, and close it if necessary; return the number of rows.

    This covers rows of private datasets, scans of letters, data that runs keep for a replay, pseudonyms and their key,
    links, and the connections of user accounts to the study. Decisions, releases and charges are kept, with numbers
    that do not identify people.
    """
    study = study_lock(study.pk)
    if study.expired_at is not None or not is_over(study, today):
        return 0
    for run in Run.objects.filter(study=study).exclude(status__in=Run.ENDED):
        run_cancel(
            run=run, acting_user=None, message=gettext_noop("The retention period for the study's records has ended.")
        )
    _alliances_leave(study, None)
    if not study.is_closed:
        study_close_record(
            study=study,
            acting_user=None,
            reason=gettext_noop("The retention period for the study's records has ended."),
        )
    for unfinished in DatasetImport.objects.filter(study=study):
        import_drop(dataset_import=unfinished)
    datasets = Dataset.objects.filter(study=study, kind=Dataset.Kind.PRIVATE, removed_at=None)
    rows = sum(dataset.rows for dataset in datasets)
    for dataset in datasets:
        _arrays_end(dataset, None)
    for run in Run.objects.filter(study=study, forgotten_at=None):
        _run_end(run)
    files = scans_erase(study)
    largest_charge_record(study)
    people_forget(study)
    study.expired_at = timezone.now()
    with changes_recorded([study], acting_user=None):
        study.save(update_fields=["expired_at"])
    disposal_record(study=study, kind=Disposal.Kind.EXPIRED, acting_user=None, rows=rows, files=files)
    logger.info("Study %s: erased the private records (%s).", study.pk, counted(rows, "row", "rows"))
    return rows


def is_over(study: Study, today: date | None = None) -> bool:
    """Return whether the last day of a study's private records has passed; always False for a rehearsal."""
    last = study.retention_until
    return not study.rehearsal and last is not None and last < (today or timezone.localdate())


def studies_to_erase(today: date | None = None) -> list[Study]:
    """Return the studies whose private records must now be erased."""
    return [study for study in Study.objects.filter(expired_at=None, rehearsal=False) if is_over(study, today)]


def studies_waiting() -> list[Study]:
    """Return the studies with pending requests for erasure."""
    studies = Study.objects.filter(disposals__kind=Disposal.Kind.ASKED, expired_at=None).distinct()
    return [study for study in studies if holders_waiting(study)]


def records_due_erase() -> None:
    """Carry out requested erasures and delete records past their last day. If a study fails, continue with the next."""
    for study in studies_waiting():
        try:
            records_erase(study.pk)
        except Exception:
            logger.exception("Records of study %s could not be erased; this will be retried.", study.pk)
    for study in studies_to_erase():
        try:
            records_expire(study=study)
        except Exception:
            logger.exception("The private records of study %s could not be erased; this will be retried.", study.pk)
