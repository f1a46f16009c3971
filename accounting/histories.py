"""The tree of spending histories: holders move along it when a run counts them, and back when it never voted."""

from collections.abc import Iterable, Sequence

import numpy as np
from django.db import connections, router

from accounting.models import HolderSpending, PrivacyGroup, RunAccount, SpendingHistory
from accounting.selectors import holder_histories
from consent.models import Study

#: How many holders one statement moves: no database takes any number of values.
CHUNK = 10_000


def histories_change(
    *, study: Study, leave: RunAccount | None = None, join: Sequence[tuple[PrivacyGroup, np.ndarray]] = ()
) -> None:
    """Take the groups of ``leave`` out of all histories, then append each group of ``join`` to those of its holders.

    ``leave`` is an account that was never charged: afterwards it is as if its run had never been. ``join``: groups with
    the ids of their holders, (H,) each, nobody in two of them. Holders are written once, whatever happens to them.
    """
    moved = _nodes_without(leave) if leave else {}
    rows = holder_histories(study)
    holders = np.unique(np.concatenate([rows["holder"], *(members for _, members in join)]))
    before = np.zeros(len(holders), dtype=np.int64)
    before[np.searchsorted(holders, rows["holder"])] = rows["history"]
    after = _replaced(before, moved)
    for group, members in join:
        place = np.searchsorted(holders, members)
        parents = after[place]
        children = {int(parent): _node(study, int(parent), group.pk) for parent in np.unique(parents)}
        after[place] = _replaced(parents, children)
    changed = before != after
    _holders_write(holders[changed], after[changed])
    for node in sorted(moved, reverse=True):  # children are younger than their parents
        SpendingHistory.objects.filter(pk=node).delete()


def _nodes_without(account: RunAccount) -> dict[int, int]:
    """Each node with a group of ``account`` on its path → the node of that path without them, 0 where none is left."""
    groups = set(account.groups.values_list("pk", flat=True))
    moved: dict[int, int] = {}
    nodes = SpendingHistory.objects.filter(study=account.study).order_by("pk")
    for node, parent, group in list(nodes.values_list("pk", "parent_id", "group_id")):  # parents before their children
        if group in groups:
            moved[node] = moved.get(parent or 0, parent or 0)
        elif parent in moved:
            moved[node] = _node(account.study, moved[parent], group)
    return moved


def _node(study: Study, parent: int, group: int) -> int:
    node, _ = SpendingHistory.objects.get_or_create(study=study, parent_id=parent or None, group_id=group)
    return node.pk


def _replaced(values: np.ndarray, by: dict[int, int]) -> np.ndarray:
    """``values`` with each that ``by`` knows replaced."""
    found, position = np.unique(values, return_inverse=True)
    return np.array([by.get(int(value), int(value)) for value in found], dtype=np.int64)[position]


def _holders_write(holders: np.ndarray, histories: np.ndarray) -> None:
    """Each holder's new history; who has none any more loses their row. A million of them take seconds, not minutes."""
    connection = connections[router.db_for_write(HolderSpending)]
    into = f"INSERT INTO {HolderSpending._meta.db_table} (holder_id, history_id)"
    anew = "ON CONFLICT (holder_id) DO UPDATE SET history_id = excluded.history_id"
    stay = histories != 0
    with connection.cursor() as cursor:
        for members, nodes in _chunks(holders[stay], histories[stay]):
            if connection.vendor == "postgresql":
                rows = "SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
                cursor.execute(f"{into} {rows} {anew}", [members, nodes])
            else:
                cursor.executemany(f"{into} VALUES (%s, %s) {anew}", list(zip(members, nodes, strict=True)))
    for members, _ in _chunks(holders[~stay], histories[~stay]):
        HolderSpending.objects.filter(holder_id__in=members).delete()


def _chunks(*columns: np.ndarray) -> Iterable[tuple[list[int], ...]]:
    for start in range(0, len(columns[0]), CHUNK):
        yield tuple(column[start : start + CHUNK].tolist() for column in columns)
