"""The client's notebook as a program."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

NOTEBOOK = settings.BASE_DIR / "client" / "notebooks" / "from-token-to-student.ipynb"


@contextmanager
def notebook_lines(*, site: str, token: str, study: str, folder: Path) -> Iterator[Iterator[str]]:
    """Context in which the notebook runs in ``folder``, with the lines that it prints; fails where it fails."""
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    environment = {
        **os.environ,
        **{"IPATE_SITE": site, "IPATE_TOKEN": token, "IPATE_STUDY": study, "IPATE_EVERY": "0.2"},
        **{"PYTHONPATH": str(settings.BASE_DIR / "client"), "no_proxy": "*"},
    }
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        except BaseException:
            process.kill()  # or it would wait for ever for what did not happen
            raise
    if process.returncode:
        pytest.fail((folder / "errors").read_text()[-2000:])
