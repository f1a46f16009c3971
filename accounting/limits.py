"""What a run that votes may spend from here on: budgets, its allowance, and what is held for other runs."""

from collections import defaultdict
from dataclasses import dataclass
from typing import cast

import numpy as np

from accounting.models import PrivacyGroup, RunAccount, SpendingHistory
from accounting.privacy import Conversion
from accounting.selectors import groups_reserving, stricter_by
from consent.selectors import epsilons_since


@dataclass(frozen=True)
class Limits:
    """What the next charges to an account must stay within: C conditions, each on one of its groups.

    Condition c holds where ``beside[c]`` and the charge to group ``group[c]`` together convert to at most
    ``epsilon[c]``. ``groups``: the account's G groups as they were read for it; ``group`` (C,) indices of them;
    ``beside`` (C, R) RDP; ``epsilon`` (C,).
    """

    groups: list[PrivacyGroup]
    group: np.ndarray
    beside: np.ndarray
    epsilon: np.ndarray


def limits_of(account: RunAccount) -> Limits:
    """The conditions on what a run that votes may spend from here on.

    Each group has one on its budget, the ε in force at this moment, beside all that was spent; one on its allowance,
    if the run has one; and one for each set of reservations that some of its holders are in, so that what is held for
    other runs stays there for them.
    """
    groups = list(account.groups.order_by("index"))  # read now, whatever the account has read before
    rows: list[tuple[int, np.ndarray, float]] = []
    others = {} if account.simulation else _held_beside(account, groups)
    # A policy since then that gives the level a smaller ε counts at once (rule 5).
    later = epsilons_since(account.study, account.opened_at)
    for group in groups:
        spent = np.asarray(group.spent_rdp)
        total = np.asarray(group.past_rdp) + spent
        budget = min(group.epsilon, later[group.level])
        rows.append((group.index, total, budget))
        if group.allowance is not None:
            rows.append((group.index, spent, group.allowance))
        rows += [(group.index, total + held, max(budget, epsilon)) for held, epsilon in others.get(group.pk, ())]
    return Limits(
        groups=groups,
        group=np.array([group for group, _, _ in rows], dtype=np.int64),
        beside=np.array([beside for _, beside, _ in rows]).reshape(len(rows), len(account.orders)),
        epsilon=np.array([epsilon for _, _, epsilon in rows]),
    )


def _held_beside(account: RunAccount, groups: list[PrivacyGroup]) -> dict[int, list[tuple[np.ndarray, float]]]:
    """Group of the account → what is held for other runs of its holders, and the largest ε among those reservations:
    one for each set of reservations that holders of the group are in."""
    others = {group.pk: group for group in groups_reserving(account.study).exclude(account=account)}
    if not others:
        return {}
    more = stricter_by(account.delta, np.asarray(account.orders), cast(Conversion, account.conversion))
    mine = {group.pk for group in groups}
    paths: dict[int, frozenset[int]] = {0: frozenset()}
    nodes = SpendingHistory.objects.filter(study=account.study_id).order_by("pk")
    for node, parent, group in nodes.values_list("pk", "parent_id", "group_id"):
        paths[node] = paths[parent or 0] | ({group} & (mine | others.keys()))
    result: dict[int, list[tuple[np.ndarray, float]]] = defaultdict(list)
    for path in set(paths.values()):
        reservations = [others[group] for group in path - mine]
        if reservations:
            held = np.sum([group.held_rdp() for group in reservations], axis=0)
            if any(group.account.conversion == "classic" and group.held_rdp().any() for group in reservations):
                held = held + more
            for group in path & mine:
                result[group].append((held, max(reservation.epsilon for reservation in reservations)))
    return result
