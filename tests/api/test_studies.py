"""Studies and what runs can be made of."""

from typing import Any

from consent.models import Study
from tests.api.conftest import HOLDERS, POINTS, Client
from tests.factories import study_create, study_open
from training.api.parts import AGGREGATOR_PARAMETERS
from training.learners import LEARNERS, learner_create
from training.pate import AGGREGATORS, aggregator_from_parameters

STUDIES = "/api/v1/studies"


def test_only_studies_in_which_one_has_a_role_are_listed(
    study: Study, client: Client, django_assert_num_queries: Any
) -> None:
    study_open("other")
    researcher = client("researcher")
    with django_assert_num_queries(4):
        page = researcher.get(STUDIES).json()
    assert [item["slug"] for item in page["results"]] == ["ward"]
    assert client("stranger").get(STUDIES).json()["results"] == []
    assert client("stranger").get(f"{STUDIES}/ward").status_code == 404
    assert researcher.get(f"{STUDIES}/other").status_code == 404


def test_researchers_see_rounded_sizes(study: Study, client: Client) -> None:
    told = client("researcher").get(f"{STUDIES}/ward").json()
    assert told["levels"] == [
        {"level": "HIGH", "epsilon": 1.0, "holders": 90},
        {"level": "AVERAGE", "epsilon": 2.0, "holders": 160},
        {"level": "LOW", "epsilon": 3.0, "holders": None},
    ]
    assert told["holders_are_exact"] is False
    datasets = {dataset["kind"]: dataset for dataset in told["datasets"]}
    assert (datasets["private"]["rows"], datasets["private"]["holders"]) == (260, 260)
    assert datasets["public"]["rows"] == POINTS
    assert datasets["private"]["shape"] == [3]
    assert datasets["private"]["classes"] == ["healthy", "ill"]


def test_staff_see_exact_sizes(study: Study, client: Client) -> None:
    for role in ("operator", "committee", "auditor"):
        told = client(role).get(f"{STUDIES}/ward").json()
        assert {item["level"]: item["holders"] for item in told["levels"]} == HOLDERS
        private = next(dataset for dataset in told["datasets"] if dataset["kind"] == "private")
        assert private["holders"] == sum(HOLDERS.values()) + 2


def test_a_study_without_policy_or_data(client: Client, db: Any) -> None:
    study_create("young")
    told = client("olga").get(f"{STUDIES}/young").json()
    assert told["policy"] is None
    assert told["datasets"] == []
    assert {item["epsilon"] for item in told["levels"]} == {None}


def test_every_learner_can_be_made_from_what_is_told(client: Client, db: Any) -> None:
    learners = client("anyone").get("/api/v1/learners").json()
    assert {learner["name"] for learner in learners} == set(LEARNERS)
    for learner in learners:
        learner_create(learner["name"], {field["name"]: field["default"] for field in learner["parameters"]})


def test_every_aggregator_can_be_made_from_what_is_told(client: Client, db: Any) -> None:
    aggregators = client("anyone").get("/api/v1/aggregators").json()
    assert {aggregator["name"] for aggregator in aggregators} == set(AGGREGATORS)
    for aggregator in aggregators:
        parameters = {parameter["name"]: 0.5 for parameter in aggregator["parameters"]}
        aggregator_from_parameters({"name": aggregator["name"], **parameters})
        assert all(parameter["help"] in AGGREGATOR_PARAMETERS.values() for parameter in aggregator["parameters"])
