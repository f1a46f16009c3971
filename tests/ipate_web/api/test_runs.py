"""Studies and runs through the API: propose, follow, approve, cancel, plan, labels."""

import csv
import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework import serializers

import learning.formats
from accounting.caps import caps_of
from accounting.models import Release
from common.slots import slot
from consent.models import Role, Study
from consent.services import conflict_declare, epsilon_policy_approve, epsilon_policy_propose
from ipate_web.api.run_documents import RunDetailSerializer
from learning.formats import schema_from_json
from learning.formats.schema import example_rows
from tests.factories import HARM, study_create, study_open, user_create
from tests.ipate_web.api.conftest import HEAD_COUNTS, POINTS, Client
from tests.pages import downloads
from tests.training.runs import run_approve, run_draft, run_planned, teachers_chosen
from training.models import Batch, Dataset, Query, Run, StudentModel
from training.services.drawings import head_counts_draw

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


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"study": "nowhere"}, "study", "does not exist"),
    ({"aggregator": "gnmax"}, "choices.aggregator", "an object"),
    ({"teachers": 0}, "choices.teachers", "from 1 to"),
    ({"choices": {"rounds": 2}}, "choices", "There is no choice rounds"),
    ({"rounds": 2}, "rounds", "Send it within “choices”"),
    ({"method": "wishful"}, "method", "not a valid choice"),
    ({"title": ""}, "title", "blank"),
    ({"variant": ""}, "variant", "Choose a variant"),
    ({"test_dataset": 10**6}, "test_dataset", "does not exist"),
    ({"seed": 3}, "seed", "Only a rehearsal can have a seed, because noise"),
    ({"rehearsal": True}, "rehearsal", "There is no such field"),
]


def test_the_answer_names_the_wrong_field(study: Study, client: Client) -> None:
    researcher = client("researcher")
    for change, field, words in WRONG:
        answer = researcher.post(RUNS, proposal(study, **change), format="json")
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json"), (field, words)
        assert words in errors(answer)[field], (field, words)
    assert not Run.objects.exists()


def test_one_person_has_one_plan_computed_at_a_time(study: Study, client: Client) -> None:
    """Otherwise one token could occupy all processes of the site."""
    operator, researcher = client("operator"), client("researcher")
    with slot(User.objects.get(username="researcher").pk):  # as in another process of the site
        refused = researcher.post(f"{RUNS}/plan", proposal(study), format="json")
        assert (refused.status_code, refused["Retry-After"]) == (429, "5")
        assert operator.post(f"{RUNS}/plan", proposal(study), format="json").status_code == 200
    assert researcher.post(f"{RUNS}/plan", proposal(study), format="json").status_code == 200


def test_only_a_few_plans_are_computed_at_once(study: Study, client: Client, settings: Any) -> None:
    settings.PLANS_AT_ONCE = 2
    run, operator = run_draft(study), client("operator")
    with slot(0), slot(-1):
        assert operator.get(f"{RUNS}/{run.pk}/plan").status_code == 429
    assert operator.get(f"{RUNS}/{run.pk}/plan").status_code == 200


def test_drafts_are_not_compared_with_private_records(study: Study, client: Client) -> None:
    """Otherwise its errors would reveal the number of holders and the classes of their records."""
    Dataset.objects.filter(kind="private").update(seen_classes=[0])
    for role in ("researcher", "operator"):
        assert client(role).post(RUNS, proposal(study, teachers=5000), format="json").status_code == 201


def test_a_plan_depends_only_on_public_information(study: Study, client: Client) -> None:
    answers = {role: client(role).post(f"{RUNS}/plan", proposal(study), format="json") for role in ROLES_THAT_PROPOSE}
    assert [answer.status_code for answer in answers.values()] == [200, 200]
    plan = answers["researcher"].json()
    assert plan == answers["operator"].json()
    assert {group["name"]: group["holders"] for group in plan["groups"]} == HEAD_COUNTS
    for group, budget in zip(plan["groups"], plan["budgets"], strict=True):
        assert budget["label"] == pytest.approx(2 * group["weight"] ** 2 / 5.0**2, rel=1e-3)
        assert budget["allowed"] == pytest.approx(budget["cap"] / 4)  # the suggested share
    assert plan["answers"] == min(int(budget["allowed"] / budget["label"]) for budget in plan["budgets"])
    half = client("researcher").post(f"{RUNS}/plan", proposal(study, share=0.5), format="json").json()
    assert [each["allowed"] for each in half["budgets"]] == pytest.approx([each["cap"] / 2 for each in half["budgets"]])
    for share in (0, 1.5, "all"):
        answer = client("researcher").post(f"{RUNS}/plan", proposal(study, share=share), format="json")
        assert (answer.status_code, errors(answer).keys()) == (400, {"share"}), share
    too_many = client("researcher").post(f"{RUNS}/plan", proposal(study, teachers=1 + PUBLIC), format="json")
    assert too_many.status_code == 409 and f"Use at most {PUBLIC} teachers" in too_many.json()["detail"]
    assert not Run.objects.exists()


