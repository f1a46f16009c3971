"""Teachers: who must not stay in which of them, and what every teacher says of the public points."""

from functools import lru_cache

import numpy as np
from django.utils.translation import gettext_noop

from common.artifacts import arrays_load, arrays_save
from common.jobs.parts import parts_send
from consent.models import ConsentEvent
from consent.selectors import Snapshot, holders_lapsed_since
from learning.learners import learner_create
from learning.mechanisms.choices import HolderChoices
from learning.mechanisms.pate import NO_VOTE
from learning.mechanisms.pate.teachers import PublicGraph, Teachers, teacher_classes
from training.engine.asking import run_part_do
from training.engine.records import records_load
from training.methods.pate.ballot import assignment_name, predictions_name
from training.methods.space import space_first
from training.models import Dataset, Run, TeacherChunk

_DIED = gettext_noop(
    "Workers died again and again while they trained the same teachers; most likely their memory did not suffice. "
    "Propose the run anew with more teachers, each of which then learns from fewer records, or with a smaller learner; "
    "or give the workers more memory."
)


def holders_gone(run: Run, assignment: dict[str, np.ndarray], snapshot: Snapshot) -> np.ndarray:
    """Holders who are in a run and must not stay, by the consents of a new ``snapshot``.

    Those who withdrew, even if they have come back since; those whose consent does not count any more; and those whose
    ε has become smaller than the one that their teacher's vote is charged by.
    """
    if run.rehearsal:
        return np.empty(0, dtype=np.int64)
    pairs = assignment["holder"]
    needed = np.array([group["epsilon"] for group in run.plan["groups"]])[assignment["group"]]
    present = np.isin(pairs, snapshot.holders)
    stricter = np.zeros(len(pairs), dtype=bool)
    stricter[present] = snapshot.epsilons[np.searchsorted(snapshot.holders, pairs[present])] < needed[present]
    return np.intersect1d(pairs, np.union1d(left_since_snapshot(run), pairs[~present | stricter]))


def assignment_without(run: Run, assignment: dict[str, np.ndarray], gone: np.ndarray) -> np.ndarray:
    """Take holders out of a run that has not voted yet; returns the teachers that they were in. The caller saves it."""
    of_gone = np.isin(assignment["holder"], gone)
    pairs = {name: assignment[name][~of_gone] for name in ("holder", "teacher", "group")}
    run.consent_sequence = ConsentEvent.objects.filter(study_id=run.study_id).latest("sequence").sequence
    run.assignment = assignment_name(run)
    arrays_save(run.assignment, **pairs, seeds=assignment["seeds"])
    return np.unique(assignment["teacher"][of_gone])


def chunks_send(run: Run) -> bool:
    """Queue the chunks that wait; True where there are none left to do."""
    parts_send(run.chunks.all(), "training.tasks.chunk_train")
    return are_chunks_done(run)


def are_chunks_done(run: Run) -> bool:
    return not run.chunks.exclude(state=TeacherChunk.State.DONE).exists()


def chunk_train(chunk: TeacherChunk) -> bool:
    """Train the teachers of a chunk, and keep what they say of the public points; whether this call has."""

    def work(chunk: TeacherChunk) -> str:
        artifact = predictions_name(chunk)
        arrays_save(artifact, predictions=_predictions(chunk.run, chunk))
        return artifact

    return run_part_do(chunk, status=Run.Status.PREPARING, work=work, died=_DIED)


def public_graph(public: Dataset) -> PublicGraph:
    """Return the graph of public points that teachers learn from, in the usual representation; kept by a worker."""
    return _graph(public.pk, public.artifact)


# Files of datasets never change under one name.
@lru_cache(maxsize=2)
def _graph(public_id: int, _artifact: str) -> PublicGraph:
    space = space_first(Dataset.objects.get(pk=public_id), HolderChoices())
    return PublicGraph.of(space.fitted, space.public)


def left_since_snapshot(run: Run) -> np.ndarray:
    """Holders whose consent ended after the run counted it.

    Those who withdrew after the last consent event that it counted, even if they have come back since, and those whose
    consent has ended since the snapshot without a withdrawal (:class:`consent.people.circumstances.Lapse`).
    """
    events = ConsentEvent.objects.filter(
        study_id=run.study_id, sequence__gt=run.consent_sequence, kind=ConsentEvent.Kind.WITHDRAWN
    )
    withdrawn = np.array(list(events.order_by().values_list("holder_id", flat=True).distinct()), dtype=np.int64)
    assert run.snapshot_at is not None, "a run that has holders has a snapshot"
    return np.union1d(withdrawn, holders_lapsed_since(run.study, run.snapshot_at))


def _predictions(run: Run, chunk: TeacherChunk) -> np.ndarray:
    """(teachers of the chunk, public points); a teacher all of whose holders withdrew says ``NO_VOTE``."""
    assignment = arrays_load(run.assignment)
    withdrawn = np.empty(0, dtype=np.int64) if run.rehearsal else left_since_snapshot(run)
    of_chunk = (assignment["teacher"] >= chunk.start) & (assignment["teacher"] < chunk.stop)
    private = records_load(run.private_dataset, holders=assignment["holder"][of_chunk])
    public = arrays_load(run.public_points.artifact)["x"]
    chosen = Teachers.from_json(run.choices)
    learner = learner_create(chosen.learner, chosen.learner_parameters)
    graph = public_graph(run.public_points) if chosen.learns_unlabelled(run.public_points.schema["kind"]) else None
    order = np.argsort(private["holder"], kind="stable")
    owners = private["holder"][order]
    predictions = np.full((chunk.stop - chunk.start, len(public)), NO_VOTE, dtype=np.int16)
    for teacher in range(chunk.start, chunk.stop):
        holders = np.setdiff1d(assignment["holder"][assignment["teacher"] == teacher], withdrawn)
        first, last = np.searchsorted(owners, holders, "left"), np.searchsorted(owners, holders, "right")
        rows = np.concatenate([order[:0], *(order[a:b] for a, b in zip(first, last, strict=True))])
        if not len(rows):
            continue
        try:
            predictions[teacher - chunk.start] = teacher_classes(
                learner,
                private["x"][rows],
                private["y"][rows],
                public,
                graph,
                classes=len(run.private_dataset.classes),
                seed=int(assignment["seeds"][teacher]),
            )
        except (OSError, ImportError):  # the machine's, not the records': tried again
            raise
        except Exception:  # noqa: S112
            # That it could not learn follows from its members' records: it casts no vote, and nobody is told.
            continue
    return predictions
