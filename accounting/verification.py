"""Do the accounts say what the ledger says and holders were promised? For auditors, and after every doubt."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args
from uuid import UUID

import numpy as np

from accounting.curves import ROUNDING, curves_equal
from accounting.models import AccountRecord, HolderSpending, LedgerEntry, PrivacyGroup, RunAccount, SpendingHistory
from accounting.privacy import Conversion
from accounting.seals import ACCOUNT, account_seals, group_part
from accounting.selectors import held_curves, past_curves
from consent.models import Study
from consent.selectors import LEVELS, consent_snapshot
from ipate_web.append_only import chained_models


@dataclass(frozen=True)
class Check:
    """One thing to verify: ``name`` says what is looked at, ``find()`` what is wrong with it, in words."""

    name: str
    find: Callable[[], Iterator[str]]

    def faults(self) -> list[str]:
        """What is wrong; content so distorted that it cannot be looked at is a fault, too."""
        found = []
        try:
            for fault in self.find():
                found.append(fault)
        except Exception as error:
            found.append(f"{self.name}: cannot be checked any more ({type(error).__name__}: {error}).")
        return found


def study_checks(study: Study, watch: Callable[[Iterable[Any]], Iterable[Any]] = iter) -> list[Check]:
    """Every chain of a study, and every account: its totals, budgets and promises.

    The rows of the chains go through ``watch``, which may show how far their checks are.
    """
    chains = [
        Check(_chain_name(model, study.pk), lambda model=model: model.chain_faults(study.pk, watch))  # type: ignore[misc]
        for model in chained_models()
    ]
    accounts = RunAccount.objects.filter(study=study).only("run", "opened_at")
    return [
        *chains,
        *(Check(str(account), lambda pk=account.pk: _account_faults(pk)) for account in accounts),  # type: ignore[misc]
        Check("entries outside all accounts", lambda: _stray_faults(study)),
        Check("accounts as they were opened", lambda: _opening_faults(study)),
        Check("spending of every holder over all runs", lambda: _spending_faults(study)),
        Check("budget reserved for runs that have not ended", lambda: _reservation_faults(study)),
    ]


def study_faults(study: Study) -> Iterator[str]:
    """What is wrong with a study's chains, totals, budgets and promises; nothing when all is well."""
    for check in study_checks(study):
        yield from check.faults()


def _chain_name(model: type, study_id: int) -> str:
    head = model.head(study_id)  # type: ignore[attr-defined]
    rows = model.chain(study_id).count()  # type: ignore[attr-defined]
    return f"{model._meta.verbose_name_plural}: {rows}, ending with {head.hash}"  # type: ignore[attr-defined]


def _account_faults(account_id: int) -> Iterator[str]:
    """Do an account's entries carry its parameters, and its totals their sums? A simulation has no entries at all."""
    account = RunAccount.objects.select_related("study").get(pk=account_id)
    if account.delta != account.study.delta:
        yield f"run {account.run}: kept at δ = {account.delta:g}, but the study's is {account.study.delta:g}."
    for group in account.groups.all():
        who = f"run {account.run}, group {group}"
        entries = list(LedgerEntry.objects.filter(group=group).order_by("batch"))
        if account.simulation:
            if entries:
                yield f"{who}: a simulation has {len(entries)} entries in the ledger."
            if group.histories.exists():
                yield f"{who}: a simulation counts as spending of its holders."
            continue
        if account.is_reservation and (entries or np.any(group.spent_rdp)):
            yield f"{who}: was charged before its vote began."
        if [entry.batch for entry in entries] != list(range(len(entries))):
            yield f"{who}: its batches are not numbered without gaps."
        for entry in entries:
            if (entry.run, entry.study_id, entry.delta, entry.method, entry.orders) != (
                account.run,
                account.study_id,
                account.delta,
                account.method,
                account.orders,
            ):
                yield f"{who}: ledger entry {entry.sequence} was not kept as the account is (run, δ, method, orders)."
        for name, total in (("rdp", group.spent_rdp), ("published_rdp", group.published_rdp)):
            charged = np.sum([getattr(entry, name) for entry in entries] or [np.zeros(len(total))], axis=0)
            if not curves_equal(total, charged):
                yield f"{who}: its total of {name} is not the sum of its entries."


def _stray_faults(study: Study) -> Iterator[str]:
    """Entries that are charged to a group of another study."""
    for entry in LedgerEntry.objects.filter(study=study).exclude(group__account__study=study):
        yield f"ledger entry {entry.sequence}: is charged to a group of another study."


def _opening_faults(study: Study) -> Iterator[str]:
    """Is every account what it was when it was opened, for the same holders, and settled when it was settled?"""
    records: dict[UUID, list[AccountRecord]] = defaultdict(list)
    for record in AccountRecord.chain(study.pk):
        records[record.run].append(record)
    for account, members in _accounts_with_holders(study):
        yield from _seal_faults(account, members, records.pop(account.run, []))
    for run, left in records.items():
        if left[-1].kind != AccountRecord.Kind.RELEASED:
            yield f"run {run}: its account was {left[-1].get_kind_display()}, but is gone."