def test_a_finished_run_shows_only_public_information(run: Run, client: Client) -> None:
    """Times are given to the minute, because those of teachers and of a vote's end may depend on private records."""
    exact = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)
    names = ("approved_at", "started_at", "spending_began_at", "ended_at")
    Run.objects.filter(pk=run.pk).update(**dict.fromkeys(names, exact))
    StudentModel.objects.filter(run=run).update(created_at=exact)
    researcher = client("researcher")
    document, model = researcher.get(f"{RUNS}/{run.pk}").json(), researcher.get(f"/api/v1/models/{run.pk}").json()
    assert document["status"] == "finished"
    assert document["labels"] + document["rejected"] == document["progress"]["queries"] == run.position
    assert [stage["stage"] for stage in document["progress"]["stages"]] == ["people", "teachers", "asking"]
    assert document["progress"]["stages"][1]["share"] == 1
    assert (document["method"], document["choices"]["teachers"]) == ("pate", 20)
    assert document["model"] == str(run.pk)
    promises = [(promise["level"], promise["epsilon"]) for promise in document["promises"]]
    assert promises == [("HIGH", 1.0), ("AVERAGE", 2.0), ("LOW", 3.0)]
    assert [document[name] for name in ("rehearsal", "seed", "rehearsed", "outcome")] == [False, None, {}, {}]
    assert model["card"]["privacy"]["groups"] == document["promises"]
    lists = [researcher.get(address).json()["results"][0] for address in (RUNS, "/api/v1/models")]
    times = {*(document[name] for name in names), model["created_at"], lists[0]["ended_at"], lists[1]["created_at"]}
    assert times == {"2026-03-04T05:06:00Z"}


def test_a_computed_field_is_described_in_one_place_and_changes_no_row(run: Run) -> None:
    class Extended(RunDetailSerializer):
        doubled = serializers.IntegerField()

        def get_doubled(self, run: Run) -> int:
            return 2 * run.labels

    run.message = "For staff."
    document = Extended(run, context={"user": user_create("nobody")}).data
    assert list(document)[-1] == "doubled" and document["doubled"] == 2 * run.labels
    assert (document["message"], run.message) == (None, "For staff.")


def test_costs_are_what_everybody_in_a_group_was_charged(run: Run, client: Client) -> None:
    costs = client("researcher").get(f"{RUNS}/{run.pk}/costs").json()
    for group, planned in zip(costs["groups"], run.plan["groups"], strict=True):
        assert group["spent"] == pytest.approx(run.labels * 2 * planned["weight"] ** 2 / 30**2)
        assert group["allowed"] == pytest.approx(group["cap"])
        assert costs["history"]["shares"][group["name"]][-1] == pytest.approx(group["spent"] / group["cap"])
    assert costs["history"]["labels"][-1] == run.labels
    assert client("auditor").get(f"{RUNS}/{run.pk}/costs").json() == costs
    of_draft = client("researcher").get(f"{RUNS}/{run_draft(run.study).pk}/costs").json()
    assert of_draft == {"groups": [], "history": {"queries": [], "labels": [], "shares": {}}}


def test_the_budget_of_a_study_adds_up_what_its_runs_have_used(run: Run, client: Client) -> None:
    address = "/api/v1/studies/ward/budget"
    run_approve(run=run_draft(run.study, title="=Next"), acting_user=user_create("olga"), share=0.125)
    budget, charges = client("researcher").get(address).json(), zip(*_charges(run), strict=True)
    assert budget["delta"] == 1e-4
    for group, due in zip(budget["groups"], map(math.fsum, charges), strict=True):
        cap = float(caps_of(group["epsilon"], 1e-4))
        assert group["share_used"] == pytest.approx(due / cap)
        assert group["share_reserved"] == pytest.approx(0.125)
        assert group["share_left"] == pytest.approx(0.875 - due / cap)
        for part in ("used", "reserved", "left"):
            assert caps_of(group[f"epsilon_{part}"], 1e-4) == pytest.approx(cap * group[f"share_{part}"], rel=1e-5)
        (use,) = group["runs"]
        last = Release.objects.filter(run=run.pk, charge__gt=0).latest("sequence").recorded_at
        assert (use["run"], use["title"]) == (str(run.pk), run.title) and use["share"] == pytest.approx(due / cap)
        assert datetime.fromisoformat(use["at"]) == last
    rows = list(csv.DictReader(io.StringIO(client("researcher").get(address, {"format": "csv"}).text)))
    assert [row["part"] for row in rows] == ["use", "used", "reserved", "left"] * 3
    assert float(rows[-1]["share"]) == budget["groups"][-1]["share_left"]


