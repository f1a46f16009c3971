"""Erasure of a holder's records everywhere in training: rows of datasets, coordinates, predictions of teachers.

Accounts are not records. A holder's charges stay, and so do the files that list who was asked: they are needed to check
the guarantee, and hold only ids and numbers.
"""

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from django.db import transaction

from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from common.distinct import distinct
from common.keyrings import keys_destroy
from common.progress import counted
from consent.models import Disposal, Study, study_lock
from consent.services.changes import changes_recorded
from consent.services.disposals import holders_erase
from consent.services.erasures import holders_waiting
from learning.mechanisms.pate import NO_VOTE
from training.engine.attempts import run_folder
from training.engine.records import records_load, records_store, ring_of
from training.methods.pate_teachers import predictions_name
from training.models import Dataset, Run, TeacherChunk
from training.services.datasets import classes_seen

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Rest:
    """A dataset without some holders: stored, but not yet named by its row. ``gone``: rows by holder."""

    dataset: Dataset
    before: str
    artifact: str
    digest: str
    rows: int
    holders: int
    seen_classes: list[int]
    gone: Counter[int]


def records_erase(study_id: int | str) -> int:
    """Erase the records of everyone in a study who waits for it; return the number of people.

    Can be repeated after a crash: a request waits until it is recorded as done.
    """
    study, erased = Study.objects.get(pk=study_id), 0
    while waiting := holders_waiting(study):
        rests = [rest for dataset in _private(study) if (rest := _rest(dataset, waiting)) is not None]
        try:
            done = _commit(study, waiting, rests)
        except BaseException:
            arrays_delete(*(rest.artifact for rest in rests))
            raise
        if not done:  # someone consented again, or another worker was faster: check again
            arrays_delete(*(rest.artifact for rest in rests))
        erased += len(waiting) if done else 0
    if erased:
        logger.info("Records erased in study %s: those of %s.", study.pk, counted(erased, "person", "people"))
    return erased


def _private(study: Study) -> list[Dataset]:
    return list(Dataset.objects.filter(study=study, kind=Dataset.Kind.PRIVATE, removed_at=None))


def _rest(dataset: Dataset, holders: Collection[int]) -> _Rest | None:
    """Store a dataset without some holders; return None if they own no rows of it."""
    arrays = records_load(dataset)
    before, owners = dataset.artifact, arrays_load(dataset.artifact, "holder")["holder"]
    gone, stays = np.isin(owners, list(holders)), ~np.isin(arrays["holder"], list(holders))
    if not gone.any():
        return None
    rest = {name: array[stays] for name, array in arrays.items()}
    artifact, digest = records_store(rest, before=before)
    return _Rest(
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
def _commit(study: Study, waiting: Collection[int], rests: list[_Rest]) -> bool:
    """Let rows name the new files and record the erasures; change nothing and return False if the state has changed."""
    study = study_lock(study.pk)
    if not set(waiting) <= holders_waiting(study):
        return False
    for rest in rests:
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
    rows = sum((rest.gone for rest in rests), Counter[int]())
    holders_erase(study, {holder: rows[holder] for holder in waiting})
    for run in Run.objects.filter(study=study):
        if run.status == Run.Status.FINISHED:
            predictions_forget(run, waiting)
        else:
            coordinates_forget(run)
    transaction.on_commit(lambda: arrays_delete(*(rest.before for rest in rests)))
    # Before the commit: after a crash in between, the erasures still wait, although the keys are already destroyed.
    for rest in rests:
        keys_destroy(ring_of(rest.before), rest.gone)
    return True


def coordinates_forget(run: Run) -> None:
    """Delete a run's cached coordinates of records; those of people who still take part are computed again."""
    folder = f"{run_folder(run)}/coordinates-"
    files = [name for name in arrays_list(run_folder(run)) if name.startswith(folder)]
    transaction.on_commit(lambda: arrays_delete(*files))


def predictions_forget(run: Run, holders: Collection[int]) -> None:
    """Make every teacher of a finished run that learned from one of ``holders`` predict nothing from now on.

    Only a study that keeps predictions for auditors still has them. Charges are recomputed without them.
    """
    chunks = list(run.chunks.exclude(artifact=""))
    if not chunks or run.forgotten_at is not None or not run.assignment:
        return
    assignment = arrays_load(run.assignment, "holder", "teacher")
    teachers = np.unique(assignment["teacher"][np.isin(assignment["holder"], list(holders))])
    for chunk in chunks:
        theirs = teachers[(teachers >= chunk.start) & (teachers < chunk.stop)] - chunk.start
        predictions = arrays_load(chunk.artifact)["predictions"]
        if not len(theirs) or (predictions[theirs] == NO_VOTE).all():
            continue
        predictions[theirs] = NO_VOTE
        before, artifact = chunk.artifact, predictions_name(chunk)
        arrays_save(artifact, predictions=predictions)
        TeacherChunk.objects.filter(pk=chunk.pk).update(artifact=artifact)
        transaction.on_commit(lambda before=before: arrays_delete(before))  # type: ignore[misc]


def predictions_forget_erased(run: Run) -> None:
    """Apply :func:`predictions_forget` to everyone whose records were erased during the run."""
    erased = Disposal.objects.filter(study=run.study_id, kind=Disposal.Kind.ERASED)
    if erased.exists():
        with transaction.atomic():
            study_lock(run.study_id)
            predictions_forget(Run.objects.get(pk=run.pk), set(erased.values_list("holder_id", flat=True)))
