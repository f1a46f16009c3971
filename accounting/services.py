"""Every write of the accounting app. Callers hold the study's lock (:func:`consent.services.study_lock`)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection, transaction
from django.utils import timezone

from accounting.curves import CurveField
from accounting.histories import histories_change
from accounting.limits import Limits
from accounting.models import AccountRecord, LedgerEntry, PrivacyGroup, RunAccount
from accounting.seals import account_seals
from consent.models import Study
from consent.services import study_lock


class BudgetExceeded(Exception):
    """A charge would bring a group above its budget. Nothing was written."""


@dataclass(frozen=True)
class GroupOpening:
    """A privacy group to be, see :class:`accounting.models.PrivacyGroup`.

    ``holders`` (H,) ids; ``epsilon`` their budget; ``past`` (R,) what they have spent; ``reserved`` (R,) what is held
    for the run; ``allowance`` the ε that the run alone may cost, None for all that is left.
    """

    name: str
    level: str
    epsilon: float
    holders: np.ndarray
    past: np.ndarray
    reserved: np.ndarray | None = None
    allowance: float | None = None


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
    is_reservation: bool = False,
) -> RunAccount:
    """Open the account of a run and move its holders on to the histories that its groups begin.

    ``at`` is the moment whose consents and policies the groups' budgets rest on.
    From here on, what the run costs a group, and what is held for it, counts for each of its holders in every later
    run. The account that is charged takes the place of the run's reservation, if there is one.
    """
    reservation = RunAccount.objects.filter(run=run, is_reservation=True).first()
    account = RunAccount.objects.create(
        study=study,
        run=run,
        simulation=simulation,
        delta=study.delta,
        orders=orders.tolist(),
        method=method,
        conversion=conversion,
        is_reservation=is_reservation,
        opened_at=at,
    )
    nothing = [0.0] * len(orders)
    join = []
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
            reserved_rdp=None if opening.reserved is None else opening.reserved.tolist(),
            allowance=opening.allowance,
        )
        group.full_clean()
        group.save()
        join.append((group, opening.holders))
    if not simulation:
        histories_change(study=study, leave=reservation, join=join)
        kind = AccountRecord.Kind.RESERVED if is_reservation else AccountRecord.Kind.OPENED
        _record(account, kind, at=timezone.now(), seals=account_seals(account, join))
    if reservation:
        _account_delete(reservation)
    return account


@transaction.atomic
def account_settle(*, run: UUID) -> None:
    """The run spends nothing more: release what is held for it. Of a reservation that never voted nothing stays."""
    account = RunAccount.objects.select_related("study").filter(run=run, settled_at=None).first()
    if account is None:
        return
    study_lock(account.study_id)
    now = timezone.now()
    if account.is_reservation:
        histories_change(study=account.study, leave=account)
        _account_delete(account)
    else:
        account.settled_at = now
        account.save(update_fields=["settled_at"])
    if not account.simulation:
        kind = AccountRecord.Kind.RELEASED if account.is_reservation else AccountRecord.Kind.SETTLED
        _record(account, kind, at=now)


def _record(account: RunAccount, kind: str, *, at: datetime, seals: dict[str, str] | None = None) -> None:
    AccountRecord.append(
        [AccountRecord(study_id=account.study_id, run=account.run, kind=kind, seals=seals or {}, recorded_at=at)]
    )


def _account_delete(account: RunAccount) -> None:
    account.groups.all().delete()
    account.delete()


def groups_retire(*, groups: Sequence[PrivacyGroup]) -> None:
    """From now on the teachers of ``groups`` cast no vote, and the groups are charged nothing more."""
    PrivacyGroup.objects.filter(pk__in=[group.pk for group in groups]).update(retired_at=timezone.now())


@transaction.atomic(savepoint=False)
def batch_charge(
    *,
    account: RunAccount,
    batch: int,
    mechanism: dict[str, Any],
    sensitivities: Sequence[float],
    rdp: np.ndarray,
    published_rdp: np.ndarray,
    limits: Limits,
    queries: int,
    labels: int,
    acting_user_id: int | None,
) -> None:
    """Charge one batch to the groups of an account: ``sensitivities`` (G,), its cost ``rdp`` (G, R), and the
    data-independent bound ``published_rdp`` (G, R) on it.

    To be called in the transaction that releases the batch's labels, with the ``limits`` that
    :func:`accounting.limits.limits_of` found in it. Raises BudgetExceeded before anything is written.
    """
    if account.is_reservation or account.settled_at:
        raise BudgetExceeded(f"Run {account.run} cannot be charged: its vote has not begun, or has ended.")
    costs = rdp[limits.group]
    # What costs a group nothing, because its teachers are retired, cannot exceed anything.
    over = costs.any(axis=1) & (account.epsilon(limits.beside + costs) > limits.epsilon)
    if over.any():
        names = ", ".join(sorted({limits.groups[index].name for index in limits.group[over]}))
        raise BudgetExceeded(f"Batch {batch} of run {account.run} would bring {names} above what may be spent.")
    for group, cost, bound in zip(limits.groups, rdp, published_rdp, strict=True):
        group.spent_rdp = (np.asarray(group.spent_rdp) + cost).tolist()
        group.published_rdp = (np.asarray(group.published_rdp) + bound).tolist()
    _totals_write(limits.groups)
    if not account.simulation:
        LedgerEntry.append(
            LedgerEntry(
                study_id=account.study_id,
                group=group,
                run=account.run,
                batch=batch,
                mechanism=mechanism,
                sensitivity=sensitivity,
                method=account.method,
                delta=account.delta,
                orders=account.orders,
                rdp=cost.tolist(),
                published_rdp=bound.tolist(),
                queries=queries,
                labels=labels,
                recorded_by_id=acting_user_id,
            )
            for group, sensitivity, cost, bound in zip(limits.groups, sensitivities, rdp, published_rdp, strict=True)
        )


def _totals_write(groups: Collection[PrivacyGroup]) -> None:
    """What ``bulk_update`` does, in a third of its time."""
    prepared = partial(CurveField().get_db_prep_save, connection=connection)
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {PrivacyGroup._meta.db_table} SET spent_rdp = %s, published_rdp = %s WHERE id = %s",  # noqa: S608
            [(prepared(group.spent_rdp), prepared(group.published_rdp), group.pk) for group in groups],
        )
