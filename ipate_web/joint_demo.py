"""Installations of ``manage.py demo --sites`` on this machine: a hub and sites, each with database, port and worker."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from ipate_web.processes import free_port, running, site_command, worker_command

#: Names of the first sites.
_NAMES = ("Clinic Northtown", "Clinic Southtown", "Clinic Easttown", "Clinic Westtown", "Clinic Midtown")
ENDED = ("finished", "failed", "cancelled")


@dataclass(frozen=True)
class Installation:
    """An installation in its own folder.

    Attributes:
        name: Name of the hub or the site.
        folder: Its database, files and logs.
        port: Port of its pages.
        address: URL at which others reach its pages.
        within: Prefix of every command run in the installation.
        variables: Environment variables in addition to the common ones.
    """

    name: str
    folder: Path
    port: int
    address: str
    within: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the installation's processes, overriding those of the calling process."""
        return {
            "IPATE_VAR_DIR": str(self.folder),
            "IPATE_SITE_URL": self.address,
            "DATABASE_URL": f"sqlite:///{self.database}",
            "IPATE_BROKER_URL": "filesystem://",
            "IPATE_SECRET_KEY": "",
            "IPATE_SITES_INTERVAL": "2",
            "NO_PROXY": "127.0.0.1",
            **self.variables,
        }

    @property
    def database(self) -> Path:
        return self.folder / "ipate.sqlite3"

    @property
    def logs(self) -> Path:
        return self.folder / "log"