def _seal_faults(
    account: RunAccount, members: list[tuple[PrivacyGroup, np.ndarray]], records: list[AccountRecord]
) -> Iterator[str]:
    """``members``: the account's groups with their holders; ``records``: what was recorded of its run, in order."""
    opened = [record for record in records if record.seals]
    if not opened or records[-1].kind == AccountRecord.Kind.RELEASED:
        yield f"run {account.run}: nothing says that its account was opened."
        return
    then, now = opened[-1].seals, account_seals(account, members)
    if then.get(ACCOUNT) != now[ACCOUNT]:
        yield f"run {account.run}: its account is not kept as it was opened (δ, orders, method, conversion or time)."
    for group, holders in members:
        if then.get(group_part(group)) != now[group_part(group)]:
            yield (
                f"run {account.run}, group {group}: is not what was opened; its {len(holders)} holders, ε, past, "
                "reservation, allowance or place were changed."
            )
    if then.keys() - now.keys():
        yield f"run {account.run}: {len(then.keys() - now.keys())} groups that were opened are gone."
    settled = records[-1].recorded_at if records[-1].kind == AccountRecord.Kind.SETTLED else None
    if account.settled_at != settled:
        yield f"run {account.run}: when its account was settled is not what was recorded."


def _accounts_with_holders(study: Study) -> Iterator[tuple[RunAccount, list[tuple[PrivacyGroup, np.ndarray]]]]:
    """Every account but those of simulations, with its groups and the ids of the holders whose history has them."""
    nodes = list(SpendingHistory.objects.filter(study=study).order_by("pk").values_list("pk", "parent_id", "group_id"))
    spendings = np.fromiter(
        HolderSpending.objects.filter(holder__study=study).values_list("holder_id", "history_id").iterator(10_000),
        dtype=[("holder", np.int64), ("history", np.int64)],
    )
    histories, history_of = np.unique(spendings["history"], return_inverse=True)
    for account in RunAccount.objects.filter(study=study, simulation=False):
        groups = list(account.groups.all())
        mine = {group.pk for group in groups}
        group_in: dict[int, int] = {}  # node → the account's group on the path to it, 0 where there is none
        for node, parent, group_id in nodes:  # a parent is older than its children
            group_in[node] = group_id if group_id in mine else group_in.get(parent or 0, 0)
        was_in = np.array([group_in[history] for history in histories.tolist()], dtype=np.int64)[history_of]
        yield account, [(group, spendings["holder"][was_in == group.pk]) for group in groups]


def _spending_faults(study: Study) -> Iterator[str]:
    """Has anybody spent more than they were promised, by their own history of groups and their own consents?"""
    curves = past_curves(study)
    nodes = list(SpendingHistory.objects.filter(study=study).order_by("pk"))
    for account, members in _accounts_with_holders(study):
        snapshot = consent_snapshot(study, account.opened_at)
        for group, holders in members:
            who = f"run {account.run}, group {group}"
            # A reservation has spent nothing yet; what other runs of its holders have spent goes on changing.
            if not account.is_reservation:
                pasts = [curves[node.parent_id or 0] for node in nodes if node.group_id == group.pk]
                yield from _budget_faults(who, group, pasts)
            if len(holders) != group.holders:
                yield f"{who}: {group.holders} holders are on record, but the histories have {len(holders)}."
            promised = snapshot.of(holders)
            kept = (promised.levels == LEVELS.index(group.level)) & (promised.epsilons == group.epsilon)
            if broken := len(holders) - int(kept.sum()):
                yield f"{who}: {broken} of its holders had consented to another level or ε, or not at all."


def _reservation_faults(study: Study) -> Iterator[str]:
    """Is more promised to runs than the budget of any of their groups?

    What is held for a run that votes does not count: nobody else can spend it, and the run itself need not keep to the
    curve that was reserved, if only what it spends stays within the budget beside what is held for others.
    """
    spent = past_curves(study)
    held = {conversion: held_curves(study, conversion=conversion) for conversion in get_args(Conversion)}
    of_votes = {0: np.zeros(len(spent[0]))}  # node → what is held for runs that vote
    newest: dict[int, PrivacyGroup | None] = {0: None}  # node → the last group with an open reservation on its path
    # node → the largest budget of a group from the first open reservation on: each vote was held to its own
    epsilons: dict[int, float] = {0: 0.0}
    accounts = RunAccount.objects.filter(study=study, simulation=False, settled_at=None)
    groups = PrivacyGroup.objects.filter(account__in=accounts, reserved_rdp__isnull=False)
    reserved = groups.select_related("account").in_bulk()
    for node in SpendingHistory.objects.filter(study=study).select_related("group__account").order_by("pk"):
        before, group = node.parent_id or 0, reserved.get(node.group_id)
        newest[node.pk], of_votes[node.pk] = group or newest[before], of_votes[before]
        open_group = newest[node.pk]
        if open_group is None:
            epsilons[node.pk] = 0.0
            continue
        epsilons[node.pk] = max(epsilons[before], node.group.epsilon)
        if group and np.any(group.spent_rdp):
            of_votes[node.pk] = of_votes[node.pk] + group.held_rdp()
        account = node.group.account
        promised = spent[node.pk] + held[account.conversion][node.pk] - of_votes[node.pk]
        if account.epsilon(promised) > epsilons[node.pk] * (1 + ROUNDING):
            who = f"run {open_group.account.run}, group {open_group}"
            yield f"{who}: holders of it are promised away more than they allow."


def _budget_faults(who: str, group: PrivacyGroup, pasts: list[np.ndarray]) -> Iterator[str]:
    """``pasts``: the curves of the histories with which holders came into the group."""
    if any(not curves_equal(group.past_rdp, past) for past in pasts):
        yield f"{who}: its past_rdp is not what its holders had spent before."
    for past in pasts:
        if np.any(group.spent_rdp) and group.account.epsilon(past + np.asarray(group.spent_rdp)) > group.epsilon * (
            1 + ROUNDING
        ):
            yield f"{who}: a holder has spent more than ε = {group.epsilon:g}."
