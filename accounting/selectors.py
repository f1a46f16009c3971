"""Every read of the accounting app that joins or aggregates."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from accounting.models import HolderSpending, LedgerEntry, PrivacyGroup, RunAccount, SpendingHistory
from accounting.privacy import DEFAULT_ORDERS, Conversion, epsilon_from_rdp, remaining_epsilon
from accounting.privacy.conversion import conversion_penalty
from consent.models import EpsilonPolicy, Study
from consent.selectors import (
    LEVELS,
    EpsilonRule,
    Snapshot,
    forms_that_count,
    last_events,
)


def holder_histories(study: Study) -> np.ndarray:
    """(H,) records ``holder``, ``history`` of all holders who have been counted by a run, in the order of holders."""
    rows = HolderSpending.objects.filter(holder__study=study).values_list("holder_id", "history_id")
    found = np.fromiter(rows.iterator(chunk_size=10_000), dtype=[("holder", np.int64), ("history", np.int64)])
    found.sort(order="holder")
    return found


def histories_of(study: Study, holders: np.ndarray) -> np.ndarray:
    """The history id of each of ``holders`` (H,), 0 where a holder has none."""
    rows = holder_histories(study)
    histories = np.zeros(len(holders), dtype=np.int64)
    if len(rows):
        position = np.minimum(np.searchsorted(rows["holder"], holders), len(rows) - 1)
        found = rows["holder"][position] == holders
        histories[found] = rows["history"][position[found]]
    return histories


def past_curves(study: Study, orders: np.ndarray = DEFAULT_ORDERS) -> dict[int, np.ndarray]:
    """History id → RDP curve (R,): the sum of what its groups have spent. History 0 is the empty one."""
    for run, kept_at in RunAccount.objects.filter(study=study, simulation=False).values_list("run", "orders"):
        if not np.array_equal(kept_at, orders):
            raise ValueError(
                f"The account of run {run} was kept at other Rényi orders; its curves cannot be "
                "added to these. Use the orders that the study began with."
            )
    groups = PrivacyGroup.objects.filter(account__study=study, account__simulation=False).order_by()
    spent = {pk: np.asarray(curve) for pk, curve in groups.values_list("pk", "spent_rdp")}
    return _sums_along_histories(study, spent, orders)


def held_curves(
    study: Study, orders: np.ndarray = DEFAULT_ORDERS, conversion: Conversion = "improved"
) -> dict[int, np.ndarray]:
    """History id → RDP curve (R,): what a run that counts by ``conversion`` has to leave to those of its holders' other
    runs that have not ended: what is held for them beyond what they have spent, see :func:`stricter_by`."""
    groups = list(groups_reserving(study))
    held = _sums_along_histories(study, {group.pk: group.held_rdp() for group in groups}, orders)
    classic = {group.pk: group.held_rdp() for group in groups if group.account.conversion == "classic"}
    if not classic:
        return held
    of_classic, more = _sums_along_histories(study, classic, orders), stricter_by(study.delta, orders, conversion)
    return {node: curve + more if of_classic[node].any() else curve for node, curve in held.items()}


def stricter_by(delta: float, orders: np.ndarray, conversion: Conversion) -> np.ndarray:
    """(R,): by how much more than by ``conversion`` a run is counted that counts by the classic one.

    What is held for such a run is there for it as long as all that is spent, and this, stay within the budget.
    """
    return conversion_penalty(delta, orders, "classic") - conversion_penalty(delta, orders, conversion)


def groups_reserving(study: Study) -> QuerySet[PrivacyGroup]:
    """The groups for which something may be held."""
    return PrivacyGroup.objects.filter(
        account__study=study, account__simulation=False, account__settled_at=None, reserved_rdp__isnull=False
    ).select_related("account")


def _sums_along_histories(study: Study, curves: dict[int, np.ndarray], orders: np.ndarray) -> dict[int, np.ndarray]:
    """History id → the sum of its groups' ``curves``; a group without one adds nothing."""
    sums = {0: np.zeros(len(orders))}
    nodes = SpendingHistory.objects.filter(study=study).order_by("pk").values_list("pk", "parent_id", "group_id")
    for node, parent, group in nodes:  # a parent is older than its children, so its sum is there already
        before = sums[parent or 0]
        sums[node] = before + curves[group] if group in curves else before
    return sums


@dataclass(frozen=True)
class Standing:
    """Holders of a study with the same level, ε budget and past spending: a privacy group of the next run.

    ``holders`` (H,) ids; ``past`` (R,) RDP that was spent, ``held`` (R,) RDP that is held for other runs; ``spent`` the
    ε that ``past`` amounts to at the study's δ, and ``remaining`` the ε of what still fits beside both.
    """

    name: str
    level: str
    epsilon: float
    holders: np.ndarray
    past: np.ndarray
    held: np.ndarray
    spent: float
    remaining: float


def standings(
    study: Study, snapshot: Snapshot, *, conversion: Conversion = "improved", fresh: bool = False
) -> list[Standing]:
    """The snapshot's holders by level, ε, past spending and what is held for other runs; strictest first.

    ``fresh`` looks away from all of it: what a simulation starts from.
    """
    curves, held = past_curves(study), held_curves(study, conversion=conversion)
    histories = np.zeros(len(snapshot), dtype=np.int64) if fresh else histories_of(study, snapshot.holders)
    # Different histories of equal cost (groups of runs that never voted) are one spending.
    by_cost: dict[bytes, int] = {}
    spending = np.zeros(len(snapshot), dtype=np.int64)
    for history in np.unique(histories):
        spending[histories == history] = by_cost.setdefault(
            curves[history].tobytes() + held[history].tobytes(), history
        )
    keys = np.empty(len(snapshot), dtype=[("epsilon", np.float64), ("level", np.int8), ("spending", np.int64)])
    keys["epsilon"], keys["level"], keys["spending"] = snapshot.epsilons, snapshot.levels, spending
    result: list[Standing] = []
    for key in np.unique(keys):
        level, epsilon, history = LEVELS[key["level"]], float(key["epsilon"]), int(key["spending"])
        past = curves[history]
        alike = sum(standing.level == level for standing in result)
        result.append(
            Standing(
                name=f"{level} {alike + 1}" if alike else level,
                level=level,
                epsilon=epsilon,
                holders=snapshot.holders[keys == key],
                past=past,
                held=held[history],
                spent=float(epsilon_from_rdp(past, study.delta, conversion=conversion)[0]),
                remaining=remaining_epsilon(past + held[history], epsilon, study.delta, conversion=conversion),
            )
        )
    return result


