"""Checks that accounts agree with releases and promises."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Q

from accounting.accounts import Balances, account_balances, balances, balances_load, caps_largest, slack_faults
from accounting.ceilings import ceiling_faults
from accounting.models import AccountBook, HeadCount, Release
from accounting.restores import is_distrusted, missing_rows
from accounting.services import ROUNDING
from accounting.shares import opened_share, shares
from common.append_only import chained_models, installation_chains
from common.artifacts import arrays_digest
from consent.models import Study
from consent.services import study_lock
from consent.services.accounts import account_faults
from consent.services.changes import change_faults
from consent.services.checkpoints import checkpoint_faults, rows_faults

#: Name of the check for a database that is older than the journal.
JOURNAL_CHECK = "database rows compared with the journal"


@dataclass(frozen=True)
class Check:
    """Check of a study or the installation: ``name`` describes the check, and ``find()`` yields messages about faults.

    ``for_deciders`` is False if a fault would reveal a person's choice to people who decide about runs. ``named``
    returns a name that requires a database query, so that callers that need only faults can avoid the query.
    """

    named: str | Callable[[], str]
    find: Callable[[], Iterator[str]]
    for_deciders: bool = True

    @cached_property
    def name(self) -> str:
        return self.named if isinstance(self.named, str) else self.named()

    def faults(self) -> list[str]:
        """Return messages about faults, including a message if the content is too damaged to be examined."""
        faults = []
        try:
            for fault in self.find():
                faults.append(fault)
        except Exception as error:
            faults.append(f"{self.name}: cannot be checked ({type(error).__name__}: {error}).")
        return faults


def study_checks(study: Study, watch: Callable[[Iterable[Any]], Iterable[Any]] = iter) -> list[Check]:
    """Return checks of every chain of a study, of its accounts and of its shares.

    The rows of the chains are passed through ``watch``, which may report progress.
    """
    chains = [
        Check(partial(_chain_name, model, study.pk), lambda model=model: model.chain_faults(study.pk, watch))  # type: ignore[misc]
        for model in chained_models()
    ]
    return [
        *chains,
        Check("configuration matches its recorded changes", lambda: change_faults(study)),
        Check(JOURNAL_CHECK, lambda: _lost_faults(study)),
        Check("accounts equal the charges of all releases", lambda: _account_faults(study)),
        Check("accounts within their caps", lambda: _cap_faults(study)),
        Check("people within their ceiling across all studies", lambda: ceiling_faults(study)),
        Check("head counts match the register", lambda: _head_count_faults(study)),
        Check("total of all runs' shares", lambda: _share_faults(study)),
        Check("total slack of all sampled runs", lambda: slack_faults(study)),
        Check("rows under signed checkpoints", lambda: checkpoint_faults(study)),
    ]


def installation_checks() -> list[Check]:
    """Return checks of the chains that belong to no study, and of the data derived from them."""
    chains = installation_chains()
    return [
        *(Check(partial(_chain_name, model, None), partial(_installation_chain_faults, model)) for model in chains),
        Check("staff accounts match their recorded changes", account_faults),
        Check("rows of the installation under signed checkpoints", lambda: rows_faults(None)),
    ]


def _installation_chain_faults(model: Any) -> Iterator[str]:
    yield from model.chain_faults(None)
    if missing := model.rows_missing(None):
        yield f"{model._meta.verbose_name}: {missing} rows in the journal are missing from the database."


def study_faults(study: Study) -> Iterator[str]:
    """Yield messages about faults of a study's chains, accounts and shares."""
    for check in study_checks(study):
        yield from check.faults()


def _lost_faults(study: Study) -> Iterator[str]:
    """Check that the database is as recent as the journal and was not restored to an earlier state."""
    if is_distrusted(study):
        yield "The journal does not continue from the restored backup, so it is unknown what the database lost."
        return
    for chain, rows in missing_rows(study).items():
        yield f"{chain}: {rows} rows in the journal are missing: the database was restored to an earlier state."


def _chain_name(model: type, study_id: int | None) -> str:
    head = model.head(study_id)  # type: ignore[attr-defined]
    rows = model.chain(study_id).count()  # type: ignore[attr-defined]
    return f"{model._meta.verbose_name_plural}: {rows}, ending with {head.hash}"  # type: ignore[attr-defined]


