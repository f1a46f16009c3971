"""Carry out steps of the demonstration of sites in this installation, one a line, for ``manage.py demo --sites``.

A line is a JSON object: ``step``, and what it is ``given``. The answer is a line of JSON, too.
"""

import json
import socket
import sys
import time
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from ipate_web.processes import static_files_collect
from learning.formats import catalogue_load
from training.alliances.demonstration import STEPS, Step


class Command(BaseCommand):
    help = __doc__

    def handle(self, **_options: Any) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            step, arguments = order["step"], order["given"]
            if step in ("hub_found", "site_register"):
                arguments["splits"] = catalogue_load(arguments["data"], settings.DATA_DIR or None)
            self.stdout.write(json.dumps({**STEPS, **_OWN}[step](**arguments)))
            self.stdout.flush()


def _migrate() -> dict[str, Any]:
    call_command("migrate", verbosity=0)
    return {}


def _collect() -> dict[str, Any]:
    static_files_collect()
    return {}


def _listened(port: int) -> dict[str, Any]:
    """Wait until something listens on a port of this host."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return {}
        time.sleep(0.2)
    raise CommandError(f"Nothing listens on port {port}.")


_OWN: dict[str, Step] = {"migrate": _migrate, "collect": _collect, "listened": _listened}
