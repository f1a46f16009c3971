"""Run the site with a demo study: import real data, record everyone's consent, start runs, and train students.

You can stop it at any time. Call it again to continue.
"""

import json
import time
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import ExitStack
from subprocess import Popen
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse
from tqdm import tqdm

from common.progress import progress_bar
from consent.models import Study
from ipate_web.joint_demo import joint_demo
from ipate_web.processes import (
    free_port,
    running,
    site_command,
    site_environment,
    static_files_collect,
    unwind_on_signals,
    wait_for_answer,
    worker_command,
)
from learning.formats import DataError, catalogue_load
from training.demonstration import (
    EPSILONS,
    STUDIES,
    Login,
    demo_rehearsal,
    demo_study,
    people,
    rehearsal_build,
    runs_start,
    study_build,
)
from training.engine.commits import used_share
from training.models import Run
from training.selectors import run_progress

LOGS = settings.VAR_DIR / "log"


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--data", choices=sorted(STUDIES), default="digits", help="data to use (default digits)")
        parser.add_argument(
            "--no-serve", action="store_true", help="exit after printing the table, without running the site"
        )
        parser.add_argument("--json", action="store_true", help="print the result as a JSON object on the last line")
        parser.add_argument(
            "--sites",
            type=int,
            default=0,
            help="number of hospitals, each with its own installation, plus a hub",
        )
        parser.add_argument("--port", type=int, default=8000, help="port of the site (default 8000)")

    def handle(self, **options: Any) -> None:
        unwind_on_signals()
        try:
            if options["sites"]:
                self.run_over_sites(**options)
                return
            self.run(options["data"], serve=not options["no_serve"], as_json=options["json"], port=options["port"])
        except KeyboardInterrupt:
            self.stdout.write("\nStopped. Run the same command again to continue.")

    def run_over_sites(self, data: str, sites: int, port: int, no_serve: bool, **options: Any) -> None:
        """Run a hub and several sites with an alliance and a joint run."""
        states = joint_demo(data, sites, port, self.stdout.write, serve=not no_serve)
        if options["json"]:
            self.stdout.write(json.dumps({"runs": states}))
        if any(state["status"] != "finished" for state in states):
            raise CommandError("; ".join(state["message"] for state in states if state["message"]))

    def run(self, data: str, *, serve: bool, as_json: bool, port: int) -> None:
        call_command("migrate", verbosity=0)
        with ExitStack() as stack:
            processes: list[Popen] = []
            if serve:
                port = free_port(port)  # before the worker starts, because its emails contain the site's URL
                static_files_collect()
                site = stack.enter_context(running(site_command(port), LOGS / "site.log", site_environment(port)))
                processes.append(site)
            users, logins = people()  # in parallel with the start of the site
            study, _rehearsal = demo_study(data, users), demo_rehearsal(data, users)
            if serve:
                wait_for_answer(port, site)
                _require_all(processes)
                self._print_logins(port, study, logins)
            worker = running(worker_command(), LOGS / "worker.log", site_environment(port))
            processes.append(stack.enter_context(worker))
            runs = self._carry_out(data, users, processes)
            self._print_table(data, runs)
            if as_json:
                self.stdout.write(json.dumps({"runs": [_report(run) for run in runs]}))
            if failed := [run for run in runs if run.status != Run.Status.FINISHED]:
                raise CommandError(
                    "; ".join(f"{run.title}: {run.get_status_display()}. {run.message}" for run in failed)
                )
            if serve:
                self._print_places(port, study, runs)
                while True:
                    _require_all(processes)
                    time.sleep(0.3)

    def _carry_out(self, data: str, users: dict[str, User], processes: list[Popen]) -> list[Run]:
        """Import the data, record everyone's decision, start the runs, and return them after they have ended."""
        with progress_bar(desc=f"{data}: reading") as bar:
            try:
                splits = catalogue_load(data, settings.DATA_DIR or None, _bar_progress(bar))
            except DataError as error:
                raise CommandError(str(error)) from error
        real = study_build(data, splits, users, _track)
        rehearsal = rehearsal_build(data, splits, users)
        try:
            runs = runs_start(data, real, rehearsal, proposer=users["operator"], approver=users["operator2"])
        except ValidationError as error:  # for example, because a visitor has already given the share to another run
            raise CommandError(" ".join(error.messages)) from error
        _wait_for(runs, processes)
        return list(Run.objects.filter(pk__in=[run.pk for run in runs]).order_by("created_at"))

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
        self.stdout.write("\nThe gain is the difference in student accuracy from the last line, in percentage points.")
        if student := runs[0].student:
            share = _percent(student.card["evaluation"]["majority"]["share"])
            self.stdout.write(f"Always predicting the most frequent class would give {share}.")
        self.stdout.write("\n")

    def _print_logins(self, port: int, study: Study, logins: list[Login]) -> None:
        """Print the site's URL, the accounts for signing in, and the current activity."""
        self.stdout.write(
            f"The site runs at http://127.0.0.1:{port} until Ctrl-C (logs in {LOGS}).\n"
            f"Sign in with the password {logins[0].password} as\n"
        )
        for login in logins:
            self.stdout.write(f"  {login.username:18} {login.role}\n")
        if settings.EMAIL_FILE_PATH:
            self.stdout.write(f"Emails are written to {settings.EMAIL_FILE_PATH}.\n")
        self.stdout.write(
            "\nMeanwhile people decide, and four runs learn from those who consent. Operators can follow them at:\n"
            f"  http://127.0.0.1:{port}{reverse('staff:runs', args=[study.slug])}\n"
            "You can stop with Ctrl-C at any time and continue with the same command.\n\n"
        )
        self.stdout.flush()  # output to a file is buffered

    def _print_places(self, port: int, study: Study, runs: list[Run]) -> None:
        """Print the most informative pages, each with the users who may see it."""
        rehearsed = [run for run in runs if run.rehearsal]
        places = [
            ("operator", reverse("staff:study", args=[study.slug]), "privacy budget used by each group"),
            *(
                ("operator", reverse("staff:run", args=[study.slug, run.pk]), f"run “{run.title}”")
                for run in runs
                if not run.rehearsal
            ),
            ("holder", reverse("consent:study", args=[study.slug]), "a person's choice"),
            ("auditor", reverse("staff:ledger", args=[study.slug]), "release register and its verification"),
        ]
        if rehearsed:
            page = reverse("staff:run_compare", args=[rehearsed[0].study.slug])
            compared = "&".join(f"run={run.pk}" for run in rehearsed)
            places.append(("operator", f"{page}?{compared}", "the rehearsals compared"))
        self.stdout.write("Where to look:\n")
        for who, path, words in places:
            self.stdout.write(f"  {f'demo-{who}':14} {words:35} http://127.0.0.1:{port}{path}\n")
        self.stdout.write("\n")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _gain(accuracy: float | None, baseline: float | None) -> str:
    """Return the difference between accuracy and baseline in percentage points."""
    return "–" if accuracy is None or baseline is None else f"{100 * (accuracy - baseline):+.1f}"


def _report(run: Run) -> dict[str, Any]:
    """Return a run's outcome in words. ``share`` is the used part of every holder's cap, None in a rehearsal."""
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


def _wait_for(runs: list[Run], processes: list[Popen]) -> None:
    """Wait until all runs have ended, with a progress bar for each run."""
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
            _require_all(processes)
            time.sleep(0.2)


def _require_all(processes: list[Popen]) -> None:
    """Raise CommandError if one of the processes has stopped."""
    if any(process.poll() is not None for process in processes):
        raise CommandError(f"A process has stopped; see {LOGS}.")
