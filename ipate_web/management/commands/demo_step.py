"""Carry out one step of the demonstration of sites in this installation; ``manage.py demo --sites`` calls it."""

import json
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from learning.formats import catalogue_load
from training.joint_demonstration import STEPS


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("step", choices=sorted(STEPS))
        parser.add_argument("given", help="its arguments, a JSON object; with “data” the records are read")

    def handle(self, **options: Any) -> None:
        given = json.loads(options["given"])
        if options["step"] in ("hub_found", "site_register"):
            given["splits"] = catalogue_load(given["data"], settings.DATA_DIR or None)
        self.stdout.write(json.dumps(STEPS[options["step"]](**given)))