def balances_rebuilt(study: Study) -> Balances:
    """Recompute the accounts from the charge files of every release. Raises OSError if a file is missing."""
    rebuilt = Balances.empty()
    for name in _charged(study).values_list("charges", flat=True):
        rebuilt = rebuilt.charged(balances_load(name))
    return rebuilt


def _charged(study: Study) -> Any:
    return Release.chain(study.pk).exclude(charges="")


def _account_faults(study: Study) -> Iterator[str]:
    """Check that charge files match the chain and the public charges, and that the book is their sum."""
    with transaction.atomic():  # a consistent view of register and account book, even while a run is voting
        study_lock(study.pk)
        charged = list(_charged(study))
        book = AccountBook.objects.filter(study=study).first()
        now, digest_now = (balances_load(book.artifact), arrays_digest(book.artifact)) if book else (None, "")
    rebuilt, last = Balances.empty(), 0
    for release in charged:
        last = release.sequence
        try:
            digest = arrays_digest(release.charges)
        except FileNotFoundError:
            yield f"release {release.sequence}: its charge file is missing."
            continue
        if digest != release.charges_digest:
            yield f"release {release.sequence}: its charge file differs from the recorded one."
        charges = balances_load(release.charges)
        if (charges.spent < 0).any() or (charges.spent > release.charge * (1 + ROUNDING)).any():
            yield f"release {release.sequence}: a charge is negative or above the public charge."
        rebuilt = rebuilt.charged(charges)
    if book is None or now is None:
        if last:
            yield "The accounts are missing: charges were recorded, but there is no account book."
        return
    if digest_now != book.digest:
        yield "The account file differs from the recorded one."
    if book.sequence != last:
        yield f"The accounts end at release {book.sequence}, but the charges at release {last}."
    if not np.array_equal(now.holders, rebuilt.holders) or not np.allclose(
        now.spent, rebuilt.spent, rtol=ROUNDING, atol=0
    ):
        yield "The accounts do not equal the sum of the charges."


def _cap_faults(study: Study) -> Iterator[str]:
    """Check that no account has spent more than its largest promise allows, given the public share opened so far."""
    holders = balances(study).holders
    if not len(holders):
        return
    stands, caps = account_balances(study, holders), caps_largest(study, holders)
    known = caps > 0
    if strangers := int((~known).sum()):
        yield f"{strangers} accounts belong to holders who never consented."
    limit = opened_share(study)
    over = stands[known] > limit * caps[known] * (1 + ROUNDING)
    if count := int(over.sum()):
        yield f"{count} holders have spent more than their promise allows at the share of {limit:g} used so far."


def _head_count_faults(study: Study) -> Iterator[str]:
    """Check that the head counts that plans use match the register."""
    counted = HeadCount.objects.filter(Q(study=study) | Q(release__study=study)).order_by("pk")
    by_release: dict[int, list[HeadCount]] = {}
    for count in counted:
        by_release.setdefault(count.release_id, []).append(count)
    for release in Release.chain(study.pk).filter(kind=Release.Kind.HEAD_COUNTS):
        counts = by_release.pop(release.pk, [])
        expected = [{"level": each.level, "epsilon": each.epsilon, "count": each.count} for each in counts]
        sigmas, studies = {each.sigma for each in counts}, {each.study_id for each in counts}
        if expected != release.content["counts"] or sigmas != {release.content["sigma"]} or studies != {study.pk}:
            yield f"release {release.sequence}: the head counts differ from the released ones."
    if by_release:
        yield f"{sum(map(len, by_release.values()))} head counts do not belong to any release."


def _share_faults(study: Study) -> Iterator[str]:
    """Check that shares add up to at most 1, and that every charge belongs to an open share."""
    all_shares = shares(study)
    total = sum(share.committed for share in all_shares.values())
    if total > 1 + ROUNDING:
        yield f"The shares add up to {total:g}, which is more than 1."
    for share in all_shares.values():
        if share.used is not None and share.used > share.granted * (1 + ROUNDING):
            yield f"{share.purpose} {share.subject}: used more than it was granted."
    for release in _charged(study).filter(run__isnull=False):
        if release.run not in all_shares or all_shares[release.run].limit is None:
            yield f"release {release.sequence}: run {release.run} was charged without an open share."
