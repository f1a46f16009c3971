"""Runs through the API: propose, follow, approve, cancel, plan, labels."""

import io
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from accounting.models import Release
from common.slots import slot
from consent.models import Study
from tests.factories import study_open
from tests.ipate_web.api.conftest import HEAD_COUNTS, HOLDERS, POINTS, UNDECIDED, Client
from tests.training.runs import run_draft, run_finish, teachers_chosen
from training.models import Batch, Dataset, Query, Run, StudentModel

pytestmark = pytest.mark.slow

RUNS = "/api/v1/runs"
ROLES_THAT_PROPOSE = ("researcher", "operator")
PUBLIC = sum(HEAD_COUNTS.values())


def proposal(of: Study, **fields: Any) -> dict[str, Any]:
    datasets = {dataset.kind: dataset.pk for dataset in Dataset.objects.filter(study=of)}
    defaults = {
        "study": of.slug,
        "title": "From a notebook",
        **{f"{kind}_dataset": pk for kind, pk in datasets.items()},
        "method": "pate",
        "learner": "nearest_neighbour",
        "student_learner": "nearest_neighbour",
        "aggregator": {"name": "gnmax", "sigma": 5.0},
        "teachers": 20,
    }
    return teachers_chosen(defaults | fields)


def errors(response: Any) -> dict[str, str]:
    return {error["field"]: error["message"] for error in response.json()["errors"]}


def assert_refused(client: Client, sent: dict[str, Any], field: str, words: str) -> None:
    """A proposal is refused with ``words`` about a field, and nothing is left of it."""
    answer = client("researcher").post(RUNS, sent, format="json")
    assert answer.status_code == 400
    assert words in errors(answer)[field]
    assert not Run.objects.exists()


def test_a_researcher_proposes_a_draft_and_an_operator_approves_it(study: Study, client: Client) -> None:
    response = client("researcher").post(RUNS, proposal(study, wanted_labels=7), format="json")
    assert response.status_code == 201
    run = response.json()
    assert (run["status"], run["wanted_labels"], run["created_by"]) == ("draft", 7, "researcher")
    assert client("researcher").post(f"{RUNS}/{run['id']}/approve").status_code == 403
    assert client("operator").post(f"{RUNS}/{run['id']}/approve").json()["status"] == "approved"
    assert client("researcher").post(f"{RUNS}/{run['id']}/cancel").status_code == 403
    assert client("operator").post(f"{RUNS}/{run['id']}/cancel").json()["status"] == "cancelled"


def test_nobody_approves_what_they_proposed(study: Study, client: Client) -> None:
    run = run_draft(study)  # by otto
    answer = client("otto").post(f"{RUNS}/{run.pk}/approve")
    assert answer.status_code == 403
    assert answer.json()["detail"] == "You proposed this run yourself. Another operator has to approve it."
    run.refresh_from_db()
    assert run.status == Run.Status.DRAFT
    assert client("operator").post(f"{RUNS}/{run.pk}/approve").json()["status"] == "approved"


def test_nobody_approves_what_nobody_stands_for(study: Study, client: Client) -> None:
    run = run_draft(study)
    Run.objects.update(created_by=None)  # the account is gone
    assert client("operator").post(f"{RUNS}/{run.pk}/approve").status_code == 403