@dataclass(frozen=True)
class StepsProcess:
    """Process that carries out steps of ``manage.py demo_step`` in an installation, one after another."""

    at: Installation
    process: subprocess.Popen

    def begin(self, step: str, **given: Any) -> None:
        """Start a step; `end` returns its result."""
        assert self.process.stdin is not None, "a pipe"
        self.process.stdin.write(json.dumps({"step": step, "given": given}) + "\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Return the report of the step that was started. Raises CommandError if it failed."""
        assert self.process.stdout is not None, "a pipe"
        answer = json.loads(self.process.stdout.readline() or '{"failed": "the process has ended"}')
        if "failed" in answer:
            log = self.at.logs / "steps.log"
            raise CommandError(f"{self.at.name}: a step failed: {answer['failed']} (See {log} for details.)")
        return answer

    def do(self, step: str, **given: Any) -> dict[str, Any]:
        """Carry out a step. Raises CommandError if it fails."""
        self.begin(step, **given)
        return self.end()


@contextmanager
def stepping(at: Installation) -> Iterator[StepsProcess]:
    """Yield a process for the steps of an installation; it ends with the block."""
    at.logs.mkdir(exist_ok=True)
    with (at.logs / "steps.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*at.within, sys.executable, "manage.py", "demo_step"],
            cwd=settings.BASE_DIR,
            env=os.environ | at.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    with process:
        try:
            yield StepsProcess(at, process)
        finally:
            process.kill()


def installations(sites: int, port: int) -> list[Installation]:
    """Return the hub and the given number of sites, each with the next free port. Raises CommandError."""
    if not 3 <= sites <= len(_NAMES):
        raise CommandError(f"Give between 3 and {len(_NAMES)} sites: protection against one colluding site needs 3.")
    folder, places = settings.VAR_DIR / "sites", []
    if folder.exists():
        raise CommandError(f"{folder} contains sites of an earlier demonstration. Delete it first.")
    for name in ("Hub", *_NAMES[:sites]):
        port = free_port(port)
        place = folder / name.lower().replace(" ", "-")
        place.mkdir(parents=True, mode=0o700)
        places.append(Installation(name, place, port, f"http://127.0.0.1:{port}"))
        port += 1
    return places


def joint_demo(
    data: str, sites: int, port: int, write: Callable[[str], Any], *, serve: bool, mode: str = "together"
) -> list[dict[str, Any]]:
    """Create an alliance, carry out and show a run across its sites; return each participant's outcome, hub first.

    Raises:
        CommandError: A step failed, or a process stopped.
    """
    among = installations(sites, port)
    with ExitStack() as stack:
        steps = [stack.enter_context(stepping(each)) for each in among]
        databases_make(steps)
        if serve:
            for each in steps:
                each.begin("collect")
            for each in steps:
                each.end()
        processes = [stack.enter_context(pages(each)) for each in (among if serve else among[:1])]
        alliance_make(steps, data, write)
        processes += [stack.enter_context(worker(each)) for each in among]
        run_begin(steps, mode)
        write("Everyone has approved the run.\n")
        states = _wait_for_end(steps, processes, write)
        if serve:
            write("\nAll of them run until you press Ctrl-C.\n")
            while all(process.poll() is None for process in processes):
                time.sleep(0.3)
            raise CommandError(f"A process has stopped; see {settings.VAR_DIR / 'sites'}.")
        return states


def pages(of: Installation) -> AbstractContextManager[subprocess.Popen]:
    """Run the pages and the API of an installation."""
    return running([*of.within, *site_command(of.port)], of.logs / "site.log", dict(of.environment))


def worker(of: Installation) -> AbstractContextManager[subprocess.Popen]:
    """Run the worker of an installation."""
    return running([*of.within, *worker_command(1)], of.logs / "worker.log", dict(of.environment))


def databases_make(steps: list[StepsProcess]) -> None:
    """Create each installation's database. Sites get a copy of the hub's while it is still empty."""
    steps[0].do("migrate")
    with closing(sqlite3.connect(steps[0].at.database)) as made:
        for each in steps[1:]:
            with closing(sqlite3.connect(each.at.database)) as copy:
                made.backup(copy)


def alliance_make(steps: list[StepsProcess], data: str, write: Callable[[str], Any], certificate: str = "") -> None:
    """Create an alliance that all sites join, and print who can sign in at each installation."""
    hub, *clinics = steps
    hub_facts = hub.do("hub_create", data=data, names=[each.at.name for each in clinics], address=hub.at.address)
    hub.do("listened", port=hub.at.port)
    _present(hub.at, hub_facts["logins"], write)
    write("\nThe alliance has been created.\n")
    for place, each in enumerate(clinics):
        invited = hub_facts["invitations"][each.at.name]
        given = {"place": place, "of": len(clinics), "name": each.at.name, "invitation": invited}
        each.begin("site_register", data=data, certificate=certificate, **given)
    for each in clinics:
        _present(each.at, each.end()["logins"], write)
    hub.do("hub_sign")
    for each in clinics:
        each.begin("site_join", data=data)
    for each in clinics:
        write(f"{each.at.name} has joined with {each.end()['holders']} people who consent.\n")


def run_begin(steps: list[StepsProcess], mode: str, share: float = 0.9) -> None:
    """Propose a run at the hub, and have all participants approve it. This can be repeated after an error.

    Raises:
        CommandError: Steps failed; the other steps have been carried out.
    """
    hub, *clinics = steps
    number = hub.do("hub_run", mode=mode, share=share)["number"]
    for each in clinics:
        each.begin("site_run", number=number, share=share)
    failed = []
    for each in clinics:
        try:
            each.end()
        except CommandError as error:
            failed.append(str(error))
    if failed:
        raise CommandError("\n".join(failed))


def _wait_for_end(
    steps: list[StepsProcess], processes: list[subprocess.Popen], write: Callable[[str], Any]
) -> list[dict[str, Any]]:
    begun, before = time.monotonic(), -1
    while True:
        hub = steps[0].do("run_state")
        if hub["position"] != before:
            before = hub["position"]
            took = time.monotonic() - begun
            write(f"{before} of {hub['size']} questions added up after {took:.0f} seconds.\n")
        if hub["status"] in ENDED:
            states = [hub, *(each.do("run_state") for each in steps[1:])]
            if all(state["status"] in ENDED for state in states):
                for each, state in zip(steps, states, strict=True):
                    right = "" if state["accuracy"] is None else f", {100 * state['accuracy']:.1f} % right"
                    write(f"{each.at.name:20} {state['status']}{right} {state['message']}\n")
                return states
        if any(process.poll() is not None for process in processes):
            raise CommandError(f"A process has stopped; see {settings.VAR_DIR / 'sites'}.")
        time.sleep(0.3)


def _present(at: Installation, logins: list[dict[str, str]], write: Callable[[str], Any]) -> None:
    write(f"\n{at.name}: {at.address}\nSign in with the password {logins[0]['password']} as\n")
    for login in logins:
        write(f"  {login['username']:18} {login['role']}\n")
