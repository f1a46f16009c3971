"""Slots: held over processes, and free again when one dies."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common.slots import NoSlotError, slot

HOLDS = """
import sys
from django.conf import settings
settings.configure(VAR_DIR=sys.argv[1], PLANS_AT_ONCE=2)
from common.slots import slot
with slot(7):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_slot_is_free_again_when_the_process_that_had_it_is_killed(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR, settings.PLANS_AT_ONCE = tmp_path, 2
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(NoSlotError), slot(7):
            raise AssertionError
        with slot(8), pytest.raises(NoSlotError), slot(9):  # the machine's second, and none is left
            raise AssertionError
        other.kill()
        other.wait()
        with slot(7), slot(9):
            pass
