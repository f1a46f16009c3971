"""Verify the hash chains, accounts and shares of one study or all, and that releases match their charges.

The exit status is 1 if there are faults. Keep the printed hashes outside the database: a later call with --noted proves
that the chains have only grown since.
"""

from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounting.verification import Check, installation_checks
from common.append_only import chained_models, installation_chains
from common.progress import counted, progress_bar
from consent.management import study_by_slug
from consent.models import Study
from training.verification import batches_with_votes, check_results_store, checks_of, replay_faults


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--study", help="short name of one study (default: all)")
        parser.add_argument(
            "--replay",
            action="store_true",
            help="recompute every charge whose inputs the study keeps",
        )
        parser.add_argument(
            "--noted", action="append", default=[], metavar="HASH", help="a hash noted at an earlier check"
        )

    def handle(self, *args: Any, study: str | None, replay: bool, noted: list[str], **options: Any) -> None:
        studies = [study_by_slug(study)] if study else Study.objects.all()
        self.stdout.write("installation:")
        faults = check_results_store(None, installation_checks(), report=self._report)
        faults += sum(self._verify(each, replay) for each in studies)
        chains = [*chained_models(), *installation_chains()]
        for value in noted:
            if not any(model._default_manager.filter(hash=value).exists() for model in chains):
                self.stdout.write(f"{value}: no chain contains this hash, so a chain was shortened or rewritten.")
                faults += 1
        if faults:
            raise CommandError(
                f"{counted(faults, 'fault', 'faults')}. Leave the database unchanged and compare it with a backup."
            )

    def _verify(self, study: Study, replay: bool) -> int:
        """Verify one study and store the results; return the number of faults."""
        self.stdout.write(f"{study.slug}:")
        checks = checks_of(study, watch=partial(progress_bar, unit=" rows"))
        if replay:
            kept = batches_with_votes(study)
            self.stdout.write(
                f"  {counted(len(kept), 'batch', 'batches')} can be replayed: the inputs of their charges are kept"
            )
            checks += [
                Check(f"replay of run {batch.run_id}, batch {batch.index}", lambda batch=batch: replay_faults(batch))  # type: ignore[misc]
                for batch in kept
            ]
        return check_results_store(study, progress_bar(checks, desc=study.slug), report=self._report)

    def _report(self, check: Check, faults: list[str]) -> None:
        if faults or not check.name.startswith("replay"):
            self.stdout.write(f"  {'FAULT' if faults else 'ok'}  {check.name}")
        for fault in faults:
            self.stdout.write(f"         {fault}")
