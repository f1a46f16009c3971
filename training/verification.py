"""Does what was released agree with what was charged? Labels against the ledger, and every charge against the votes."""

from collections.abc import Iterator

import numpy as np
from django.db.models import Count, QuerySet

from accounting.curves import curves_equal
from accounting.models import LedgerEntry
from consent.models import Study
from training.ballot import batch_cost
from training.models import Query, Run, VoteBatch

#: Relative difference between a charge and the same charge computed anew.
REPLAY_TOLERANCE = 1e-12


def release_faults(run: Run) -> Iterator[str]:
    """Is every query of a run in one of its batches, and every batch charged once to every group of its account?"""
    batches = list(run.batches.annotate(released=Count("results"), answered=Count("results__label")).order_by("index"))
    position = 0
    for number, batch in enumerate(batches):
        who = f"run {run.pk}, batch {batch.index}"
        if (batch.index, batch.start) != (number, position):
            yield f"{who}: does not follow the batch before it."
        if (batch.released, batch.answered) != (batch.queries, batch.labels):
            yield f"{who}: says {batch.labels} labels of {batch.queries}, but has {batch.answered} of {batch.released}."
        position = batch.start + batch.queries
        if not run.simulation:
            yield from _charge_faults(run, batch, who)
    if (run.position, run.labels) != (position, sum(batch.labels for batch in batches)):
        yield f"run {run.pk}: its position and number of labels are not those of its batches."
    if strays := run.queries.exclude(batch__in=run.batches.all()).count():
        yield f"run {run.pk}: {strays} of its queries are in none of its batches."
    if strays := Query.objects.filter(batch__in=run.batches.all()).exclude(run=run).count():
        yield f"run {run.pk}: {strays} of the queries in its batches are of other runs."
    if run.account is None and not run.simulation and (batches or run.queries.exists()):
        yield f"run {run.pk}: labels were released, but there is no account that paid for them."
    if LedgerEntry.objects.filter(run=run.pk, batch__gte=len(batches)).exists():
        yield f"run {run.pk}: the ledger has charges for batches that were never released."
    if run.simulation and batches and run.account is not None:
        spent = np.sum([np.asarray(batch.simulated_rdp) for batch in batches], axis=0)
        for group in run.account.groups.all():
            if not curves_equal(group.spent_rdp, spent[group.index]):
                yield f"run {run.pk}, group {group}: its total is not what the simulation's batches cost."


def _charge_faults(run: Run, batch: VoteBatch, who: str) -> Iterator[str]:
    entries = list(LedgerEntry.objects.filter(run=run.pk, batch=batch.index).order_by("group__index"))
    groups = list(run.account.groups.values_list("pk", flat=True)) if run.account else []
    if [entry.group_id for entry in entries] != groups:
        yield f"{who}: was not charged once to each of the run's {len(groups)} groups."
    for entry in entries:
        if (entry.queries, entry.labels) != (batch.queries, batch.labels):
            yield (
                f"ledger entry {entry.sequence}: pays for {entry.labels} labels of {entry.queries} queries, "
                f"but {who} released {batch.labels} of {batch.queries}."
            )


def charge_faults(study: Study) -> Iterator[str]:
    """Entries of a study's ledger for runs that the study does not have."""
    unknown = LedgerEntry.objects.filter(study=study).exclude(run__in=Run.objects.filter(study=study).values("pk"))
    for run, entries in unknown.order_by("run").values_list("run").annotate(Count("pk")):
        yield f"run {run}: has {entries} entries in the ledger, but is no run of the study."


def batches_kept(study: Study) -> QuerySet[VoteBatch]:
    """The batches whose votes were kept, so that their cost can be computed anew."""
    batches = VoteBatch.objects.filter(run__study=study, run__simulation=False, run__status=Run.Status.FINISHED)
    kept = batches if study.retain_votes else batches.none()
    return kept.select_related("run__account").order_by("run", "index")


def replay_faults(batch: VoteBatch) -> Iterator[str]:
    """Charges of a batch that differ from what its votes cost."""
    cost = batch_cost(batch)
    for entry in LedgerEntry.objects.filter(run=batch.run_id, batch=batch.index).select_related("group"):
        if not curves_equal(entry.rdp, cost[entry.group.index], rtol=REPLAY_TOLERANCE):
            yield f"ledger entry {entry.sequence}: the votes of batch {batch.index} cost something else."
