"""Pages of the versions of a run's student."""

import pytest
from django.urls import reverse

from consent.models import Role
from consent.services import membership_add
from tests import factories
from tests.pages import as_, study_with_finished_run, url
from tests.training.runs import TABLE_RUN, run_start, study_with_table
from training.models import Run
from training.services.trainings import student_learn

pytestmark = pytest.mark.django_db

BOOSTED = {"student_learner": "boosting"} | {
    f"student_learner-boosting-{name}": value
    for name, value in {"iterations": 2, "leaves": 3, "leaf": 1, "learning_rate": 0.1}.items()
}


@pytest.fixture
def run() -> Run:
    return study_with_finished_run().runs.get()


@pytest.mark.slow
def test_another_version_is_trained_compared_and_published(run: Run) -> None:
    researcher, operator = as_("researcher"), as_("operator")
    page = researcher.get(url("run", run)).text
    assert "being computed" in page and "Choose by the agreement" not in page
    assert "hx-get" in researcher.get(url("run_students", run)).text
    assert 'value="nearest_neighbour" selected' in researcher.get(url("run_student_new", run)).text
    answer = researcher.post(url("run_student_new", run), BOOSTED)
    assert answer.headers["Location"] == url("run", run)
    page = researcher.get(url("run", run)).text
    assert "Another version is being trained: Gradient boosting" in page
    assert url("run_student_new", run) not in page, "one at a time"
    for training in run.trainings.all():
        student_learn(training.pk)
    for training in run.trainings.all():
        student_learn(training.pk)
    done = researcher.get(url("run_students", run))
    assert done.headers["HX-Refresh"] == "true" and "being computed" not in done.text
    page = operator.get(url("run", run)).text
    assert "Choose by the agreement with held-out releases" in page and "95 % confidence interval" in page
    assert "The same student, when it learns from the true labels" in page
    for number in (1, 2):
        assert url("run_student_model", run, number) in page
    assert url("run_student_publish", run, 2) in page and url("run_student_publish", run, 1) not in page
    assert url("run_student_publish", run, 2) not in researcher.get(url("run", run)).text
    assert "Version 1 stays and can be downloaded" in operator.get(url("run_student_publish", run, 2)).text
    operator.post(url("run_student_publish", run, 2))
    assert Run.objects.get(pk=run.pk).student.version == 2
    assert (
        "version 2: Gradient boosting"
        in as_("auditor").get(reverse("staff:ledger_report", args=["table", run.pk])).text
    )


def test_form_errors_stand_beside_their_field(run: Run) -> None:
    client = as_("researcher")
    wrong = client.post(url("run_student_new", run), BOOSTED | {"student_learner-boosting-leaf": "0"})
    assert wrong.status_code == 422 and "student_learner-boosting-leaf" in wrong.context["form"].errors
    network = (
        {"student_learner": "consistency"}
        | {
            f"student_learner-consistency-{name}": value
            for name, value in {
                "steps": 1,
                "filters": 4,
                "batch": 8,
                "learning_rate": 0.1,
                "doubt": 0.1,
                "threshold": 0.9,
            }.items()
        }
        | {f"student_learner-consistency-{name}": 0 for name in ("rotation", "shift", "stretch", "bend", "erase")}
    )
    wrong = client.post(url("run_student_new", run), network)
    assert wrong.status_code == 422 and "images" in str(wrong.context["form"].errors["student_learner"])
    assert not run.trainings.filter(version=None).exists()


@pytest.mark.slow
def test_a_run_without_a_student_has_nothing_to_train_anew(run: Run) -> None:
    other = run_start(study_with_table("other"), **TABLE_RUN)
    membership_add(study=other.study, user=factories.user_create("researcher"), role=Role.RESEARCHER, acting_user=None)
    answer = as_("researcher").get(url("run_student_new", other))
    assert answer.headers["Location"] == url("run", other)
    assert as_("operator").get(url("run_student_publish", run, 7)).status_code == 404