@dataclass(frozen=True)
class Remainder:
    """A :class:`Standing` without who its ``holders`` are: how many. ``held``: the ε of what is held for other runs."""

    name: str
    level: str
    epsilon: float
    holders: int
    spent: float
    held: float
    remaining: float


def remaining_by_group(study: Study, *, conversion: Conversion = "improved") -> list[Remainder]:
    """What :func:`standings` says of all who take part now, counted in the database."""
    curves, held_by = past_curves(study), held_curves(study, conversion=conversion)
    counts: dict[tuple[float, str, bytes, bytes], int] = defaultdict(int)
    for level, epsilon, history, holders in sorted(holders_per_history(study), key=lambda row: row[2]):
        counts[epsilon, level, curves[history].tobytes(), held_by[history].tobytes()] += holders
    result: list[Remainder] = []
    for key in sorted(counts, key=lambda group: (group[0], LEVELS.index(group[1]))):
        epsilon, level, past, held = key[0], key[1], np.frombuffer(key[2]), np.frombuffer(key[3])
        alike = sum(other.level == level for other in result)
        result.append(
            Remainder(
                name=f"{level} {alike + 1}" if alike else level,
                level=level,
                epsilon=epsilon,
                holders=counts[key],
                spent=float(epsilon_from_rdp(past, study.delta, conversion=conversion)[0]),
                held=float(epsilon_from_rdp(held, study.delta, conversion=conversion)[0]) if held.any() else 0.0,
                remaining=remaining_epsilon(past + held, epsilon, study.delta, conversion=conversion),
            )
        )
    return result


def holders_spent_beyond(study: Study, policy: EpsilonPolicy) -> dict[str, int]:
    """By level, how many of those who take part have spent more than ``policy`` allows: no run can use their data."""
    groups = remaining_by_group(study)
    return {
        level: sum(group.holders for group in groups if group.level == level and group.spent > policy.epsilon(level))
        for level in LEVELS
    }


def holders_per_history(study: Study) -> Iterator[tuple[str, float, int, int]]:
    """(level, ε, history id or 0, number of holders) of all who take part now.

    PostgreSQL merges last events and histories, both in the order of holders, and counts the events of those who have
    left, too: it would plan badly for a number that it has to guess.
    """
    now = timezone.now()
    rule, forms = EpsilonRule(study, now), forms_that_count(study, now)
    last = last_events(study, now).annotate(policies_before=rule.policies_before())
    columns = ("level", "form_id", "policy_id", "policies_before")
    query, parameters = last.values("holder_id", *columns).query.sql_with_params()
    histories = f"SELECT holder_id, history_id FROM {HolderSpending._meta.db_table} ORDER BY holder_id"  # noqa: S608
    counted = f"{', '.join(columns)}, history_id"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {counted}, COUNT(*) FROM ({query}) AS last LEFT JOIN ({histories}) AS spending "  # noqa: S608
            f"ON spending.holder_id = last.holder_id GROUP BY {counted}",
            parameters,
        )
        for level, form, policy, position, history, holders in cursor:
            if level and form in forms:  # who has left has no level
                yield level, rule.epsilon_after(policy, level, position), history or 0, holders


@dataclass(frozen=True)
class Consumption:
    """What a privacy group may spend and has spent, as ε at the study's δ.

    ``spent`` counts this run and all before it and is a secret where costs depend on the data; ``published`` is the
    data-independent bound on this run alone.
    """

    group: PrivacyGroup
    budget: float
    past: float
    spent: float
    published: float

    @property
    def announced(self) -> float:
        """``published`` as it leaves staff: rounded up to a tenth, so that it does not tell how large the group is.

        In the weighting variant a group's exact ε follows from its weight, and that from its share of the holders.
        """
        return float(np.ceil(10 * self.published)) / 10


def account_consumption(account: RunAccount) -> list[Consumption]:
    """Per-group consumption, in the order of the groups."""
    groups = list(account.groups.all())
    if not groups:
        return []
    past = np.array([group.past_rdp for group in groups])
    spent = past + np.array([group.spent_rdp for group in groups])
    published = np.array([group.published_rdp for group in groups])

    epsilons = zip(account.epsilon(past), account.epsilon(spent), account.epsilon(published), strict=True)
    return [
        Consumption(group, group.epsilon, float(before), float(total), float(bound))
        for group, (before, total, bound) in zip(groups, epsilons, strict=True)
    ]


def epsilon_by_batch(account: RunAccount) -> dict[int, list[float]]:
    """Group index → ε after each batch in the ledger, past runs included. A secret where costs depend on the data."""
    result = {}
    for group in account.groups.all():
        entries = LedgerEntry.objects.filter(group=group).order_by("batch").values_list("rdp", flat=True)
        curves = np.array(list(entries)).reshape(-1, len(account.orders)).cumsum(axis=0)
        result[group.index] = account.epsilon(curves + np.asarray(group.past_rdp)).tolist() if len(curves) else []
    return result
