"""``manage.py verify_ledger``: check chains, accounts and shares; with ``--replay`` every charge."""

from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounting.verification import Check, study_checks
from common.append_only import chained_models
from common.progress import progress_bar
from consent.models import Study
from consent.selectors import role_faults
from training.models import Run
from training.verification import batches_kept, record_faults, release_faults, replay_faults, stray_faults


class Command(BaseCommand):
    help = (
        "Verify the hash chains, accounts and shares of all studies, or of one, and that what was released "
        "is what was charged. Exit status 1 where something is wrong. Keep the printed hashes outside the database: "
        "with --noted, a later call proves that the chain which ended there has only grown since."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--study", help="short name of one study (default: all)")
        parser.add_argument(
            "--replay",
            action="store_true",
            help="compute every charge anew where the study keeps what it followed from",
        )
        parser.add_argument(
            "--noted", action="append", default=[], metavar="HASH", help="a hash that was noted at an earlier check"
        )

    def handle(self, *args: Any, study: str | None, replay: bool, noted: list[str], **options: Any) -> None:
        studies = Study.objects.filter(slug=study) if study else Study.objects.all()
        if study and not studies:
            known = ", ".join(Study.objects.values_list("slug", flat=True)) or "none yet"
            raise CommandError(f"There is no study “{study}”. Studies: {known}.")
        faults = sum(self._verify(each, replay) for each in studies)
        for value in noted:
            if not any(model._default_manager.filter(hash=value).exists() for model in chained_models()):
                self.stdout.write(f"{value}: no chain has the noted row any more; one was shortened or written anew.")
                faults += 1
        if faults:
            raise CommandError(f"{faults} faults. Keep the database as it is and compare it with a backup.")

    def _verify(self, study: Study, replay: bool) -> int:
        """Report on one study; returns the number of faults."""
        self.stdout.write(f"{study.slug}:")
        checks = [
            *study_checks(study, watch=partial(progress_bar, unit=" rows")),
            *(
                Check(f"releases of run {run.pk}", lambda run=run: release_faults(run))  # type: ignore[misc]
                for run in Run.objects.filter(study=study).select_related("study")
            ),
            Check("releases of runs that are not there", lambda: stray_faults(study)),
            Check("datasets, and erasures that were asked for", lambda: record_faults(study)),
            Check("roles as they were given and taken away", lambda: role_faults(study)),
        ]
        if replay:
            kept = batches_kept(study)
            self.stdout.write(f"  {len(kept)} batches can be replayed: what their charges followed from is kept")
            checks += [
                Check(f"replay of run {batch.run_id}, batch {batch.index}", lambda batch=batch: replay_faults(batch))  # type: ignore[misc]
                for batch in kept
            ]
        total = 0
        for check in progress_bar(checks, desc=study.slug):
            found = check.faults()
            if found or not check.name.startswith("replay"):
                self.stdout.write(f"  {'FAULT' if found else 'whole'}  {check.name}")
            for fault in found:
                self.stdout.write(f"         {fault}")
            total += len(found)
        return total
