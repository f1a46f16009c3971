"""The notebook from a token to a student, cell by cell, while an operator and a worker do their part."""

import json
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from consent.models import Study
from tests.client.notebooks import NOTEBOOK, notebook_lines
from tests.factories import user_create
from tests.training.asking import run_ask
from training.models import Run
from training.services.runs import run_approve

pytestmark = pytest.mark.slow


def test_outputs_are_not_kept() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


def test_the_notebook_runs_from_token_to_student(
    study: Study, live_server: LiveServer, token: str, tmp_path: Path
) -> None:
    reports = []
    with notebook_lines(site=live_server.url, token=token, study=study.slug, folder=tmp_path) as lines:
        for line in lines:
            reports.append(line)
            if line.startswith("proposed "):
                run = Run.objects.get(pk=line.split()[1])
                run_ask(run_approve(run=run, acting_user=user_create("olga"), share=0.5))
    assert "finished" in "".join(reports)
    assert (tmp_path / "student.onnx").stat().st_size > 1000
