"""Runs through the API: propose, follow, approve, cancel, plan, labels."""

from typing import Any
from uuid import uuid4

import pytest

from consent.models import Role, Study
from consent.permissions import ROLE_PERMISSIONS
from tests.api.conftest import HOLDERS, Client
from tests.factories import study_open
from tests.training.runs import run_draft
from training.models import Dataset, Query, Run

RUNS = "/api/v1/runs"


def proposal(of: Study, **fields: Any) -> dict[str, Any]:
    datasets = {dataset.kind: dataset.pk for dataset in Dataset.objects.filter(study=of)}
    return {
        "study": of.slug,
        "title": "From a notebook",
        **{f"{kind}_dataset": pk for kind, pk in datasets.items()},
        "learner": "nearest_neighbour",
        "student_learner": "nearest_neighbour",
        "aggregator": {"name": "gnmax", "sigma": 5.0},
        "teachers": 20,
        **fields,
    }


def errors(response: Any) -> dict[str, str]:
    return {error["field"]: error["message"] for error in response.json()["errors"]}


def test_a_researcher_proposes_a_draft_and_an_operator_approves_it(study: Study, client: Client) -> None:
    response = client("researcher").post(RUNS, proposal(study, wanted_labels=7), format="json")
    assert response.status_code == 201
    run = response.json()
    assert (run["status"], run["wanted_labels"], run["created_by"]) == ("draft", 7, "researcher")
    assert client("researcher").post(f"{RUNS}/{run['id']}/approve").status_code == 403
    assert client("operator").post(f"{RUNS}/{run['id']}/approve").json()["status"] == "approved"
    assert client("researcher").post(f"{RUNS}/{run['id']}/cancel").status_code == 403
    assert client("operator").post(f"{RUNS}/{run['id']}/cancel").json()["status"] == "cancelled"


def test_a_cancelled_draft_cannot_be_approved(study: Study, client: Client) -> None:
    run, operator = run_draft(study), client("operator")
    operator.post(f"{RUNS}/{run.pk}/cancel")
    response = operator.post(f"{RUNS}/{run.pk}/approve")
    assert response.status_code == 400
    assert "Propose it anew" in errors(response)[""]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"study": "nowhere"}, "study", "does not exist"),
        ({"learner": "oracle"}, "learner", "choose one of"),
        ({"learner_parameters": {"depth": 3}}, "learner_parameters", "it has:"),
        ({"aggregator": {"name": "gnmax", "sigma": -1}}, "aggregator", "sigma"),
        ({"aggregator": {"name": "gnmax"}}, "aggregator", "give exactly those"),
        ({"aggregator": "gnmax"}, "aggregator", "Give an object"),
        ({"teachers": 0}, "teachers", "greater than or equal to 1"),
        ({"teachers": None}, "teachers", "null"),
        ({"title": ""}, "title", "blank"),
        ({"variant": "wishful"}, "variant", "not a valid choice"),
        ({"test_dataset": 10**6}, "test_dataset", "does not exist"),
        ({"seed": 3}, "seed", "There is no such field"),
        ({"simulation": True}, "simulation", "There is no such field"),
    ],
)
def test_a_mistake_is_told_by_field(study: Study, client: Client, fields: Any, field: str, words: str) -> None:
    response = client("researcher").post(RUNS, proposal(study, **fields), format="json")
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    assert words in errors(response)[field]
    assert not Run.objects.exists()


def test_a_researchers_draft_is_not_held_against_private_records(study: Study, client: Client) -> None:
    """Or its errors would tell how many holders there are, and which classes they hold."""
    Dataset.objects.filter(kind="private").update(seen_classes=[0])
    asked = proposal(study, teachers=5000)
    assert client("researcher").post(RUNS, asked, format="json").status_code == 201
    response = client("operator").post(RUNS, asked, format="json")
    assert set(errors(response)) == {"teachers", "public_dataset"}


def test_auditors_see_runs_and_propose_none(study: Study, client: Client) -> None:
    response = client("auditor").post(RUNS, proposal(study), format="json")
    assert response.status_code == 403
    assert "training.propose_run" in response.json()["detail"]