def test_a_cancelled_draft_cannot_be_approved(study: Study, client: Client) -> None:
    run, operator = run_draft(study), client("operator")
    operator.post(f"{RUNS}/{run.pk}/cancel")
    response = operator.post(f"{RUNS}/{run.pk}/approve")
    assert response.status_code == 409
    assert "Propose it anew" in response.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"study": "nowhere"}, "study", "does not exist"),
        ({"learner": "oracle"}, "choices.learner", "choose one of"),
        ({"learner_parameters": {"depth": 3}}, "choices.learner_parameters", "it has:"),
        ({"aggregator": {"name": "gnmax", "sigma": -1}}, "choices.aggregator", "sigma"),
        ({"aggregator": {"name": "gnmax"}}, "choices.aggregator", "give exactly those"),
        ({"aggregator": "gnmax"}, "choices.aggregator", "an object"),
        ({"teachers": 0}, "choices.teachers", "from 1 to"),
        ({"teachers": None}, "choices.teachers", "from 1 to"),
        ({"learner": ""}, "choices.learner", "choose one of"),
        ({"variant": ""}, "variant", "Choose a variant"),
        ({"aggregator": {}}, "choices.aggregator", "name one of"),
        ({"choices": {"rounds": 2}}, "choices", "There is no choice rounds"),
        ({"method": "wishful"}, "method", "not a valid choice"),
        ({"title": ""}, "title", "blank"),
        ({"variant": "wishful"}, "variant", "not a valid choice"),
        ({"test_dataset": 10**6}, "test_dataset", "does not exist"),
        ({"seed": 3}, "seed", "Only a rehearsal may have a seed"),
        ({"rehearsed": {"method": "exact"}}, "rehearsed", "Only a run of a rehearsal study"),
        ({"variant": "vanishing"}, "variant", "for rehearsals"),
        ({"weight_scheme": "calibrated"}, "choices.weight_scheme", "for rehearsals"),
        ({"rehearsal": True}, "rehearsal", "There is no such field"),
        ({"simulation": True}, "simulation", "There is no such field"),
    ],
)
def test_the_answer_names_the_wrong_field(study: Study, client: Client, fields: Any, field: str, words: str) -> None:
    response = client("researcher").post(RUNS, proposal(study, **fields), format="json")
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    assert words in errors(response)[field]
    assert not Run.objects.exists()


def test_one_person_has_one_plan_computed_at_a_time(study: Study, client: Client) -> None:
    """Or one token would take all processes of the site."""
    operator, researcher = client("operator"), client("researcher")
    with slot(User.objects.get(username="researcher").pk):  # as another process of the site does meanwhile
        refused = researcher.post(f"{RUNS}/plan", proposal(study), format="json")
        assert (refused.status_code, refused["Retry-After"]) == (429, "5")
        assert operator.post(f"{RUNS}/plan", proposal(study), format="json").status_code == 200
    assert researcher.post(f"{RUNS}/plan", proposal(study), format="json").status_code == 200


def test_few_plans_are_computed_at_once_whoever_asks(study: Study, client: Client, settings: Any) -> None:
    settings.PLANS_AT_ONCE = 2
    run, operator = run_draft(study), client("operator")
    with slot(0), slot(-1):
        assert operator.get(f"{RUNS}/{run.pk}/plan").status_code == 429
        assert operator.post(f"{RUNS}/{run.pk}/approve").status_code == 429
        assert Run.objects.get(pk=run.pk).status == Run.Status.DRAFT
    assert operator.get(f"{RUNS}/{run.pk}/plan").status_code == 200
    assert operator.post(f"{RUNS}/{run.pk}/approve").status_code == 200


def test_nobodys_draft_is_held_against_private_records(study: Study, client: Client) -> None:
    """Or its errors would tell how many holders there are, and which classes they hold."""
    Dataset.objects.filter(kind="private").update(seen_classes=[0])
    for role in ("researcher", "operator"):
        assert client(role).post(RUNS, proposal(study, teachers=5000), format="json").status_code == 201


def test_auditors_see_runs_and_propose_none(study: Study, client: Client) -> None:
    response = client("auditor").post(RUNS, proposal(study), format="json")
    assert response.status_code == 403
    assert "training.propose_run" in response.json()["detail"]


def test_a_plan_rests_on_what_is_public(study: Study, client: Client) -> None:
    answers = {role: client(role).post(f"{RUNS}/plan", proposal(study), format="json") for role in ROLES_THAT_PROPOSE}
    assert [answer.status_code for answer in answers.values()] == [200, 200]
    plan = answers["researcher"].json()
    assert plan == answers["operator"].json()
    assert {group["name"]: group["holders"] for group in plan["groups"]} == HEAD_COUNTS
    for group, budget in zip(plan["groups"], plan["budgets"], strict=True):
        assert budget["label"] == pytest.approx(2 * group["weight"] ** 2 / 5.0**2, rel=1e-3)
        assert budget["allowed"] == pytest.approx(budget["cap"] / 4)  # the share that is suggested
    assert plan["answers"] == min(int(budget["allowed"] / budget["label"]) for budget in plan["budgets"])
    half = client("researcher").post(f"{RUNS}/plan", proposal(study, share=0.5), format="json").json()
    assert [each["allowed"] for each in half["budgets"]] == pytest.approx([each["cap"] / 2 for each in half["budgets"]])
    assert not Run.objects.exists()


