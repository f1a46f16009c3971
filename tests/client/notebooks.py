"""The client's notebook, and other documents, as programs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

NOTEBOOK = settings.BASE_DIR / "client" / "notebooks" / "from-token-to-student.ipynb"


def notebook_lines(**installation: Any) -> AbstractContextManager[Iterator[str]]:
    """Context in which the client's notebook runs, as :func:`program_lines` does with its cells."""
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return program_lines(code, **installation)


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
