"""The notebook and the tutorial of the client as programs, while an operator and a worker do their part."""

import json
import re
from pathlib import Path

import pytest
from django.conf import settings
from pytest_django.live_server_helper import LiveServer

from consent.models import Study
from tests.client.notebooks import NOTEBOOK, notebook_lines, program_lines
from tests.factories import user_create
from tests.training.asking import run_ask
from tests.training.runs import run_approve
from training.models import Run

TUTORIAL = settings.BASE_DIR / "docs" / "tutorials" / "first-model.md"


def test_outputs_are_not_kept() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.parametrize("document", [pytest.param("notebook", marks=pytest.mark.exhaustive), "tutorial"])
def test_the_programs_lead_from_token_to_student(
    study: Study, live_server: LiveServer, token: str, tmp_path: Path, document: str
) -> None:
    installation = {"site": live_server.url, "token": token, "study": study.slug, "folder": tmp_path}
    if document == "notebook":
        program = notebook_lines(**installation)
    else:
        code = "\n".join(re.findall(r"```python\n(.*?)```", TUTORIAL.read_text("utf-8"), re.DOTALL))
        program = program_lines(code.replace("digits", study.slug), **installation)
    reports = []
    with program as lines:
        for line in lines:
            reports.append(line)
            if line.startswith("proposed "):
                run = Run.objects.get(pk=line.split()[1])
                run_ask(run_approve(run=run, acting_user=user_create("olga"), share=0.5))
    assert "finished" in "".join(reports)
    assert (tmp_path / "student.onnx").stat().st_size > 1000