@pytest.mark.parametrize("share", [0, -1, 1.5, "all"])
def test_a_plan_is_made_for_a_share_of_every_cap(study: Study, client: Client, share: Any) -> None:
    answer = client("researcher").post(f"{RUNS}/plan", proposal(study, share=share), format="json")
    assert answer.status_code == 400
    assert errors(answer).keys() == {"share"}


def test_a_plan_beyond_the_head_counts_is_a_conflict(study: Study, client: Client) -> None:
    response = client("researcher").post(f"{RUNS}/plan", proposal(study, teachers=1 + PUBLIC), format="json")
    assert response.status_code == 409
    assert f"ask for at most {PUBLIC} teachers" in response.json()["detail"]


def test_a_finished_run_tells_what_may_be_published(run: Run, client: Client) -> None:
    document = client("researcher").get(f"{RUNS}/{run.pk}").json()
    assert document["status"] == "finished"
    assert document["labels"] + document["rejected"] == document["progress"]["queries"] == run.position
    assert [stage["stage"] for stage in document["progress"]["stages"]] == ["people", "teachers", "asking"]
    assert document["progress"]["stages"][1]["share"] == 1
    assert (document["method"], document["choices"]["teachers"]) == ("pate", 20)
    assert document["model"] == str(run.pk)
    assert [(promise["level"], promise["epsilon"]) for promise in document["promises"]] == [
        ("HIGH", 1.0),
        ("AVERAGE", 2.0),
        ("LOW", 3.0),
    ]
    assert (document["rehearsal"], document["seed"], document["rehearsed"], document["outcome"]) == (
        False,
        None,
        {},
        {},
    )
    model = client("researcher").get(f"/api/v1/models/{run.pk}").json()
    assert model["card"]["privacy"]["groups"] == document["promises"]


def test_messages_are_for_staff(study: Study, client: Client) -> None:
    run = run_draft(study)
    Run.objects.filter(pk=run.pk).update(status="failed", message="There are 113 holders for 120 teachers.")
    assert client("operator").get(f"{RUNS}/{run.pk}").json()["message"].startswith("There are 113")
    assert client("researcher").get(f"{RUNS}/{run.pk}").json()["message"] is None


def test_costs_are_what_everybody_in_a_group_was_charged(run: Run, client: Client) -> None:
    costs = client("researcher").get(f"{RUNS}/{run.pk}/costs").json()
    for group, planned in zip(costs["groups"], run.plan["groups"], strict=True):
        assert group["spent"] == pytest.approx(run.labels * 2 * planned["weight"] ** 2 / 30**2)
        assert group["allowed"] == pytest.approx(group["cap"])
        assert costs["history"]["shares"][group["name"]][-1] == pytest.approx(group["spent"] / group["cap"])
    assert costs["history"]["labels"][-1] == run.labels
    assert client("auditor").get(f"{RUNS}/{run.pk}/costs").json() == costs


def test_a_draft_has_cost_nothing(study: Study, client: Client) -> None:
    costs = client("researcher").get(f"{RUNS}/{run_draft(study).pk}/costs").json()
    assert costs == {"groups": [], "history": {"queries": [], "labels": [], "shares": {}}}


def test_times_are_rounded_to_the_minute(run: Run, client: Client) -> None:
    """Times of teachers and of a vote's end may depend on private records."""
    exact = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)
    names = ("approved_at", "started_at", "spending_began_at", "ended_at")
    Run.objects.filter(pk=run.pk).update(**dict.fromkeys(names, exact))
    StudentModel.objects.filter(run=run).update(created_at=exact)
    researcher = client("researcher")
    document, model = researcher.get(f"{RUNS}/{run.pk}").json(), researcher.get(f"/api/v1/models/{run.pk}").json()
    lists = [researcher.get(address).json()["results"][0] for address in (RUNS, "/api/v1/models")]
    fields = {*(document[name] for name in names), model["created_at"], lists[0]["ended_at"], lists[1]["created_at"]}
    assert fields == {"2026-03-04T05:06:00Z"}


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


def test_labels_as_json_and_as_a_table(run: Run, client: Client, django_assert_max_num_queries: Any) -> None:
    released = dict(Query.objects.filter(run=run, label__isnull=False).values_list("row", "label"))
    researcher = client("researcher")
    with django_assert_max_num_queries(14):  # eight of them for the release register
        page = researcher.get(f"{RUNS}/{run.pk}/labels", {"limit": 1000}).json()
    assert {item["counts"] for item in page["results"]} == {None}
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


