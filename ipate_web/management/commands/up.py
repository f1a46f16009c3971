"""Migrate, then run the site and a worker on this machine until Ctrl-C."""

import time
from argparse import ArgumentParser
from contextlib import ExitStack

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from ipate_web.processes import (
    free_port,
    running,
    site_command,
    site_environment,
    static_files_collect,
    unwind_on_signals,
    worker_command,
)


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="port of the site (default 8000)")

    def handle(self, *, port: int, **_: object) -> None:
        unwind_on_signals()
        call_command("migrate", verbosity=0)
        static_files_collect()
        port = free_port(port)
        logs = settings.VAR_DIR / "log"
        environment = site_environment(port)
        with ExitStack() as stack:
            processes = {
                "site": stack.enter_context(running(site_command(port), logs / "site.log", environment)),
                "worker": stack.enter_context(running(worker_command(), logs / "worker.log", environment)),
            }
            self.stdout.write(f"The site runs at http://127.0.0.1:{port} (logs in {logs}). Ctrl-C stops it.")
            self.stdout.flush()  # output to a file is buffered
            try:
                while True:
                    for name, process in processes.items():
                        if process.poll() is not None:
                            raise CommandError(f"The {name} has stopped; see {logs / name}.log.")
                    time.sleep(0.5)
            except KeyboardInterrupt:
                self.stdout.write("\nStopped.")
