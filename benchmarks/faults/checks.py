"""Checks after all strikes: nothing lost, nothing charged twice, no account above its cap, and every run ended."""

import io
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import timedelta
from typing import Any

from benchmarks.faults.processes import Processes
from benchmarks.faults.studies import Studies

#: Seconds within which fresh and surviving workers must finish the remaining work.
RECOVERY_SECONDS = 600


def runs_finish(processes: Processes, studies: Studies) -> None:
    """Let the workers finish the remaining work without further strikes."""
    from training.models import Run

    left = Run.objects.filter(study__in=studies.all, status__in=Run.ACTIVE)
    deadline = time.monotonic() + RECOVERY_SECONDS
    while left.exists() and time.monotonic() < deadline:
        processes.supervise()
        time.sleep(0.2)


def faults(studies: Any, counts: Counter[str], *, may_fail: bool = False) -> Iterator[str]:
    """Describe faults; none if labels, register and accounts agree and every run continued automatically.

    Args:
        studies: The studies, in ``all``.
        counts: Counter that is updated.
        may_fail: Whether a run may also have ended for a stated reason.
    """
    from django.core.management import CommandError, call_command

    from accounting.restores import missing_rows
    from accounting.shares import share_free, shares
    from accounting.tasks import files_sweep
    from training.models import Run
    from training.verification import batches_with_votes

    for study in studies.all:
        for run in Run.objects.filter(study=study):
            counts[f"runs {run.status}"] += 1
            yield from _run_faults(run, may_fail)
        for batch in batches_with_votes(study):
            counts["batches recomputed"] += 1
            counts["labels"] += batch.labels
        if missing := missing_rows(study):
            yield f"{study.slug}: is locked as after a restore: {missing}."
        counts["files without a row deleted"] += files_sweep(study, timedelta(0))
        used = sum(share.used or 0.0 for share in shares(study).values())
        if abs(used + share_free(study) - 1) > 1e-9:
            yield f"{study.slug}: {used:g} of every cap is used, but {share_free(study):g} free."
        output = io.StringIO()
        try:
            with redirect_stderr(io.StringIO()):  # hides its progress bars
                call_command("verify_ledger", study=study.slug, replay=True, stdout=output)
        except CommandError:
            yield from (f"{study.slug}: {line.strip()}" for line in _fault_lines(output.getvalue()))


def _fault_lines(output: str) -> Iterator[str]:
    """Yield each line of the report that contains FAULT, with the indented lines below it."""
    in_fault = False
    for line in output.splitlines():
        if line.startswith("         "):
            if in_fault:
                yield line
            continue
        in_fault = line.strip().startswith("FAULT")
        if in_fault:
            yield line


def _run_faults(run: Any, may_fail: bool) -> Iterator[str]:
    """Describe a run that ended early without giving a reason, and queries that were answered more than once."""
    from training.methods import method_of
    from training.models import Run

    if may_fail and run.status == Run.Status.FAILED and run.message:
        return
    if run.status not in (Run.Status.FINISHED, Run.Status.DRAFT):
        yield f"run {run.pk} did not finish: {run.status}, {run.message}"
        return
    if method_of(run).releases_labels:
        rows = sorted(run.queries.values_list("row", flat=True))
        if rows != list(range(run.position)):
            yield f"run {run.pk}: {run.position} points were put to the vote, but there are {len(rows)} queries."
        if run.queries.filter(label__isnull=False).count() != run.labels:
            yield f"run {run.pk}: it records {run.labels} labels, but its queries have a different number."