def _charges(run: Run) -> list[list[float]]:
    """Return the charges of every batch of a run, by group, from the register."""
    batches = Release.objects.filter(run=run.pk, batch__isnull=False).order_by("batch")
    return [content["charges"] for content in batches.values_list("content", flat=True)]


def test_labels_as_json_and_as_a_table(run: Run, client: Client, django_assert_max_num_queries: Any) -> None:
    released = dict(Query.objects.filter(run=run, label__isnull=False).values_list("row", "label"))
    researcher = client("researcher")
    with django_assert_max_num_queries(15):  # eight of them for the release register
        page = researcher.get(f"{RUNS}/{run.pk}/labels", {"limit": 1000}).json()
    assert {item["counts"] for item in page["results"]} == {None}
    classes = run.public_dataset.classes
    assert {each["row"]: each["label"] for each in page["results"]} == {
        row: classes[at] for row, at in released.items()
    }
    for response in (
        researcher.get(f"{RUNS}/{run.pk}/labels", {"format": "csv"}),
        researcher.get(f"{RUNS}/{run.pk}/labels", headers={"Accept": "text/csv"}),
    ):
        assert response["Content-Type"].startswith("text/csv")
        head, *lines = response.content.decode().splitlines()
        assert head == "row,label"
        assert [int(line.split(",")[0]) for line in lines] == sorted(released)


def test_download_of_labels_is_in_the_register(study: Study, client: Client) -> None:
    """Any part of the labels counts as a download; a request that only asks which labels exist does not."""
    clients = {role: client(role) for role in ("researcher", "operator", "auditor")}
    for query in ("", "?format=csv", "?limit=5&offset=5", "?offset=0", "?format=npz"):
        run = run_draft(study)
        address = f"{RUNS}/{run.pk}/labels{query}"
        assert clients["researcher"].head(address).status_code == 200
        assert clients["researcher"].options(address).status_code == 204
        assert clients["auditor"].get(address).status_code == 403
        assert downloads(run) == [], query
        assert clients["researcher"].get(address).status_code == clients["operator"].get(address).status_code == 200
        assert downloads(run) == [("labels", "researcher"), ("labels", "operator")], query


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


def test_predictions_of_a_model_are_in_the_register_once(run: Run, client: Client) -> None:
    """With enough predictions, one can reconstruct the model."""
    address, question = f"/api/v1/models/{run.pk}/predict", {"rows": [{"age": 10, "smoker": "no"}]}
    assert client("researcher").post(address, {"rows": [{"age": "old"}]}, format="json").status_code == 400
    assert downloads(run) == []
    for person in ("researcher", "researcher", "operator"):
        assert client(person).post(address, question, format="json").status_code == 200
    assert downloads(run) == [("predictions", "researcher"), ("predictions", "operator")]


def test_an_approval_says_which_share_of_every_cap_the_run_may_use(study: Study, client: Client) -> None:
    operator, run, other = client("operator"), run_draft(study), run_draft(study)
    for wrong in ({"share": 2}, {"share": 0}, {"share": "half"}, {"portion": 0.5}, {"epsilons": {"HIGH": 0.1}}):
        answer = operator.post(f"{RUNS}/{run.pk}/approve", wrong, format="json")
        assert (answer.status_code, errors(answer).keys()) == (400, wrong.keys()), wrong
    first = operator.post(f"{RUNS}/{run.pk}/approve", {"share": 0.75}, format="json").json()
    assert (first["status"], first["share"]) == ("planning", 0.75)
    early = operator.post(f"{RUNS}/{other.pk}/approve", {"share": 0.5}, format="json")
    assert "Only a share of 0.25" in errors(early)["share"]
    run_planned(Run.objects.get(pk=run.pk))
    assert client("researcher").get("/api/v1/studies/ward").json()["share_free"] == pytest.approx(0.25)
    late = operator.post(f"{RUNS}/{other.pk}/approve", {"share": 0.5}, format="json")
    assert late.status_code == 400 and "Only a share of 0.25 is still available" in errors(late)["share"]
    assert operator.post(f"{RUNS}/{other.pk}/approve", {"share": 0.25}, format="json").json()["share"] == 0.25
    assert operator.post(f"{RUNS}/{run_draft(study).pk}/approve", format="json").status_code == 400


