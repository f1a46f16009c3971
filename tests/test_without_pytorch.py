"""Pages, API, periodic tasks and backups work without PyTorch, and training says what is missing."""

from io import StringIO
from typing import Any

import numpy as np
import pytest
from celery import current_app
from django.conf import settings
from django.core.management import call_command

from consent.models import Role, Study
from consent.services import membership_add
from ipate_web.celery import worker_check
from tests import factories
from tests.test_roles import addresses_of, client_of, parts, study
from tests.training.asking import EVERYBODY, SAMPLED_RUN, run_ask
from tests.training.runs import digits, run_draft, run_start, study_with_data
from training.models import Run
from training.services.students import student_ask, student_learn

__all__ = ("parts", "study")
# Committing, because a backup is not part of another transaction.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.exhaustive]
STUDENT: dict[str, Any] = {"student_learner": "consistency", "student_parameters": {"steps": 2, "filters": 4}}
ASKED = EVERYBODY | STUDENT | {"choices": {"rounds": 1, "sigma": 5.0}}
NETWORK = SAMPLED_RUN | {"choices": {"steps": 2, "expected": 1e6, "network": "mlp", "publish": "model"}}


def images_with_networks() -> tuple[Study, list[Run]]:
    """Return a study of images with published networks: a student, and one of gradient steps."""
    images = study_with_data("images")
    runs = [run_ask(run_start(images, share=0.2, **fields)) for fields in (ASKED, NETWORK)]
    membership_add(study=images, user=factories.user_create("operator"), role=Role.OPERATOR, acting_user=None)
    return images, runs


def test_all_but_training_works_without_pytorch(parts, request, tmp_path) -> None:
    images, runs = images_with_networks()
    training = student_ask(run=runs[0], acting_user=factories.user_create("olga"), **STUDENT)
    draft = run_draft(images, **ASKED)
    request.getfixturevalue("without_pytorch")
    root, places = client_of("root"), {name: [part] for name, part in parts.items()}
    of_images = places | {"slug": ["images"], "run": [run.pk for run in runs], "draft": [draft.pk]}
    answers = {(name, url): root.get(url).status_code for of in (places, of_images) for name, url in addresses_of(of)}
    assert {each for each, code in answers.items() if code >= 500} <= {("readyz", "/readyz")}
    assert len({name for (name, _), code in answers.items() if code == 200}) > 100
    pixels = np.zeros((1, *digits().schema.shape)).tolist()
    datasets = {f"{each.kind}_dataset": each.pk for each in images.datasets.all()}
    for run in runs:
        api, model = "/api/v1/runs/plan", f"/api/v1/models/{run.pk}"
        assert root.get(f"{model}/onnx").status_code == root.get(f"{model}/file").status_code == 200
        sent = {"study": "images", "title": "Next", "share": 0.1, "method": run.method, **datasets}
        sent |= {name: value for name in ("variant", "choices") if (value := getattr(run, name))}
        for path, body in ((api, sent | STUDENT), (f"{model}/predict", {"rows": pixels})):
            answer = root.post(path, body, "application/json")
            assert answer.status_code == 200, answer.json()
    learned = sent | STUDENT | {"method": "neighbours", "variant": "", "choices": {"representation": "learned"}}
    assert "requirements/worker.txt" in root.post(api, learned, "application/json").content.decode()
    current_app.loader.import_default_modules()
    for task in {each["task"] for each in settings.CELERY_BEAT_SCHEDULE.values()}:
        current_app.tasks[task].apply(throw=True)
    call_command("backup", str(tmp_path / "backups"), "--unencrypted", stdout=StringIO())
    student_learn(training.pk)
    training.refresh_from_db()
    assert "requirements/worker.txt" in str(training.message)
    with pytest.raises(SystemExit, match="make install"):
        worker_check()
