"""Every write of the accounting app. Callers hold the study's lock (:func:`consent.services.study_lock`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from django.db import transaction
from django.utils import timezone

from accounting import selectors
from accounting.models import HolderSpending, LedgerEntry, PrivacyGroup, RunAccount, SpendingHistory
from consent.models import Study
from consent.services import study_lock


class BudgetExceeded(Exception):
    """A charge would bring a group above its budget. Nothing was written."""


@dataclass(frozen=True)
class GroupOpening:
    """A privacy group to be, see :class:`accounting.models.PrivacyGroup`.

    ``holders`` (H,) ids; ``epsilon`` their budget; ``past`` (R,) what they have spent.
    """

    name: str
    level: str
    epsilon: float
    holders: np.ndarray
    past: np.ndarray


@dataclass(frozen=True)
class Charge:
    """What one batch cost one group: ``rdp`` (R,), its data-independent bound ``published_rdp`` (R,)."""

    group: PrivacyGroup
    sensitivity: float
    rdp: np.ndarray
    published_rdp: np.ndarray


@transaction.atomic
def account_open(
    *,
    study: Study,
    run: UUID,
    at: datetime,
    simulation: bool,
    orders: np.ndarray,
    method: str,
    conversion: str,
    groups: Sequence[GroupOpening],
) -> RunAccount:
    """Open the account of a run and move its holders on to the histories that its groups begin.

    ``at`` is the moment whose consents and policies the groups' budgets rest on.
    From here on, what the run costs a group counts for each of its holders in every later run.
    """
    account = RunAccount.objects.create(
        study=study,
        run=run,
        simulation=simulation,
        delta=study.delta,
        orders=orders.tolist(),
        method=method,
        conversion=conversion,
        opened_at=at,
    )
    nothing = [0.0] * len(orders)
    for index, opening in enumerate(groups):
        group = PrivacyGroup(
            account=account,
            index=index,
            name=opening.name,
            level=opening.level,
            epsilon=opening.epsilon,
            holders=len(opening.holders),
            past_rdp=opening.past.tolist(),
            spent_rdp=nothing,
            published_rdp=nothing,
        )
        group.full_clean()
        group.save()
        if not simulation:
            _histories_extend(study=study, group=group, holders=opening.holders)
    return account


def _histories_extend(*, study: Study, group: PrivacyGroup, holders: np.ndarray) -> None:
    """Append ``group`` to the history of each holder."""
    parents = selectors.histories_of(study, holders)
    for parent in np.unique(parents):
        parent_id = int(parent) or None
        node, _ = SpendingHistory.objects.get_or_create(study=study, parent_id=parent_id, group=group)
        members = holders[parents == parent].tolist()
        for start in range(0, len(members), 500):
            chunk = members[start : start + 500]
            if parent_id is None:
                HolderSpending.objects.bulk_create(HolderSpending(holder_id=pk, history=node) for pk in chunk)
            else:
                HolderSpending.objects.filter(holder_id__in=chunk).update(history=node)


def groups_retire(*, groups: Sequence[PrivacyGroup]) -> None:
    """From now on the teachers of ``groups`` cast no vote, and the groups are charged nothing more."""
    PrivacyGroup.objects.filter(pk__in=[group.pk for group in groups]).update(retired_at=timezone.now())


@transaction.atomic
def batch_charge(
    *,
    account: RunAccount,
    batch: int,
    mechanism: dict[str, Any],
    charges: Sequence[Charge],
    budgets: np.ndarray,
    queries: int,
    labels: int,
    acting_user_id: int | None,
) -> None:
    """Charge one batch to its groups; ``budgets`` (G,) are the ε in force, in the order of ``charges``.

    To be called in the transaction that releases the batch's labels. Raises BudgetExceeded before anything is written.
    """
    study_lock(account.study_id)
    groups = PrivacyGroup.objects.select_for_update().in_bulk([charge.group.pk for charge in charges])
    entries = []
    for charge, budget in zip(charges, budgets, strict=True):
        group = groups[charge.group.pk]
        spent = np.asarray(group.spent_rdp) + charge.rdp
        # What costs a group nothing, because its teachers are retired, cannot exceed anything.
        if charge.rdp.any() and account.epsilon(np.asarray(group.past_rdp) + spent) > budget:
            raise BudgetExceeded(f"Batch {batch} of run {account.run} would bring {group} above its budget.")
        group.spent_rdp = spent.tolist()
        group.published_rdp = (np.asarray(group.published_rdp) + charge.published_rdp).tolist()
        entries.append(
            LedgerEntry(
                study_id=account.study_id,
                group=group,
                run=account.run,
                batch=batch,
                mechanism=mechanism,
                sensitivity=charge.sensitivity,
                method=account.method,
                delta=account.delta,
                orders=account.orders,
                rdp=charge.rdp.tolist(),
                published_rdp=charge.published_rdp.tolist(),
                queries=queries,
                labels=labels,
                recorded_by_id=acting_user_id,
            )
        )
    PrivacyGroup.objects.bulk_update(groups.values(), ["spent_rdp", "published_rdp"])
    if not account.simulation:
        LedgerEntry.append(entries)
