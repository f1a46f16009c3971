"""The client's notebook and tutorial run as programs, while an operator and a worker do their part."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.factories import user_create
from tests.training.asking import run_ask
from tests.training.runs import run_approve
from training.models import Run

TUTORIALS = settings.BASE_DIR / "docs" / "tutorials"
R_PACKAGES = ("Rscript", "-e", "stopifnot(requireNamespace('httr2'), requireNamespace('jsonlite'))")


def program_of(document: str, language: str) -> str:
    """Return the code of a tutorial."""
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", (TUTORIALS / document).read_text("utf-8"), re.DOTALL))


def test_the_page_of_the_notebook_is_current() -> None:
    """If it fails, run client/notebooks/executed.py with a site."""
    cells = json.loads((NOTEBOOKS / "from-token-to-student.ipynb").read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    page = (TUTORIALS / "notebook.md").read_text("utf-8")
    sources = ["".join(cell["source"]) for cell in cells]
    assert [source for source in sources if source not in page] == []
    assert all((TUTORIALS / name).exists() for name in re.findall(r'src="(.*?)"', page))


@pytest.mark.parametrize("document", [pytest.param("notebook", marks=pytest.mark.exhaustive), "tutorial", "R"])
def test_the_programs_lead_from_token_to_student(study, live_server, token, tmp_path, document) -> None:
    installation: dict[str, Any] = {"site": live_server.url, "token": token, "study": study.slug, "folder": tmp_path}
    if document == "notebook":
        driver = (sys.executable, str(NOTEBOOKS / "executed.py"))
        program = program_lines("notebook.md", program=driver, **installation)
    elif document == "tutorial":
        program = program_lines(program_of("first-model.md", "python").replace("digits", study.slug), **installation)
    elif not shutil.which("Rscript") or subprocess.run(R_PACKAGES, capture_output=True).returncode:
        pytest.skip("It needs R with httr2 and jsonlite: apt-get install r-base-core r-cran-httr2 r-cran-jsonlite.")
    else:
        code = program_of("from-r.md", "r").replace("digits", study.slug)
        program = program_lines(code, program=("Rscript", "-e"), **installation)
    reports = []
    with program as lines:
        for line in lines:
            reports.append(line)
            if line.startswith("proposed "):
                run = Run.objects.get(pk=line.split()[1])
                run_ask(run_approve(run=run, acting_user=user_create("olga"), share=0.5))
    assert "finished" in "".join(reports)
    assert (tmp_path / "student.onnx").stat().st_size > 1000


NOTEBOOKS = settings.BASE_DIR / "client" / "notebooks"


@contextmanager
def program_lines(
    code: str, *, site: str, token: str, study: str, folder: Path, program: tuple[str, ...] = (sys.executable, "-c")
) -> Iterator[Iterator[str]]:
    """Run a program in ``folder`` and yield the lines that it prints; fail if it fails."""
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
            process.kill()  # otherwise it would wait for ever for what did not happen
            raise
    if process.returncode:
        pytest.fail((folder / "errors").read_text()[-2000:])
