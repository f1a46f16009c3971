"""Erasure of a holder's records wherever training keeps them: rows of datasets, coordinates, predictions of teachers.

Accounts are not records. What a holder was charged stays, and so do the files that say who was asked: they are what the
guarantee is checked by, and hold ids and numbers alone.
"""

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from django.db import transaction

from common.artifacts import arrays_delete, arrays_list, arrays_load, arrays_save
from common.counted import counted
from common.distinct import distinct
from common.keyrings import keys_destroy
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
    """A dataset as it is without some holders: stored, and not yet named by its row. ``gone``: rows by holder."""

    dataset: Dataset
    before: str
    artifact: str
    digest: str
    rows: int
    holders: int
    seen_classes: list[int]
    gone: Counter[int]


def records_erase(study_id: int | str) -> int:
    """Erase the records of everybody in a study who waits for it; returns how many people that were.

    Can be repeated after a crash: what was asked for waits until it is recorded as done.
    """
    study, erased = Study.objects.get(pk=study_id), 0
    while waiting := holders_waiting(study):
        rests = [rest for dataset in _private(study) if (rest := _rest(dataset, waiting)) is not None]
        try:
            done = _commit(study, waiting, rests)
        except BaseException:
            arrays_delete(*(rest.artifact for rest in rests))
            raise
        if not done:  # somebody consented again, or another worker was faster: look again
            arrays_delete(*(rest.artifact for rest in rests))
        erased += len(waiting) if done else 0
    if erased:
        logger.info("Records erased in study %s: those of %s.", study.pk, counted(erased, "person", "people"))
    return erased


def _private(study: Study) -> list[Dataset]:
    return list(Dataset.objects.filter(study=study, kind=Dataset.Kind.PRIVATE, removed_at=None))


def _rest(dataset: Dataset, holders: Collection[int]) -> _Rest | None:
    """Store a dataset without some holders; None where they own nothing of it."""
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
        seen_classes=classes_seen(dataset.outcome, rest),
        gone=Counter(owners[gone].tolist()),
    )


@transaction.atomic
def _commit(study: Study, waiting: Collection[int], rests: list[_Rest]) -> bool:
    """Let rows name the new files and record the erasures; False, and nothing is changed, if it is not so any more."""
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
    # Before the commit: where a crash comes between, they wait for what is done already.
    for rest in rests:
        keys_destroy(ring_of(rest.before), rest.gone)
    return True


def coordinates_forget(run: Run) -> None:
    """Delete coordinates of records that a run keeps while it asks; whoever still takes part, theirs are made anew."""
    folder = f"{run_folder(run)}/coordinates-"
    files = [name for name in arrays_list(run_folder(run)) if name.startswith(folder)]
    transaction.on_commit(lambda: arrays_delete(*files))


def predictions_forget(run: Run, holders: Collection[int]) -> None:
    """Let every teacher of a finished run that learned from one of ``holders`` say nothing any more.

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
    """:func:`predictions_forget` for whoever's records were erased while the run was under way."""
    erased = Disposal.objects.filter(study=run.study_id, kind=Disposal.Kind.ERASED)
    if erased.exists():
        with transaction.atomic():
            study_lock(run.study_id)
            predictions_forget(Run.objects.get(pk=run.pk), set(erased.values_list("holder_id", flat=True)))
