"""A small installation, and what has to be the same in it after an upgrade."""

import json
from typing import Any

from consent.models import ConsentEvent, Study
from consent.receipts import receipt_number
from consent.services import consent_withdraw
from tests.training.asking import ASKING_RUN, COUNTS_RUN
from tests.training.runs import run_finish, run_start, study_with_table
from training.models import Run, StudentModel
from training.services.students import student_predict

STUDY = "table"


def installation_make() -> None:
    """A study with decisions of all kinds, a finished run with a student, one of counts, and one that was approved."""
    study = study_with_table(STUDY)
    for recipe in (ASKING_RUN, COUNTS_RUN):
        run = run_finish(run_start(study, share=0.2, **recipe))
        assert run.status == Run.Status.FINISHED, run.message
    consent_withdraw(holder=study.holders.order_by("pk")[0], acting_user=None)
    run_start(study, share=0.2, title="Waits", **ASKING_RUN)


def installation_go_on() -> None:
    """What was approved is carried out, by the code at hand."""
    run = run_finish(Run.objects.get(title="Waits"))
    assert run.status == Run.Status.FINISHED, run.message


def facts() -> dict[str, Any]:
    """What an upgrade does not change, by names that no release does."""
    study = Study.objects.get(slug=STUDY)
    events = ConsentEvent.objects.filter(study=study).order_by("sequence")
    model = StudentModel.objects.filter(run__study=study).order_by("created_at").first()
    assert model is not None
    said = student_predict(model, [{"length": value, "width": 0.5} for value in (0.1, 0.9)])
    return json.loads(
        json.dumps(
            {
                "receipts": [receipt_number(event.hash) for event in events],
                "decisions": [[event.holder.pseudonym, event.kind, event.level] for event in events],
                "runs": [
                    [str(run.pk), run.status, run.share, run.position, run.labels, run.spent]
                    for run in study.runs.order_by("created_at")
                ],
                "model": model.digest,
                "predictions": said["predictions"],
            }
        )
    )