def test_a_plan_is_for_those_who_may_see_sizes_and_costs(
    study: Study, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client("researcher").post(f"{RUNS}/plan", proposal(study), format="json").status_code == 403
    for permission in ("consent.view_group_sizes", "accounting.view_private_costs"):
        with monkeypatch.context() as patch:
            patch.setitem(ROLE_PERMISSIONS, Role.OPERATOR, ROLE_PERMISSIONS[Role.OPERATOR] - {permission})
            refused = client("operator").post(f"{RUNS}/plan", proposal(study), format="json")
        assert (refused.status_code, permission in refused.json()["detail"]) == (403, True)
    plan = client("operator").post(f"{RUNS}/plan", proposal(study), format="json").json()
    assert plan["groups"][0]["holders"] == HOLDERS["HIGH"]
    assert "Not for publication" in plan["not_for_publication"]
    assert not Run.objects.exists()


def test_what_the_consents_do_not_allow_is_a_conflict(study: Study, client: Client) -> None:
    response = client("operator").post(f"{RUNS}/plan", proposal(study, teachers=258), format="json")
    assert response.status_code == 409
    assert "ask for at most 256 teachers" in response.json()["detail"]


def test_a_finished_run_tells_what_may_be_published(run: Run, client: Client) -> None:
    told = client("researcher").get(f"{RUNS}/{run.pk}").json()
    assert told["status"] == "finished"
    assert told["labels"] + told["rejected"] == told["progress"]["queries"] == run.position
    assert told["progress"]["teachers"] == 1
    assert told["model"] == str(run.pk)
    assert [group["epsilon_promised"] for group in told["groups"]] == [1.0, 2.0, 3.0]
    assert all(group["epsilon_published"] > 0 for group in told["groups"])


def test_messages_are_for_staff(study: Study, client: Client) -> None:
    run = run_draft(study)
    Run.objects.filter(pk=run.pk).update(status="failed", message="There are 13 holders for 20 teachers.")
    assert client("operator").get(f"{RUNS}/{run.pk}").json()["message"].startswith("There are 13")
    assert client("researcher").get(f"{RUNS}/{run.pk}").json()["message"] is None


def test_private_costs_are_for_staff_and_never_kept(run: Run, client: Client) -> None:
    assert client("researcher").get(f"{RUNS}/{run.pk}/private-costs").status_code == 403
    response = client("auditor").get(f"{RUNS}/{run.pk}/private-costs")
    costs = response.json()
    assert "Not for publication" in costs["not_for_publication"]
    assert response["Cache-Control"] == "no-store"
    for group in costs["groups"]:
        assert 0 < group["epsilon_spent"] <= group["epsilon_budget"]
        assert costs["history"]["epsilons"][group["name"]][-1] == pytest.approx(group["epsilon_spent"])
    assert costs["history"]["labels"][-1] == run.labels


def test_runs_are_filtered_and_come_in_pages(study: Study, client: Client) -> None:
    for title in ("one", "two", "three"):
        run_draft(study, title=title)
    run_draft(study, title="upsampled", variant="upsampling")
    researcher = client("researcher")
    page = researcher.get(RUNS, {"limit": 2, "variant": "weighting"}).json()
    assert page["count"] == 3
    assert [run["title"] for run in page["results"]] == ["three", "two"]
    assert [run["title"] for run in researcher.get(page["next"]).json()["results"]] == ["one"]
    assert researcher.get(RUNS, {"study": "elsewhere"}).json()["count"] == 0
    assert researcher.get(RUNS, {"status": "draft"}).json()["count"] == 4
    assert researcher.get(RUNS, {"status": "asleep"}).status_code == 400


def test_the_number_of_queries_does_not_grow_with_the_list(
    study: Study, client: Client, django_assert_num_queries: Any
) -> None:
    researcher = client("researcher")
    run_draft(study)
    with django_assert_num_queries(4):  # token, its expired siblings, count, page
        researcher.get(RUNS)
    for _ in range(5):
        run_draft(study)
    with django_assert_num_queries(4):
        researcher.get(RUNS)


def test_labels_as_json_and_as_a_table(run: Run, client: Client, django_assert_num_queries: Any) -> None:
    released = dict(Query.objects.filter(run=run, label__isnull=False).values_list("row", "label"))
    researcher = client("researcher")
    with django_assert_num_queries(6):
        page = researcher.get(f"{RUNS}/{run.pk}/labels", {"limit": 1000}).json()
    assert {item["row"]: item["label"] for item in page["results"]} == {
        row: run.public_dataset.classes[label] for row, label in released.items()
    }
    for response in (
        researcher.get(f"{RUNS}/{run.pk}/labels", {"format": "csv"}),
        researcher.get(f"{RUNS}/{run.pk}/labels", headers={"Accept": "text/csv"}),
    ):
        assert response["Content-Type"].startswith("text/csv")
        head, *lines = response.content.decode().splitlines()
        assert head == "row,label"
        assert [int(line.split(",")[0]) for line in lines] == sorted(released)


def test_labels_are_for_those_who_may_use_students(run: Run, client: Client) -> None:
    response = client("auditor").get(f"{RUNS}/{run.pk}/labels")
    assert response.status_code == 403
    assert client("operator").get(f"{RUNS}/{run.pk}/labels").status_code == 200


def test_runs_of_other_studies_do_not_exist(study: Study, client: Client) -> None:
    run = run_draft(study)
    study_open("other")
    for path in ("", "/labels", "/private-costs"):
        response = client("stranger" + path.strip("/")).get(f"{RUNS}/{run.pk}{path}")
        assert response.status_code == 404
        assert "GET /api/v1/runs lists yours" in response.json()["detail"]
    assert client("researcher").get(f"{RUNS}/{uuid4()}").status_code == 404


def test_a_simulation_is_seen_by_staff_and_publishes_nothing(simulation: Run, client: Client) -> None:
    assert client("researcher").get(f"{RUNS}/{simulation.pk}").status_code == 404
    operator = client("operator")
    told = operator.get(f"{RUNS}/{simulation.pk}").json()
    assert told["simulation"] is True
    assert told["model"] is None
    assert operator.get(f"{RUNS}/{simulation.pk}/labels").status_code == 404
    assert operator.get(f"/api/v1/models/{simulation.pk}").status_code == 404


def test_an_approval_says_what_the_run_may_spend(study: Study, client: Client) -> None:
    operator = client("operator")
    run, other = run_draft(study), run_draft(study)
    wrong = operator.post(f"{RUNS}/{run.pk}/approve", {"share": 2}, format="json")
    assert wrong.status_code == 400
    assert errors(wrong).keys() == {"share"}
    misspelt = operator.post(f"{RUNS}/{run.pk}/approve", {"portion": 0.5}, format="json")
    assert misspelt.status_code == 400
    half = operator.post(f"{RUNS}/{run.pk}/approve", {"share": 0.5}, format="json").json()
    assert (half["status"], half["spending_share"]) == ("approved", 0.5)
    swapped = {"epsilons": {"HIGH": 0.3, "AVERAGE": 0.2, "LOW": 0.1}}
    assert errors(operator.post(f"{RUNS}/{other.pk}/approve", swapped, format="json")).keys() == {"epsilons"}
    asked = {"epsilons": {"HIGH": 0.1, "AVERAGE": 0.2, "LOW": 0.3}}
    second = operator.post(f"{RUNS}/{other.pk}/approve", asked, format="json").json()
    assert (second["status"], second["spending_epsilons"]) == ("approved", asked["epsilons"])
    operator.post(f"{RUNS}/{run.pk}/cancel")
    refused = run_draft(study)
    assert operator.post(f"{RUNS}/{refused.pk}/approve").status_code == 200, "what the first held is free again"
    late = operator.post(f"{RUNS}/{run_draft(study).pk}/approve")
    assert late.status_code == 409
    assert "reserved for other runs" in late.json()["detail"]
