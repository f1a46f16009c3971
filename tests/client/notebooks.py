"""Documents as programs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

NOTEBOOKS = settings.BASE_DIR / "client" / "notebooks"


@contextmanager
def program_lines(
    code: str, *, site: str, token: str, study: str, folder: Path, program: tuple[str, ...] = (sys.executable, "-c")
) -> Iterator[Iterator[str]]:
    """Context in which a program runs in ``folder``, with the lines that it prints; fails where it fails."""
    environment = {
        **os.environ,
        **{"IPATE_SITE": site, "IPATE_TOKEN": token, "IPATE_STUDY": study, "IPATE_EVERY": "0.2"},
        **{"PYTHONPATH": str(settings.BASE_DIR / "client"), "no_proxy": "*"},
    }
    command, pipe = [*program, code], subprocess.PIPE
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        except BaseException:
            process.kill()  # or it would wait for ever for what did not happen
            raise
    if process.returncode:
        pytest.fail((folder / "errors").read_text()[-2000:])
