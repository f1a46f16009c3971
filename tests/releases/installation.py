"""A small installation, and facts that an upgrade must not change."""

import hashlib
import json
from typing import Any

from common.artifacts import model_fetch
from consent.documents.receipts import receipt_number
from consent.models import ConsentEvent, Study
from tests.training.asking import run_ask
from tests.training.runs import run_finish
from training.models import Run, RunResult, StudentModel
from training.services.students import student_predict


def installation_go_on() -> None:
    """Carry out with the current code what was in progress and what was approved."""
    for title, carry_out in (("All are asked", run_ask), ("Waiting", run_finish)):
        run = carry_out(Run.objects.get(title=title))
        assert run.status == Run.Status.FINISHED, run.message


def facts() -> dict[str, Any]:
    """Return what an upgrade must not change, by names that no release changes."""
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
