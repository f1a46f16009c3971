"""The notebook from a token to a student, cell by cell, while an operator and a worker do their part."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from pytest_django.live_server_helper import LiveServer

from consent.models import Study
from tests.factories import user_create
from tests.training.asking import run_ask
from training.models import Run
from training.services.runs import run_approve

pytestmark = pytest.mark.slow

NOTEBOOK = settings.BASE_DIR / "client" / "notebooks" / "from-token-to-student.ipynb"


def test_the_notebook_runs_from_token_to_student(
    study: Study, live_server: LiveServer, token: str, tmp_path: Path
) -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert not any(cell.get("outputs") for cell in cells), "outputs are not kept"
    environment = {
        **os.environ,
        **{"IPATE_SITE": live_server.url, "IPATE_TOKEN": token, "IPATE_STUDY": study.slug, "IPATE_EVERY": "0.2"},
        **{"PYTHONPATH": str(settings.BASE_DIR / "client"), "no_proxy": "*"},
    }
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as notebook,
    ):
        assert notebook.stdout is not None
        told = []
        for line in notebook.stdout:
            told.append(line)
            if line.startswith("proposed "):
                run = Run.objects.get(pk=line.split()[1])
                run_ask(run_approve(run=run, acting_user=user_create("olga"), share=0.5))
    assert notebook.returncode == 0, (tmp_path / "errors").read_text()[-2000:]
    assert "finished" in "".join(told)
    assert (tmp_path / "student.onnx").stat().st_size > 1000