def downloads(run: Run) -> list[tuple[str, str]]:
    """Downloads from a run and who took them, as the release register has it."""
    entries = Release.objects.filter(run=run.pk, kind=Release.Kind.DOWNLOAD).order_by("sequence")
    return [(entry.content["what"], entry.recorded_by.username) for entry in entries]


@pytest.mark.parametrize("query", ["", "?format=csv", "?limit=5&offset=5", "?offset=0", "?format=npz"])
def test_download_of_labels_is_in_the_register(study: Study, client: Client, query: str) -> None:
    """Whichever part of them they take; who only asks what there would be takes nothing."""
    run = run_draft(study)
    address = f"{RUNS}/{run.pk}/labels{query}"
    assert client("researcher").head(address).status_code == 200
    assert client("researcher").options(address).status_code == 204
    assert client("auditor").get(address).status_code == 403
    assert downloads(run) == []
    assert client("researcher").get(address).status_code == 200
    assert client("operator").get(address).status_code == 200
    assert downloads(run) == [("labels", "researcher"), ("labels", "operator")]


def test_the_labels_of_a_usual_run_are_one_page_and_one_entry(study: Study, client: Client) -> None:
    run = run_draft(study)
    batch = Batch.objects.create(run=run, index=0, start=0, size=10_001, labels=10_001)
    Query.objects.bulk_create(Query(run=run, batch=batch, row=row, label=row % 2) for row in range(10_001))
    researcher, address = client("researcher"), f"{RUNS}/{run.pk}/labels"
    page = researcher.get(address).json()
    assert (page["count"], len(page["results"])) == (10_001, 1000)
    page = researcher.get(address, {"limit": 50_000}).json()
    assert len(page["results"]) == 10_000
    assert [item["row"] for item in researcher.get(page["next"]).json()["results"]] == [10_000]
    assert downloads(run) == [("labels", "researcher")], "three pages of the same labels"
    Run.objects.filter(pk=run.pk).update(position=10_002, labels=10_002)
    researcher.get(address)
    assert downloads(run) == [("labels", "researcher")] * 2, "more of them were released"


def test_download_of_a_model_is_in_the_register(run: Run, client: Client) -> None:
    address = f"/api/v1/models/{run.pk}/file"
    researcher = client("researcher")
    head = researcher.head(address)
    assert head.status_code == 200
    assert researcher.options(address).status_code == 204
    assert researcher.get(address, headers={"If-None-Match": head["ETag"]}).status_code == 304
    assert client("auditor").get(address).status_code == 404
    assert downloads(run) == []
    researcher.get(address)
    assert downloads(run) == [("model", "researcher")]
    release = Release.objects.get(run=run.pk, kind=Release.Kind.DOWNLOAD)
    assert release.content["digest"] == run.student.digest


def test_predictions_of_a_model_are_in_the_register_once(run: Run, client: Client) -> None:
    """Enough predictions are as good as the model."""
    address, question = f"/api/v1/models/{run.pk}/predict", {"rows": [{"age": 10, "smoker": "no"}]}
    assert client("researcher").post(address, {"rows": [{"age": "old"}]}, format="json").status_code == 400
    assert downloads(run) == []
    for person in ("researcher", "researcher", "operator"):
        assert client(person).post(address, question, format="json").status_code == 200
    assert downloads(run) == [("predictions", "researcher"), ("predictions", "operator")]


