"""Uses of a holder's data, for the holder to read."""

from typing import Any, cast
from uuid import UUID

import numpy as np
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from accounting.caps import caps_of
from accounting.ceilings import rooms
from accounting.models import Release, ShareRecord
from accounting.shares import GAP, shares
from common.artifacts import arrays_load
from consent.models import ConsentEvent, DataHolder
from consent.uses import Usage, Use
from training.engine.records import records_load
from training.models import Dataset, Run


def _state(run: Run) -> str:
    if run.status == Run.Status.FINISHED:
        return _("It is finished: a model has learned from what was released.")
    if run.ended_at:
        return _("It ended early; what was released before then stays released.")
    return _("It is under way.")


def _records(holder: DataHolder) -> dict[str, Any]:
    """The holder's own records as they are stored, by dataset."""
    own = {}
    for dataset in Dataset.objects.filter(study=holder.study_id, kind=Dataset.Kind.PRIVATE, removed_at=None):
        arrays = records_load(dataset)
        mine = arrays["holder"] == holder.pk
        if mine.any():
            labels = [dataset.classes[label] for label in arrays["y"][mine]] if "y" in arrays else []
            own[dataset.name] = {"records": arrays["x"][mine].tolist(), "labels": labels}
    return own


def usage(holder: DataHolder) -> Usage:
    """Every run that asked the holder before it released something, newest first, and what may have been spent at most.

    Neither whether an own record voted nor what the own account says: an account may do nothing but silence its holder
    (rule 6 of the design). Who is asked follows from consents and owned records; how much may have been spent, from
    shares.
    """
    uses, asked = [], set()
    for run in (
        Run.objects.filter(study=holder.study_id, rehearsal=False)
        .exclude(spending_began_at=None)
        .order_by("-spending_began_at")
    ):
        first = next((release for release in _batches(run) if _concerns(release, holder)), None)
        if first is not None:
            uses.append(Use(run.purpose, _state(run), first.recorded_at))
            asked.add(run.pk)
    is_full = bool(rooms(holder.study, np.array([holder.pk]))[0] <= 0)
    return Usage(uses, _bound(holder, asked), lambda: _records(holder), is_full)


def _batches(run: Run) -> QuerySet[Release]:
    """The releases of a run that say who was asked: all that have charges."""
    return (
        Release.objects.filter(study=run.study_id, run=run.pk, batch__isnull=False)
        .exclude(charges="")
        .order_by("batch")
    )


def _concerns(release: Release, holder: DataHolder) -> bool:
    """Whether a holder was asked for a release, whatever it cost them."""
    return bool(np.isin(holder.pk, arrays_load(release.charges, "holder")["holder"]))


def _bound(holder: DataHolder, asked: set[UUID]) -> float:
    """The most that a holder can have spent, in μ²: a public share of the largest cap that they had.

    ``asked``: the runs that asked them. Drawings of head counts concern whoever had decided; gaps after a restore
    everybody: what somebody had decided before may have been forgotten.
    """
    events = ConsentEvent.objects.filter(study=holder.study_id, holder=holder).select_related("policy")
    promised = [event.policy.epsilon(event.level) for event in events if event.grants and event.policy]
    if not promised:
        return 0.0
    began = min(event.recorded_at for event in events)
    runs = set(Run.objects.filter(study=holder.study_id).values_list("pk", flat=True))
    of_holder = Q(recorded_at__gte=began) | Q(purpose=GAP)
    opened = ShareRecord.objects.filter(of_holder, study=holder.study_id, kind=ShareRecord.Kind.OPENED)
    concern = [
        subject for subject in opened.values_list("subject", flat=True) if subject in asked or subject not in runs
    ]
    known = shares(holder.study)
    reached = (known[subject] for subject in concern)
    # Up to the limit that it was opened with, less what it gave back: what was not used of earlier shares counts, too.
    fraction = max((cast(float, each.limit) - each.granted + each.committed for each in reached), default=0.0)
    return fraction * float(caps_of(max(promised), holder.study.delta))
