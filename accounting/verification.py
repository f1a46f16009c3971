"""Is what the accounts say what the ledger says? For auditors, and after every doubt."""

from collections.abc import Iterator

import numpy as np

from accounting.models import LedgerEntry, RunAccount
from accounting.selectors import past_curves
from consent.models import ConsentEvent, Study

#: Relative difference between sums of the same floats in another order.
ROUNDING = 1e-9


def study_faults(study: Study) -> Iterator[str]:
    """What is wrong with a study's consent events, ledger, totals and budgets, in words; nothing when all is well."""
    yield from ConsentEvent.chain_faults(study.pk)
    yield from LedgerEntry.chain_faults(study.pk)
    for account in RunAccount.objects.filter(study=study):
        yield from _account_faults(account)
    yield from _budget_faults(study)


def _account_faults(account: RunAccount) -> Iterator[str]:
    """Do the totals of an account equal the sums of its entries, and does a simulation have none?"""
    for group in account.groups.all():
        entries = list(LedgerEntry.objects.filter(group=group).order_by("batch"))
        if account.simulation:
            if entries:
                yield f"run {account.run}, group {group}: a simulation has {len(entries)} entries in the ledger."
            continue
        if [entry.batch for entry in entries] != list(range(len(entries))):
            yield f"run {account.run}, group {group}: its batches are not numbered without gaps."
        for name in ("rdp", "published_rdp"):
            total = np.asarray(group.spent_rdp if name == "rdp" else group.published_rdp)
            charged = np.sum([getattr(entry, name) for entry in entries] or [np.zeros_like(total)], axis=0)
            if not np.allclose(total, charged, rtol=ROUNDING, atol=0):
                yield f"run {account.run}, group {group}: its total of {name} is not the sum of its entries."


def _budget_faults(study: Study) -> Iterator[str]:
    """Has anybody spent more than the budget that they voted under? Looks at every history, over all runs."""
    curves = past_curves(study)
    groups = [group for account in study.accounts.filter(simulation=False) for group in account.groups.all()]
    for group in groups:
        for history in group.histories.all():
            epsilon = group.account.epsilon(curves[history.parent_id or 0] + np.asarray(group.spent_rdp))
            if np.any(group.spent_rdp) and epsilon > group.epsilon * (1 + ROUNDING):
                yield f"run {group.account.run}, group {group}: a holder has spent more than ε = {group.epsilon:g}."
