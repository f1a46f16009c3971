"""The guide's commands, run as they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from consent.models import Study
from consent.services.accounts import administrator_set
from ipate_web.tokens.models import ApiToken
from tests.factories import user_create
from training.models import Run

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "api.md"


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("openssl"), reason="needs curl and openssl")
def test_every_command_of_the_guide_works(live_server: LiveServer, study: Study, run: Run, tmp_path: Path) -> None:
    administrator_set(user=user_create("researcher"), appointed=True, acting_user=None)  # for rehearsal studies
    _, secret = ApiToken.objects.create(user_create("researcher"), name="guide")
    commands = "\n".join(_blocks("sh"))
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", commands],
        cwd=tmp_path,
        env={
            **os.environ,
            "SITE": live_server.url,
            "TOKEN": secret,
            "STUDY": study.slug,
            "RUN": str(run.pk),
            "COLLEAGUE": "operator",
            "no_proxy": "*",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert Run.objects.filter(title="Weighted, 20 teachers", status="draft").exists()
    assert Run.objects.filter(title="Every holder votes", method="neighbours", status="draft").exists()
    assert Run.objects.filter(title="Private gradient steps", method="sgd", status="draft").exists()
    flowers = Study.objects.get(slug="flowers")
    assert flowers.rehearsal and set(flowers.datasets.values_list("kind", flat=True)) == {"private", "public", "test"}
    assert '"forecast":' in done.stdout, "of its plan"
    assert '"answers":' in done.stdout, "of the plan"
    assert (tmp_path / "labels.csv").read_text().startswith("row,label")
    assert '"predictions"' in done.stdout
    [program] = _blocks("python")
    here = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert here.returncode == 0, here.stderr
    assert here.stdout.startswith("['healthy']") or here.stdout.startswith("['ill']")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
