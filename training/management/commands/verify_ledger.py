"""``manage.py verify_ledger``: check consent events, ledger, totals and budgets; with ``--replay`` every charge."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

import numpy as np
from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from accounting.models import LedgerEntry
from accounting.verification import study_faults
from consent.models import ConsentEvent, Study
from training.ballot import batch_cost
from training.models import Run, VoteBatch

REPLAY_TOLERANCE = 1e-12


class Command(BaseCommand):
    help = (
        "Verify the hash chains, totals and budgets of all studies, or of one. Exit status 1 where something is wrong."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--study", help="short name of one study (default: all)")
        parser.add_argument(
            "--replay", action="store_true", help="compute every charge anew where the teachers' predictions are kept"
        )

    def handle(self, *args: Any, study: str | None, replay: bool, **options: Any) -> None:
        studies = Study.objects.filter(slug=study) if study else Study.objects.all()
        if study and not studies:
            known = ", ".join(Study.objects.values_list("slug", flat=True)) or "none yet"
            raise CommandError(f"There is no study “{study}”. Studies: {known}.")
        faults = 0
        for each in studies:
            found = [*study_faults(each), *(self._replay_faults(each) if replay else [])]
            events = ConsentEvent.objects.filter(study=each).count()
            entries = LedgerEntry.objects.filter(study=each).count()
            verdict = "whole" if not found else f"{len(found)} faults"
            self.stdout.write(f"{each.slug}: {events} consent events, {entries} ledger entries: {verdict}")
            for fault in found:
                self.stdout.write(f"  {fault}")
            faults += len(found)
        if faults:
            raise CommandError(f"{faults} faults. Keep the database as it is and compare it with a backup.")

    def _replay_faults(self, study: Study) -> Iterator[str]:
        """Charges that differ from what the votes cost."""
        batches = VoteBatch.objects.filter(run__study=study, run__simulation=False).select_related("run__account")
        kept = batches.filter(run__status=Run.Status.FINISHED) if study.retain_votes else batches.none()
        self.stdout.write(f"{study.slug}: {kept.count()} of {batches.count()} batches can be replayed")
        for batch in tqdm(kept.order_by("run", "index"), desc="replaying", leave=False, disable=not kept):
            charged = LedgerEntry.objects.filter(run=batch.run_id, batch=batch.index).order_by("group__index")
            for entry, cost in zip(charged, batch_cost(batch), strict=True):
                if not np.allclose(entry.rdp, cost, rtol=REPLAY_TOLERANCE, atol=0):
                    yield f"ledger entry {entry.sequence}: the votes of batch {batch.index} cost something else."
