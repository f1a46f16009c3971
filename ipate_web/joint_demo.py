"""Installations of ``manage.py demo --sites`` on this machine: a hub and sites, each with database, port and worker."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from ipate_web.processes import free_port, running, site_command, worker_command

#: Names of the sites, as far as there are.
_NAMES = ("Clinic Northtown", "Clinic Southtown", "Clinic Easttown", "Clinic Westtown", "Clinic Midtown")
ENDED = ("finished", "failed", "cancelled")


@dataclass(frozen=True)
class Installation:
    """An installation in a folder of its own."""

    name: str
    folder: Path
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all of its processes: what this process was told of its own installation is not theirs."""
        return {
            "IPATE_VAR_DIR": str(self.folder),
            "IPATE_SITE_URL": self.address,
            "DATABASE_URL": f"sqlite:///{self.folder / 'ipate.sqlite3'}",
            "IPATE_BROKER_URL": "filesystem://",
            "IPATE_SECRET_KEY": "",
            "NO_PROXY": "127.0.0.1",
        }

    def manage(self, *arguments: str) -> str:
        """Output of a management command in this installation.

        Raises:
            CommandError: It has failed.
        """
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "manage.py", *arguments],
            cwd=settings.BASE_DIR,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandError(f"{self.name}: {' '.join(arguments[:2])} has failed.\n{done.stderr[-2000:]}")
        return done.stdout

    def step(self, step: str, **given: Any) -> dict[str, Any]:
        """Carry out a step of `training.joint_demonstration` here."""
        return json.loads(self.manage("demo_step", step, json.dumps(given)).splitlines()[-1])


def installations(sites: int, port: int) -> list[Installation]:
    """The hub and so many sites, each with the next free port. Raises CommandError."""
    if not 3 <= sites <= len(_NAMES):
        raise CommandError(f"Give between 3 and {len(_NAMES)} sites: with one that may collude 3 are needed.")
    folder, places = settings.VAR_DIR / "sites", []
    if folder.exists():
        raise CommandError(f"There are sites of an earlier demonstration in {folder}. Delete the folder first.")
    for name in ("Hub", *_NAMES[:sites]):
        port = free_port(port)
        place = folder / name.lower().replace(" ", "-")
        place.mkdir(parents=True, mode=0o700)
        places.append(Installation(name, place, port))
        port += 1
    return places


def joint_demo(
    data: str, sites: int, port: int, write: Callable[[str], Any], *, serve: bool, mode: str = "together"
) -> list[dict[str, Any]]:
    """Found an alliance, run over its sites, and show it; returns how the run ended everywhere, the hub's first.

    Raises:
        CommandError: A step has failed, or a process has stopped.
    """
    hub, *clinics = all_of_them = installations(sites, port)
    with ExitStack() as stack:
        for each in all_of_them:
            each.manage("migrate", "--verbosity", "0")
        told = hub.step("hub_found", data=data, names=[each.name for each in clinics], address=hub.address)
        logins, processes = told["logins"], []
        for each in all_of_them:
            logs = each.folder / "log"
            for command, log in ((site_command(each.port), "site.log"), (worker_command(1), "worker.log")):
                processes.append(stack.enter_context(running(command, logs / log, each.environment)))
        _wait_for_port(hub)
        write("The alliance is founded.\n")
        for place, each in enumerate(clinics):
            invited = told["invitations"][each.name]
            given = {"data": data, "place": place, "of": len(clinics), "name": each.name, "told": invited}
            logins += each.step("site_register", **given)["logins"]
        hub.step("hub_sign")
        for each in clinics:
            write(f"{each.name} has joined: {each.step('site_join', data=data)['holders']} people consent.\n")
        number = hub.step("hub_run", mode=mode)["number"]
        for each in clinics:
            each.step("site_run", number=number)
        write("The run is approved by all.\n")
        states = _wait_for_end(all_of_them, processes, write)
        if serve:
            _serve(all_of_them, logins, processes, write)
        return states


def _wait_for_port(hub: Installation) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", hub.port)) == 0:
                return
        time.sleep(0.2)
    raise CommandError(f"The hub does not listen; see {hub.folder / 'log'}.")


def _wait_for_end(
    among: list[Installation], processes: list[subprocess.Popen], write: Callable[[str], Any]
) -> list[dict[str, Any]]:
    before = -1
    while True:
        states = [each.step("run_state") for each in among]
        if states[0]["position"] != before:
            before = states[0]["position"]
            write(f"{before} of {states[0]['size']} questions are added up.\n")
        if all(state["status"] in ENDED for state in states):
            for each, state in zip(among, states, strict=True):
                right = "" if state["accuracy"] is None else f", {100 * state['accuracy']:.1f} % of the test data right"
                write(f"{each.name:20} {state['status']}{right} {state['message']}\n")
            return states
        if any(process.poll() is not None for process in processes):
            raise CommandError(f"A process has stopped; see {settings.VAR_DIR / 'sites'}.")
        time.sleep(1)


def _serve(
    among: list[Installation],
    logins: list[dict[str, str]],
    processes: list[subprocess.Popen],
    write: Callable[[str], Any],
) -> None:
    each_has = len(logins) // len(among)
    for place, each in enumerate(among):
        each.manage("collectstatic", "--no-input", "--verbosity", "0")
        write(f"\n{each.name}: {each.address}\n")
        for login in logins[place * each_has : (place + 1) * each_has]:
            write(f"  {login['role']:32} {login['username']:16} {login['password']}\n")
    write("\nAll of them run until Ctrl-C.\n")
    while all(process.poll() is None for process in processes):
        time.sleep(0.3)
    raise CommandError(f"A process has stopped; see {settings.VAR_DIR / 'sites'}.")
