"""A model that was withdrawn is given to nobody, and whoever took it is told."""

import pytest
from django.core.exceptions import ValidationError
from django.test import Client as Browser
from django.urls import reverse
from rest_framework.test import APIClient

from accounting.models import Release
from accounting.verification import study_faults
from consent.models import Mail, Role, Study
from consent.services import membership_add
from ipate_web.tokens.models import ApiToken
from tests.factories import PASSWORD, user_create
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_finish, run_start, study_with_table
from training.models import Run, StudentModel
from training.services.students import student_publish, student_withdraw
from training.services.trainings import student_ask, student_learn
from training.verification import release_faults

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

REASON = "Its labels of class b were swapped."
ROWS = {"rows": [{"length": 0.2, "width": 0.5}]}


def finished(study: Study) -> Run:
    """A finished run of a study with people of every role that may use its model."""
    researchers = dict.fromkeys(("rita", "rob", "ruth"), Role.RESEARCHER)
    for name, role in (researchers | dict.fromkeys(("olaf", "anna"), Role.OPERATOR)).items():
        membership_add(study=study, user=user_create(name), role=role, acting_user=None)
    return run_finish(run_start(study, **TABLE_RUN))


@pytest.fixture
@built_once
def run() -> Run:
    return finished(study_with_table())


def program(name: str) -> APIClient:
    """A program that sends a token of this user."""
    _row, token = ApiToken.objects.create(user=user_create(name), name="notebook")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client


def person(name: str) -> Browser:
    client = Browser()
    assert client.login(username=user_create(name).username, password=PASSWORD)
    return client


def model_page(run: Run, version: int = 1) -> str:
    return reverse("staff:run_student_model", args=[run.study.slug, run.pk, version])


def onnx_page(run: Run) -> str:
    return reverse("staff:run_student_onnx", args=[run.study.slug, run.pk, 1])


def test_registry_downloads_and_predictions_show_a_withdrawal(run: Run) -> None:
    address, rita = f"/api/v1/models/{run.pk}", program("rita")
    assert rita.post(f"{address}/predict", ROWS, format="json").status_code == 200
    assert person("olaf").get(model_page(run)).status_code == 200
    assert person("anna").get(onnx_page(run)).status_code == 200
    assert program("ruth").get(f"{address}/onnx").status_code == 200
    assert program("rob").get(address).status_code == 200, "a card is not the model"

    page = reverse("staff:run_student_withdraw", args=[run.study.slug, run.pk, 1])
    operator = person("olga")
    assert "4 accounts get a mail" in operator.get(page).text
    assert operator.post(page, {"reason": " "}).status_code == 422
    assert not StudentModel.objects.get().is_withdrawn
    assert operator.post(page, {"reason": REASON}).status_code == 302

    (listed,) = rita.get("/api/v1/models").json()["results"]
    assert listed["withdrawal_reason"] == REASON and listed["withdrawn_at"]
    for answer in (
        rita.get(address),
        rita.get(f"{address}/file"),
        rita.get(f"{address}/file", {"version": 1}),
        rita.get(f"{address}/onnx"),
        rita.get(f"{address}/statement"),
        rita.post(f"{address}/predict", ROWS, format="json"),
    ):
        assert (answer.status_code, answer["Content-Type"]) == (410, "application/problem+json")
        assert REASON in answer.json()["detail"]
    for page in (model_page(run), onnx_page(run)):
        answer = operator.get(page)
        assert answer.status_code == 410 and REASON in answer.text
    html = operator.get(reverse("staff:run", args=[run.study.slug, run.pk])).text
    assert REASON in html and model_page(run) not in html and onnx_page(run) not in html

    mails = Mail.objects.filter(kind="model_withdrawn")
    assert sorted(mails.values_list("user__username", flat=True)) == ["anna", "olaf", "rita", "ruth"]
    (entry,) = Release.objects.filter(run=run.pk, kind=Release.Kind.WITHDRAWAL)
    assert entry.content["reason"] == REASON and entry.charge == 0 and entry.recorded_by.username == "olga"
    assert list(study_faults(run.study)) == [] and list(release_faults(run)) == []
    student_withdraw(run=run, version=1, reason="Again.", acting_user=user_create("olga"))
    assert mails.count() == 4 and StudentModel.objects.get().withdrawal_reason == REASON


def test_another_version_can_take_its_place_and_it_never_comes_back(run: Run) -> None:
    olga = user_create("olga")
    body = student_ask(run=run, student_learner="nearest_neighbour", student_parameters={}, acting_user=olga)
    student_learn(body.pk)
    student_withdraw(run=run, version=1, reason=REASON, acting_user=olga)
    student_publish(run=run, version=2, acting_user=olga)
    with pytest.raises(ValidationError, match="withdrawn"):
        student_publish(run=run, version=1, acting_user=olga)
    rita, address = program("rita"), f"/api/v1/models/{run.pk}"
    assert rita.get(f"{address}/file").status_code == 200
    assert rita.get(f"{address}/file", {"version": 1}).status_code == 410
    versions = rita.get(f"/api/v1/runs/{run.pk}/students").json()["versions"]
    assert [version["withdrawal_reason"] for version in versions] == [REASON, ""]
    assert list(release_faults(Run.objects.get(pk=run.pk))) == []


def test_a_withdrawal_notifies_all_users_of_a_rehearsal() -> None:
    run = finished(rehearsal_with_table())
    student_withdraw(run=run, version=1, reason=REASON, acting_user=user_create("olga"))
    mails = set(Mail.objects.filter(kind="model_withdrawn").values_list("user__username", flat=True))
    assert {"rita", "rob", "olaf", "olga"} <= mails
    assert not Release.objects.filter(run=run.pk).exists()


def test_a_withdrawal_that_is_not_in_the_register_is_found(run: Run) -> None:
    StudentModel.objects.update(withdrawn_at=run.ended_at, withdrawal_reason="Behind the register's back.")
    assert any("withdrawn" in fault for fault in release_faults(run))
