"""Versions of a run's student over the API."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from accounting.models import Release
from tests import factories
from tests.pages import study_with_finished_run
from training.models import Run
from training.services.trainings import student_learn

pytestmark = pytest.mark.django_db

BOOSTED = {"student_learner": "boosting", "student_parameters": {"iterations": 2, "leaf": 1}}


@pytest.fixture
def run() -> Run:
    return study_with_finished_run().runs.get()


@pytest.fixture
def ask(run: Run) -> Callable[..., Any]:
    def send(person: str, path: str = "", data: Any = None, method: str = "post") -> Any:
        client = APIClient()
        client.force_authenticate(factories.user_create(person))
        return getattr(client, method)(f"/api/v1/runs/{run.pk}/students{path}", data, format="json")

    return send


def test_a_researcher_trains_another_version_and_an_operator_publishes_it(run: Run, ask: Callable[..., Any]) -> None:
    answer = ask("researcher", data=BOOSTED)
    assert answer.status_code == 202
    assert answer.json()["training"]["learner"] == "boosting"
    assert ask("researcher", data=BOOSTED).status_code == 409, "one at a time"
    assert ask("researcher", data={**BOOSTED, "seed": 3}).status_code == 400
    for training in run.trainings.all():
        student_learn(training.pk)
    document = ask("researcher", method="get").json()
    assert document["training"] is None
    first, second = document["versions"]
    assert (first["published"], second["published"]) == (True, False)
    assert (second["parameters"], second["requested_by"]) == (BOOSTED["student_parameters"], "researcher")
    assert first["score"] is not None and first["reference"]["accuracy"] <= 1
    low, high = second["evaluation"]["interval"]
    assert low <= second["evaluation"]["accuracy"] <= high

    client, address = APIClient(), f"/api/v1/models/{run.pk}"
    client.force_authenticate(factories.user_create("researcher"))
    assert [client.get(address, page).json()["version"] for page in ({}, {"version": 2})] == [1, 2]
    names = [client.get(f"{address}/file", {"version": number}).headers["Content-Disposition"] for number in (1, 2)]
    assert [name.rpartition("-")[2] for name in names] == ['v1.skops"', 'v2.skops"']
    rows = {"rows": [{"length": 0.1, "width": 0.5}]}
    assert client.post(f"{address}/predict?version=2", rows, format="json").status_code == 200
    assert [client.get(address, {"version": wrong}).status_code for wrong in (3, "second")] == [404, 400]
    assert len(client.get("/api/v1/models").json()["results"]) == 1, "a run has one model, the published one"

    assert ask("researcher", "/2/publish").status_code == 403
    assert ask("operator", "/3/publish").status_code == 404
    assert [each["published"] for each in ask("operator", "/2/publish").json()["versions"]] == [False, True]


def test_an_operator_withdraws_a_version_for_good(run: Run, ask: Callable[..., Any]) -> None:
    reason = {"reason": "It misreads the widths."}
    assert ask("researcher", "/1/withdraw", reason).status_code == 403
    assert ask("operator", "/2/withdraw", reason).status_code == 404
    for wrong in ({}, {"reason": " "}, {"reason": "x" * 501}, {"why": "a slip"}):
        assert ask("operator", "/1/withdraw", wrong).status_code == 400
    assert not Release.objects.filter(kind=Release.Kind.WITHDRAWAL).exists(), "what is refused changes nothing"
    (version,) = ask("operator", "/1/withdraw", reason).json()["versions"]
    assert version["withdrawal_reason"] == reason["reason"] and version["withdrawn_at"]
    assert Release.objects.get(kind=Release.Kind.WITHDRAWAL).content["version"] == 1
    client = APIClient()
    client.force_authenticate(factories.user_create("researcher"))
    gone = client.get(f"/api/v1/models/{run.pk}/file")
    assert (gone.status_code, reason["reason"] in gone.json()["detail"]) == (410, True)
    assert ask("operator", "/1/withdraw", reason).status_code == 409
    assert Release.objects.filter(kind=Release.Kind.WITHDRAWAL).count() == 1
