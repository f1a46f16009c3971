"""Build a demo study on real data, let everyone consent, ask all of them, teach a student, and show it."""

import json
import time
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from common.progress import progress_bar
from ipate_web.joint_demo import joint_demo
from ipate_web.processes import free_port, running, site_command, site_environment, unwind_on_signals, worker_command
from learning.formats import DataError, catalogue_load
from training.demonstration import EPSILONS, STUDIES, Login, people, rehearsal_build, runs_start, study_build
from training.engine.spending import used_share
from training.models import Run
from training.selectors import run_progress

LOGS = settings.VAR_DIR / "log"


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--data", choices=sorted(STUDIES), default="digits", help="which data (default digits)")
        parser.add_argument("--no-serve", action="store_true", help="end after the table; leave no site running")
        parser.add_argument("--json", action="store_true", help="print the result as one JSON object, last line")
        parser.add_argument(
            "--sites", type=int, default=0, help="so many hospitals and a hub, each an installation of its own"
        )
        parser.add_argument("--port", type=int, default=8000, help="where the site listens (default 8000)")

    def handle(self, **options: Any) -> None:
        unwind_on_signals()
        try:
            if options["sites"]:
                self.run_over_sites(**options)
                return
            self.run(options["data"], serve=not options["no_serve"], as_json=options["json"], port=options["port"])
        except KeyboardInterrupt:
            self.stdout.write("\nStopped.")

    def run_over_sites(self, data: str, sites: int, port: int, no_serve: bool, **options: Any) -> None:
        """A hub and several sites, one alliance, one joint run."""
        states = joint_demo(data, sites, port, self.stdout.write, serve=not no_serve)
        if options["json"]:
            self.stdout.write(json.dumps({"runs": states}))
        if any(state["status"] != "finished" for state in states):
            raise CommandError("; ".join(state["message"] for state in states if state["message"]))

    def run(self, data: str, *, serve: bool, as_json: bool, port: int) -> None:
        call_command("migrate", verbosity=0)
        with progress_bar(desc=f"{data}: reading") as bar:
            try:
                splits = catalogue_load(data, settings.DATA_DIR or None, _bar_progress(bar))
            except DataError as error:
                raise CommandError(str(error)) from error
        users, logins = people()
        real = study_build(data, splits, users, _track)
        rehearsal = rehearsal_build(data, splits, users)
        if serve:
            port = free_port(port)  # before the worker begins: its mails name the site
        with ExitStack() as stack:
            worker = stack.enter_context(running(worker_command(), LOGS / "worker.log", site_environment(port)))
            runs = runs_start(data, real, rehearsal, proposer=users["operator"], approver=users["operator2"])
            _wait_for(runs, worker)
            runs = list(Run.objects.filter(pk__in=[run.pk for run in runs]).order_by("created_at"))
            self._print_table(data, runs)
            if as_json:
                self.stdout.write(json.dumps({"runs": [_report(run) for run in runs]}))
            if failed := [run for run in runs if run.status != Run.Status.FINISHED]:
                raise CommandError(
                    "; ".join(f"{run.title}: {run.get_status_display()}. {run.message}" for run in failed)
                )
            if serve:
                self._serve(port, logins, worker)

    def _print_table(self, data: str, runs: list[Run]) -> None:
        title, delta = STUDIES[data]["words"]["en"]["title"], STUDIES[data]["delta"]
        epsilons = " / ".join(f"{value:g}" for value in EPSILONS.values())
        self.stdout.write(f"\n{title}: δ = {delta:g}, ε = {epsilons}\n\n")
        titles = [run.title + (" (rehearsal)" if run.rehearsal else "") for run in runs]
        width = max(map(len, titles))
        reports = [_report(run) for run in runs]
        baseline = reports[-1]["student_accuracy"]
        self.stdout.write(
            f"{'run':{width}} {'method':10} {'labels':>6} {'label acc.':>10} {'student acc.':>12} {'gain':>10}  "
            " holders are promised\n"
        )
        for run, title, report in zip(runs, titles, reports, strict=True):
            promised = ", ".join(f"{group['level'].lower()} ε {group['epsilon']:g}" for group in report["groups"])
            self.stdout.write(
                f"{title:{width}} {run.method:10} {run.labels:6d} {_percent(report['label_accuracy']):>10} "
                f"{_percent(report['student_accuracy']):>12} {_gain(report['student_accuracy'], baseline):>10}   "
                f"{promised if not run.rehearsal else 'nothing'}\n"
            )
        self.stdout.write("\nThe gain is in points of the student's accuracy, against the last line.\n\n")

    def _serve(self, port: int, logins: list[Login], worker: Any) -> None:
        call_command("collectstatic", interactive=False, verbosity=0)
        with running(site_command(port), LOGS / "site.log", site_environment(port)) as site:
            self.stdout.write(f"The site runs at http://127.0.0.1:{port} until Ctrl-C (logs in {LOGS}). Sign in as\n")
            for login in logins:
                self.stdout.write(f"  {login.role:32} {login.username:16} {login.password}\n")
            if settings.EMAIL_FILE_PATH:
                self.stdout.write(f"Mails are files in {settings.EMAIL_FILE_PATH}.\n")
            while site.poll() is None and worker.poll() is None:
                time.sleep(0.3)
            raise CommandError(f"A process has stopped; see {LOGS}.")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _gain(accuracy: float | None, baseline: float | None) -> str:
    """In percentage points."""
    return "–" if accuracy is None or baseline is None else f"{100 * (accuracy - baseline):+.1f}"


def _report(run: Run) -> dict[str, Any]:
    """Outcome of a run; ``share`` is the part of every holder's cap that it used, None in a rehearsal."""
    student = run.student
    return {
        "method": run.method,
        "variant": run.variant,
        "rehearsal": run.rehearsal,
        "labels": run.labels,
        "label_accuracy": student.label_accuracy if student else None,
        "student_accuracy": student.accuracy if student else None,
        "groups": [
            {
                "level": promise["level"],
                "holders": promise["holders"],
                "epsilon": promise["epsilon"],
                "share": None if run.rehearsal else used_share(run),
            }
            for promise in run.plan["promises"]
        ],
    }


def _track(items: Iterable, description: str, total: int) -> Iterable:
    return progress_bar(items, desc=description, total=total, disable=total == 0)


def _bar_progress(bar: tqdm):
    def progress(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return progress


def _wait_for(runs: list[Run], worker: Any) -> None:
    """Wait until all runs have ended, with one progress bar for each."""
    with ExitStack() as stack:
        shape = "{desc} {percentage:3.0f}% |{bar}|"
        bars = {
            run.pk: stack.enter_context(
                progress_bar(desc=run.title, position=place, bar_format=shape, total=100, leave=True)
            )
            for place, run in enumerate(runs)
        }
        while True:
            current = Run.objects.filter(pk__in=bars).select_related("public_dataset")
            for run in current:
                progress, bar = run_progress(run), bars[run.pk]
                bar.set_description_str(f"{run.title[:32]:32} {run.get_status_display()}", refresh=False)
                done = sum(stage.share for stage in progress.stages) / len(progress.stages)
                bar.update((100 if run.has_ended else round(100 * done)) - bar.n)
            if all(run.has_ended for run in current):
                return
            if worker.poll() is not None:
                raise CommandError(f"The worker has stopped; see {LOGS / 'worker.log'}.")
            time.sleep(0.2)
