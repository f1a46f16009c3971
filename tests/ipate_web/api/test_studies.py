"""Studies and what runs can be made of."""

import json
from pathlib import Path

import pytest

import learning.formats
from accounting.models import Release
from consent.models import Role, Study
from consent.services import conflict_declare, epsilon_policy_approve, epsilon_policy_propose
from learning.formats import schema_from_json
from learning.formats.schema import example_rows
from tests.factories import HARM, study_create, study_open, user_create
from tests.ipate_web.api.conftest import HEAD_COUNTS, POINTS, Client
from training.models import Dataset, Run
from training.services.drawings import head_counts_draw

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


def test_a_study_tells_what_is_public(study: Study, client: Client) -> None:
    """To everybody the same, staff included: who sees exact numbers sees them on the pages for consents and records."""
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
    version = epsilon_policy_propose(
        study=study, acting_user=user_create("chair"), high=0.5, average=1.0, low=2.0, reason="Less."
    )
    epsilon_policy_approve(policy=version, acting_user=user_create("other"), conditions="Report every half year.")
    answer = client("operator").get(f"{STUDIES}/ward")
    document = answer.json()["committee"]
    assert [(each["about"], each["conditions"], each["approved_by"]) for each in document["conditions"]] == [
        ("policy", "Report every half year.", "other")
    ]
    assert document["conflicts"] == 1
    assert "sister" not in answer.text, "why stays on the page"
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
    assert "tell nothing about people" in first["note"]
    assert (first["rows"], first["answers"]) == example_rows(schema_from_json(first["schema"]), 5, seed=1)
    assert Release.objects.count() == releases, "and nothing of it is recorded"
    answer = researcher.post(f"/api/v1/models/{run.pk}/predict", {"rows": first["rows"]}, format="json")
    assert answer.status_code == 200 and not any(answer.json()["outside"])
    public = Dataset.objects.get(study=study, kind="public").pk
    assert researcher.get(f"{STUDIES}/ward/example-rows?dataset={public}").json()["dataset"] == public
    assert researcher.get(f"{STUDIES}/ward/example-rows?dataset={10**6}").status_code == 404


@pytest.mark.parametrize("name", ["adult", "diabetes"])
def test_invented_rows_lie_within_what_a_schema_declares(name: str) -> None:
    schema = schema_from_json(json.loads((SCHEMAS / f"{name}.json").read_text("utf-8")))
    rows, _answers = example_rows(schema, 50, seed=0)
    assert not any(schema.outside(rows)) and len(schema.encode(rows)) == 50