@pytest.mark.parametrize("path", ["studies", "runs", "runs/{run}", "runs/{run}/labels?format=csv", "models"])
def test_options_tell_the_methods(study: Study, client: Client, path: str) -> None:
    answer = client("researcher").options(f"/api/v1/{path.format(run=run_draft(study).pk)}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert "GET" in answer["Allow"]


def test_labels_are_for_those_who_may_use_students(run: Run, client: Client) -> None:
    response = client("auditor").get(f"{RUNS}/{run.pk}/labels")
    assert response.status_code == 403
    assert client("operator").get(f"{RUNS}/{run.pk}/labels").status_code == 200


def test_runs_of_other_studies_do_not_exist(study: Study, client: Client) -> None:
    run = run_draft(study)
    study_open("other")
    for path in ("", "/labels", "/costs"):
        response = client("stranger" + path.strip("/")).get(f"{RUNS}/{run.pk}{path}")
        assert response.status_code == 404
        assert "GET /api/v1/runs lists yours" in response.json()["detail"]
    assert client("researcher").get(f"{RUNS}/{uuid4()}").status_code == 404


def test_a_rehearsal_is_marked_and_used_like_any_run(tryout: Study, client: Client) -> None:
    researcher = client("researcher")
    assert researcher.get("/api/v1/studies/tryout").json()["rehearsal"] is True
    body = proposal(tryout, seed=5, rehearsed={"method": "data_independent"}, aggregator={"name": "gnmax", "sigma": 20})
    plan = researcher.post(f"{RUNS}/plan", body, format="json").json()
    assert (plan["budgets"], plan["answers"]) == ([], None)
    assert sum(group["holders"] for group in plan["groups"]) == sum(HOLDERS.values()) + UNDECIDED
    draft = researcher.post(RUNS, body, format="json").json()
    address = f"{RUNS}/{draft['id']}"
    assert (draft["rehearsal"], draft["seed"], draft["rehearsed"]["method"]) == (True, 5, "data_independent")
    assert draft["rehearsed"]["levels"]["HIGH"] == {"share": 0.34, "epsilon": 1.0}, "what it says nothing of is told"
    assert client("operator").post(f"{address}/approve").json()["status"] == "approved"
    run = run_finish(Run.objects.get(pk=draft["id"]))
    done = researcher.get(address).json()
    assert (done["status"], done["rehearsal"]) == ("finished", True)
    assert [level["level"] for level in done["outcome"]["epsilons"]] == ["HIGH", "AVERAGE", "LOW"]
    assert all(0 < level["spent"] <= level["epsilon"] for level in done["outcome"]["epsilons"])
    assert researcher.get(f"{address}/costs").json()["groups"] == []
    assert len(researcher.get(f"{address}/labels").json()["results"]) == run.labels > 0
    model = researcher.get(f"/api/v1/models/{run.pk}").json()
    assert (model["rehearsal"], model["card"]["rehearsal"]) == (True, True)
    assert "nothing is promised" in model["card"]["privacy"]["note"]
    assert researcher.get(f"/api/v1/models/{run.pk}/file").status_code == 200
    assert not Release.objects.exists(), "nobody's secret, so no register"


@pytest.mark.parametrize(
    ("rehearsed", "words"),
    [
        ({"method": "wishful"}, "counted by one of"),
        ({"conversion": "wishful"}, "conversion is one of"),
        ({"levels": {"HIGH": {"share": 1}}}, "numbers above 0"),
        ({"levels": {"TOP": {"share": 1, "epsilon": 1}}}, "HIGH, AVERAGE and LOW"),
        ({"holders": 3}, "Unknown parameters: holders"),
    ],
)
def test_a_wrong_rehearsal_is_refused(tryout: Study, client: Client, rehearsed: Any, words: str) -> None:
    response = client("researcher").post(RUNS, proposal(tryout, rehearsed=rehearsed), format="json")
    assert response.status_code == 400
    assert words in errors(response)["rehearsed"]


def test_an_approval_says_which_share_of_every_cap_the_run_may_use(study: Study, client: Client) -> None:
    operator = client("operator")
    run, other, third = run_draft(study), run_draft(study), run_draft(study)
    for wrong in ({"share": 2}, {"share": 0}, {"share": "half"}, {"portion": 0.5}, {"epsilons": {"HIGH": 0.1}}):
        answer = operator.post(f"{RUNS}/{run.pk}/approve", wrong, format="json")
        assert answer.status_code == 400, wrong
        assert errors(answer).keys() == wrong.keys()
    first = operator.post(f"{RUNS}/{run.pk}/approve", {"share": 0.75}, format="json").json()
    assert (first["status"], first["share"]) == ("approved", 0.75)
    assert client("researcher").get("/api/v1/studies/ward").json()["share_free"] == pytest.approx(0.25)
    late = operator.post(f"{RUNS}/{other.pk}/approve", {"share": 0.5}, format="json")
    assert late.status_code == 400
    assert "Only 0.25 of every holder's cap is free" in errors(late)["share"]
    assert operator.post(f"{RUNS}/{other.pk}/approve", {"share": 0.25}, format="json").json()["share"] == 0.25
    none = operator.post(f"{RUNS}/{third.pk}/approve", format="json")
    assert none.status_code == 409
    assert "used or held for other runs" in none.json()["detail"]
    operator.post(f"{RUNS}/{run.pk}/cancel")
    assert operator.post(f"{RUNS}/{third.pk}/approve", {"share": 0.75}, format="json").status_code == 200, (
        "what the first held is free again"
    )


# --- Proposals that are sent twice ----------------------------------------------------------------------------------


def test_a_proposal_with_a_key_is_saved_once(study: Study, client: Client) -> None:
    researcher, key = client("researcher"), {"Idempotency-Key": "notebook-1"}
    first = researcher.post(RUNS, proposal(study), format="json", headers=key)
    again = researcher.post(RUNS, proposal(study), format="json", headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    other = researcher.post(RUNS, proposal(study, title="Another"), format="json", headers=key)
    assert other.status_code == 422 and "Choose a new one" in other.json()["detail"]
    of_another = client("operator").post(RUNS, proposal(study), format="json", headers=key)
    assert of_another.json()["id"] != first.json()["id"], "keys are each person's own"
    for wrong in ("", "a b", "x" * 101, "ä"):
        refused = researcher.post(RUNS, proposal(study), format="json", headers={"Idempotency-Key": wrong})
        assert refused.status_code == 400, wrong
    assert Run.objects.count() == 2


# --- States that do not allow it ------------------------------------------------------------------------------------


def test_an_ended_run_is_neither_approved_nor_cancelled(study: Study, client: Client) -> None:
    operator, draft = client("operator"), run_draft(study)
    Run.objects.filter(pk=draft.pk).update(status="failed", message="The data were gone.", ended_at=timezone.now())
    for what in ("approve", "cancel"):
        assert operator.post(f"{RUNS}/{draft.pk}/{what}").status_code == 409, what
    seen = client("researcher").get(f"{RUNS}/{draft.pk}").json()
    assert (seen["reason"], seen["message"]) == ("The data were gone.", None)
    Run.objects.filter(pk=draft.pk).update(status="finished", message="", stop_reason="used_up")
    assert operator.post(f"{RUNS}/{draft.pk}/cancel").status_code == 409
    assert client("researcher").get(f"{RUNS}/{draft.pk}").json()["reason"] == "every public point was put to the vote"
    other = run_draft(study)
    assert client("researcher").get(f"{RUNS}/{other.pk}").json()["reason"] == ""


# --- Parameters of addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("studies?page=2", "page"),
        ("runs?stduy=ward", "stduy"),
        ("runs?limit=0", "limit"),
        ("runs?limit=many", "limit"),
        ("runs?offset=-1", "offset"),
        ("runs?offset=99999999999999999999", "offset"),
        ("runs?status=done", "status"),
        ("runs?limit=1&limit=2", "limit"),
        ("learners?x=1", "x"),
        ("models?version=1", "version"),
    ],
)
def test_parameters_that_nobody_knows_or_can_read_are_refused(
    study: Study, client: Client, address: str, name: str
) -> None:
    response = client("researcher").get(f"/api/v1/{address}")
    assert response.status_code == 400
    assert set(errors(response)) == {name}


# --- Labels with the points that they are about ---------------------------------------------------------------------


def test_labels_come_with_their_points_and_counts(asking_run: Run, client: Client) -> None:
    address = f"{RUNS}/{asking_run.pk}/labels"
    response = client("researcher").get(address, {"format": "npz"})
    assert response["Content-Type"] == "application/x-npz"
    with np.load(io.BytesIO(response.content), allow_pickle=False) as arrays:
        assert set(arrays.files) == {"x", "row", "label", "counts", "classes"}, "no labels of the points' own"
        assert arrays["x"].shape == (POINTS, 3)
        assert arrays["classes"].tolist() == ["healthy", "ill"]
        page = client("researcher").get(address).json()["results"]
        assert arrays["row"].tolist() == [each["row"] for each in page]
        assert arrays["classes"][arrays["label"]].tolist() == [each["label"] for each in page]
        assert arrays["counts"].tolist() == [each["counts"] for each in page]
    assert client("auditor").get(address, {"format": "npz"}).status_code == 403
    assert client("researcher").options(f"{address}?format=csv").status_code == 204
    assert client("researcher").get(address, {"format": "xml"}).status_code == 404