def test_a_proposal_with_a_key_is_saved_once(study: Study, client: Client) -> None:
    researcher, key = client("researcher"), {"Idempotency-Key": "notebook-1"}
    first = researcher.post(RUNS, proposal(study), format="json", headers=key)
    again = researcher.post(RUNS, proposal(study), format="json", headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first["Location"] == again["Location"] == f"{RUNS}/{first.json()['id']}"
    assert researcher.get(again["Location"]).json() == first.json() == again.json()
    other = researcher.post(RUNS, proposal(study, title="Another"), format="json", headers=key)
    assert other.status_code == 422 and "Choose a new one" in other.json()["detail"]
    of_another = client("operator").post(RUNS, proposal(study), format="json", headers=key)
    assert of_another.json()["id"] != first.json()["id"], "each person has their own keys"
    for wrong in ("", "a b", "x" * 101, "ä"):
        refused = researcher.post(RUNS, proposal(study), format="json", headers={"Idempotency-Key": wrong})
        assert refused.status_code == 400, wrong
    assert Run.objects.count() == 2


def test_unknown_and_unreadable_parameters_are_refused(study: Study, client: Client) -> None:
    researcher = client("researcher")
    queries = ["studies?page=2", "runs?stduy=ward", "runs?limit=0", "runs?limit=many", "runs?limit=1&limit=2"]
    queries += ["runs?offset=-1", "runs?offset=99999999999999999999", "runs?status=done"]
    for query in (*queries, "learners?x=1", "models?version=1"):
        name = query.partition("?")[2].partition("=")[0]
        answer = researcher.get(f"/api/v1/{query}")
        assert (answer.status_code, set(errors(answer))) == (400, {name}), query


def test_following_a_runs_events_occupies_no_process(study: Study, run: Run, client: Client) -> None:
    researcher, draft = client("researcher"), run_draft(study)

    def event(run: Run, seen: str = "") -> Any:
        return researcher.get(f"{RUNS}/{run.pk}/events", headers={"Accept": "text/event-stream", "Last-Event-ID": seen})

    for followed, name, again in ((draft, "progress", (200, b"retry: 2000\n\n")), (run, "ended", (204, b""))):
        answer = event(followed)
        assert answer["Content-Type"].startswith("text/event-stream")
        lines = dict(line.split(": ", 1) for line in answer.content.decode().strip().splitlines())
        assert (lines["event"], lines["retry"]) == (name, "2000")
        told = json.loads(lines["data"])
        assert (told["id"], told["status"]) == (str(followed.pk), followed.status)
        assert told.keys() == {"id", "status", "progress", "place", "expected_start", "reason", "model"}
        repeated = event(followed, lines["id"])
        assert (repeated.status_code, repeated.content) == again
    assert client("stranger").get(f"{RUNS}/{run.pk}/events").status_code == 404


STUDIES = "/api/v1/studies"
SCHEMAS = Path(learning.formats.__file__).parent / "schemas"


def test_only_studies_in_which_one_has_a_role_are_listed(study, client, django_assert_num_queries) -> None:
    study_open("other")
    researcher = client("researcher")
    with django_assert_num_queries(4):
        page = researcher.get(STUDIES).json()
    assert [item["slug"] for item in page["results"]] == ["ward"]
    assert client("stranger").get(STUDIES).json()["results"] == []
    assert client("stranger").get(f"{STUDIES}/ward").status_code == 404
    assert researcher.get(f"{STUDIES}/other").status_code == 404


def test_a_study_shows_only_public_information(study: Study, client: Client) -> None:
    """Everybody sees the same, including staff, who see exact numbers on the pages for consents and records."""
    documents = [client(role).get(f"{STUDIES}/ward").json() for role in Role.values]
    fields = {role: document.pop("committee") for role, document in zip(Role.values, documents, strict=True)}
    assert fields.pop("researcher") == {"quorum": 1, "harm": HARM["en"], "conditions": None, "conflicts": None}
    assert all(each == {"quorum": 1, "harm": HARM["en"], "conditions": [], "conflicts": 0} for each in fields.values())
    assert all(document == documents[0] for document in documents)
    document, epsilons = documents[0], {"HIGH": 1.0, "AVERAGE": 2.0, "LOW": 3.0}
    assert document["rehearsal"] is False
    assert document["levels"] == [{"level": level, "epsilon": epsilon} for level, epsilon in epsilons.items()]
    assert document["head_counts"] == [
        {"level": level, "epsilon": epsilon, "count": HEAD_COUNTS[level], "sigma": None, "release": 1}
        for level, epsilon in epsilons.items()
    ]
    assert document["share_free"] == 1
    datasets = {dataset["kind"]: dataset for dataset in document["datasets"]}
    assert (datasets["private"]["rows"], datasets["private"]["holders"]) == (None, None)
    assert datasets["public"]["rows"] == POINTS
    assert (datasets["private"]["shape"], datasets["private"]["classes"]) == ([3], ["healthy", "ill"])
    study_create("young")
    young = client("olga").get(f"{STUDIES}/young").json()
    assert (young["policy"], young["datasets"]) == (None, [])
    assert {item["epsilon"] for item in young["levels"]} == {None}
    study_create("dress", rehearsal=True)
    assert client("olga").get(f"{STUDIES}/dress").json()["committee"] is None


def test_conditions_and_conflicts_need_the_committees_permission(study: Study, client: Client) -> None:
    conflict_declare(study=study, acting_user=user_create("committee"), reason="My sister runs it.")
    values = {"high": 0.5, "average": 1.0, "low": 2.0, "reason": "Less."}
    version = epsilon_policy_propose(study=study, acting_user=user_create("chair"), **values)
    epsilon_policy_approve(policy=version, acting_user=user_create("other"), conditions="Report every half year.")
    answer = client("operator").get(f"{STUDIES}/ward")
    document = answer.json()["committee"]
    assert [(each["about"], each["conditions"], each["approved_by"]) for each in document["conditions"]] == [
        ("policy", "Report every half year.", "other")
    ]
    assert document["conflicts"] == 1
    assert "sister" not in answer.text, "the reason stays on the page"
    hidden = client("researcher").get(f"{STUDIES}/ward").json()["committee"]
    assert (hidden["conditions"], hidden["conflicts"]) == (None, None)


def test_a_draw_of_head_counts_states_its_noise(study: Study, client: Client) -> None:
    drawn = head_counts_draw(study=study, acting_user=user_create("olga"))
    document = client("researcher").get(f"{STUDIES}/ward").json()
    entries = [(item["level"], item["count"], item["sigma"]) for item in document["head_counts"]]
    assert entries == [(count.level, count.count, count.sigma) for count in drawn]
    assert document["share_free"] == 0.99


def test_invented_rows_follow_from_the_schema_and_a_seed(study: Study, run: Run, client: Client) -> None:
    researcher, releases = client("researcher"), Release.objects.count()
    first, same, other = (
        researcher.get(f"{STUDIES}/ward/example-rows?rows=5&seed={seed}").json() for seed in (1, 1, 2)
    )
    assert first == same and first["rows"] != other["rows"]
    assert len(first["rows"]) == len(first["answers"]) == 5 and set(first["answers"]) <= {"healthy", "ill"}
    assert "reveal nothing about people" in first["note"]
    assert (first["rows"], first["answers"]) == example_rows(schema_from_json(first["schema"]), 5, seed=1)
    assert Release.objects.count() == releases, "and nothing of it is recorded"
    answer = researcher.post(f"/api/v1/models/{run.pk}/predict", {"rows": first["rows"]}, format="json")
    assert answer.status_code == 200 and not any(answer.json()["outside"])
    public = Dataset.objects.get(study=study, kind="public").pk
    assert researcher.get(f"{STUDIES}/ward/example-rows?dataset={public}").json()["dataset"] == public
    assert researcher.get(f"{STUDIES}/ward/example-rows?dataset={10**6}").status_code == 404


@pytest.mark.parametrize("name", ["adult", "diabetes"])
def test_invented_rows_are_within_the_schemas_ranges(name: str) -> None:
    schema = schema_from_json(json.loads((SCHEMAS / f"{name}.json").read_text("utf-8")))
    rows, _answers = example_rows(schema, 50, seed=0)
    assert not any(schema.outside(rows)) and len(schema.encode(rows)) == 50
