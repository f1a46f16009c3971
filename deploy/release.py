"""A small installation as a release leaves it, which tests of later versions restore: part of ``make release``.

`python -m deploy.release FILE` makes the installation with the current code: a study in which everything has happened
once. It writes a backup, its keys, its journal and facts about it (`facts.json`) into an archive. `make release`
requires the archive of the release: `tests/releases/1.0.0.tar.xz`. All of it is generated.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django

_FOLDER = Path(__file__).parents[1]
#: For all of these installations; nothing in them is secret.
KEY = "a key that anybody may read, of installations that hold nobody's data"


def environment(var: Path) -> Mapping[str, str]:
    """Return the environment of a process of such an installation."""
    given = {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_SECRET_KEY": KEY, "IPATE_VAR_DIR": str(var)}
    return given | {"IPATE_LEAST_TEST_POINTS": "none", "OMP_NUM_THREADS": "1"}


def release_write(file: Path) -> None:
    """Make an installation in a separate process, and write an archive of what it leaves behind."""
    with TemporaryDirectory() as var, TemporaryDirectory() as left:
        given = os.environ | environment(Path(var)) | {"IPATE_RELEASE_FOLDER": left}
        given.pop("DATABASE_URL", None)
        subprocess.run([sys.executable, "-m", "deploy.release"], env=given, cwd=_FOLDER, check=True)
        with tarfile.open(file, "w:xz", preset=9) as archive:
            for path in sorted(Path(left).iterdir()):
                archive.add(path, path.name)


def installation_make(folder: Path) -> None:
    """Make an installation in this process's environment, and put what it leaves behind into a folder."""
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from tests.everything import study_with_everything

    call_command("migrate", verbosity=0)
    study_with_everything()  # every table has rows that a migration may have to convert
    call_command("backup", str(folder), "--unencrypted")
    shutil.copytree(settings.JOURNAL_DIR, folder / "journal")
    (folder / "facts.json").write_text(json.dumps(facts(), indent=1) + "\n", "utf-8")


def facts() -> dict[str, Any]:
    """Return what an upgrade must not change, by names that no release changes."""
    from common.artifacts import model_fetch
    from consent.documents.receipts import receipt_number
    from consent.models import ConsentEvent, Study
    from training.models import Run, RunResult, StudentModel
    from training.services.students import student_predict

    study = Study.objects.get(slug="digits")
    events = ConsentEvent.objects.filter(study=study).order_by("sequence")
    model = StudentModel.objects.filter(run__study=study).earliest("created_at")
    said = student_predict(model, [{"length": value, "width": 0.5} for value in (0.1, 0.9)])
    tables = RunResult.objects.filter(run__study=study).order_by("created_at").values_list("artifact", flat=True)
    runs = Run.objects.order_by("created_at")
    found = {
        "receipts": [receipt_number(event.hash) for event in events],
        "decisions": [[event.holder.pseudonym, event.kind, event.level] for event in events],
        "runs": [[str(run.pk), run.status, run.share, run.position, run.labels, run.spent] for run in runs],
        "model": model.digest,
        "predictions": said["predictions"],
        "tables": [hashlib.sha256(model_fetch(artifact)).hexdigest() for artifact in tables],
    }
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        release_write(Path(sys.argv[1]))
    else:
        installation_make(Path(os.environ["IPATE_RELEASE_FOLDER"]))
