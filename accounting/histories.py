"""The tree of spending histories: holders move along it when a run counts them, and back when it never voted."""

from typing import cast

import numpy as np
from django.db.models import QuerySet

from accounting import selectors
from accounting.models import HolderSpending, PrivacyGroup, RunAccount, SpendingHistory
from consent.models import Study

#: How many holders one statement moves.
CHUNK = 5_000


def histories_extend(*, study: Study, group: PrivacyGroup, holders: np.ndarray) -> None:
    """Append ``group`` to the history of each holder; ``holders`` (H,) ids."""
    parents = selectors.histories_of(study, holders)
    for parent in np.unique(parents):
        node = _node(study, int(parent) or None, group.pk)
        members = holders[parents == parent].tolist()
        for start in range(0, len(members), CHUNK):
            chunk = members[start : start + CHUNK]
            if parent:
                HolderSpending.objects.filter(holder_id__in=chunk).update(history=node)
            else:
                HolderSpending.objects.bulk_create(HolderSpending(holder_id=pk, history_id=node) for pk in chunk)


def histories_leave(*, account: RunAccount) -> None:
    """Take the groups of an account that was never charged out of all histories, as if the run had never been."""
    groups = set(account.groups.values_list("pk", flat=True))
    moved: dict[int, int | None] = {}  # node → the node of the same path without the groups
    for node, parent, group in _nodes(account.study):
        if group in groups:
            moved[node] = moved.get(cast(int, parent), parent)
        elif parent in moved:
            moved[node] = _node(account.study, moved[parent], group)
    for old, new in moved.items():
        holders = HolderSpending.objects.filter(history_id=old)
        if new is None:
            holders.delete()
        else:
            holders.update(history_id=new)
    for old in sorted(moved, reverse=True):  # children are younger than their parents
        SpendingHistory.objects.filter(pk=old).delete()


def _nodes(study: Study) -> QuerySet[SpendingHistory, tuple[int, int | None, int]]:
    """(node, parent, group) of all histories of a study, parents before their children."""
    return SpendingHistory.objects.filter(study=study).order_by("pk").values_list("pk", "parent_id", "group_id")


def _node(study: Study, parent: int | None, group: int) -> int:
    node, _ = SpendingHistory.objects.get_or_create(study=study, parent_id=parent, group_id=group)
    return node.pk
