"""What runs a holder's data has been in, for the holder to read."""

from typing import Any

import numpy as np
from django.utils.translation import gettext as _

from accounting.models import HolderSpending, PrivacyGroup
from accounting.privacy import epsilon_from_rdp
from consent.models import DataHolder
from consent.uses import Usage, Use
from training.artifacts import arrays_load
from training.models import Dataset, Run


def _groups(holder: DataHolder) -> list[PrivacyGroup]:
    """The privacy groups that the holder has voted in, newest first."""
    spending = HolderSpending.objects.select_related("history__group__account").filter(holder=holder).first()
    node = spending.history if spending else None
    groups = []
    while node is not None:
        if not node.group.account.is_reservation:
            groups.append(node.group)
        node = node.parent
    return groups


def _state(run: Run, group: PrivacyGroup) -> str:
    if not any(group.published_rdp):
        return _("Nothing was released from it.") if run.ended_at else _("Nothing has been released from it so far.")
    if run.status == Run.Status.FINISHED:
        return _("It is finished: a model has learned from what was released.")
    if run.ended_at:
        return _("It ended early; what was released before then stays released.")
    return _("It is under way.")


def _records(holder: DataHolder) -> dict[str, Any]:
    """The holder's own records as they are stored, by dataset."""
    own = {}
    for dataset in Dataset.objects.filter(study=holder.study_id, kind=Dataset.Kind.PRIVATE):
        arrays = arrays_load(dataset.artifact)
        mine = arrays["holder"] == holder.pk
        if mine.any():
            labels = [dataset.classes[label] for label in arrays["y"][mine]] if "y" in arrays else []
            own[dataset.name] = {"records": arrays["x"][mine].tolist(), "labels": labels}
    return own


def usage(holder: DataHolder) -> Usage:
    """Every run whose vote the holder's data was part of, and the data-independent bound on all of them together."""
    groups = _groups(holder)
    runs = {run.pk: run for run in Run.objects.filter(pk__in=[group.account.run for group in groups])}
    uses = [
        Use(run.title, run.purpose, _state(run, group), group.account.opened_at)
        for group in groups
        if (run := runs.get(group.account.run)) is not None
    ]
    released = [group for group in groups if any(group.published_rdp)]
    epsilon = 0.0
    if released:
        total = np.sum([group.published_rdp for group in released], axis=0)
        epsilon = float(epsilon_from_rdp(total, holder.study.delta, np.asarray(released[0].account.orders))[0])
        # The vote of the newest of them stopped, by sharper costs than this bound, before its budget was exceeded.
        epsilon = min(epsilon, released[0].epsilon)
    return Usage(uses, epsilon, lambda: _records(holder))
