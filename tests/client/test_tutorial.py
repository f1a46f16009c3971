"""The tutorial of the client, while an operator and a worker do their part."""

import os
import re
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

ROOT = Path(settings.BASE_DIR)


@pytest.mark.slow
def test_the_programs_of_the_first_model_lead_to_it(
    study: Study, live_server: LiveServer, token: str, tmp_path: Path
) -> None:
    tutorial = (ROOT / "docs" / "tutorials" / "first-model.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL)).replace("digits", study.slug)
    environment = {
        **os.environ,
        **{"IPATE_SITE": live_server.url, "IPATE_TOKEN": token, "no_proxy": "*"},
        "PYTHONPATH": str(ROOT / "client"),
    }
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("proposed "):
                run = Run.objects.get(pk=line.split()[1])
                run_ask(run_approve(run=run, acting_user=user_create("olga"), share=0.5))
            elif line.startswith("finished"):
                break
        rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert (tmp_path / "student.onnx").stat().st_size > 1000
