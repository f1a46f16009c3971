"""Verify an installation of :mod:`deploy.release` and print its facts, or ``go_on`` with it and verify it afterwards.

This happens in one process, because starting another would take seconds.
"""

import json
import sys

import django
from django.core.management import call_command

from deploy.release import facts

django.setup()

from tests.training.asking import run_ask  # noqa: E402
from tests.training.runs import run_finish  # noqa: E402
from training.models import Run  # noqa: E402

if sys.argv[1] == "go_on":
    for title, carry_out in (("All are asked", run_ask), ("Waiting", run_finish)):
        run = carry_out(Run.objects.get(title=title))
        assert run.status == Run.Status.FINISHED, run.message
else:
    call_command("makemigrations", check_changes=True, dry_run=True)
    call_command("migrate", check_unapplied=True)
call_command("verify_ledger")
sys.stdout.write(json.dumps(facts()))
