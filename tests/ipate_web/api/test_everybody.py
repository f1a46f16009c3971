"""Runs with votes of every holder or private gradient steps, through the API: proposals, plans, progress and costs."""

from typing import Any

import pytest

from consent.models import Study
from learning.mechanisms.neighbours.rounds import NeighbourChoices
from learning.published import published_load
from tests.ipate_web.api.conftest import HEAD_COUNTS, POINTS, Client
from tests.ipate_web.api.test_runs import RUNS
from tests.training.asking import SAMPLED_RUN, run_ask
from tests.training.runs import run_start
from training.models import Dataset, Run
from training.services.runs import suggested_method

MODELS = "/api/v1/models"


def proposal(of: Study, **fields: Any) -> dict[str, Any]:
    datasets = {f"{dataset.kind}_dataset": dataset.pk for dataset in Dataset.objects.filter(study=of)}
    usual = {"title": "Everybody", "method": "neighbours", "student_learner": "nearest_neighbour"}
    return {"study": of.slug, **usual, **datasets, **fields}


def test_missing_fields_take_the_suggestion_for_the_study(study: Study, client: Client) -> None:
    suggested, researcher = suggested_method("table", POINTS), client("researcher")
    body = {name: value for name, value in proposal(study).items() if name not in ("method", "student_learner")}
    for address, code in ((f"{RUNS}/plan", 200), (RUNS, 201)):
        answer = researcher.post(address, body, format="json")
        assert (answer.status_code, answer.json()["method"]) == (code, suggested.method)
    assert answer.json()["student_learner"] == suggested.student
    other = researcher.post(RUNS, body | {"method": "neighbours"}, format="json").json()
    assert (other["method"], other["student_learner"]) == ("neighbours", suggested.student)
    table = researcher.get(f"{RUNS}/{other['id']}/labels", {"format": "csv"}).content.decode()
    assert table.splitlines() == ["row,label,count_healthy,count_ill"], "as after a release"


def test_a_plan_says_what_is_asked_and_what_to_expect(study: Study, client: Client) -> None:
    body = proposal(study, choices={"rounds": 2, "first_queries": 10, "sigma": 20}, share=0.5)
    answers = [client(role).post(f"{RUNS}/plan", body, format="json") for role in ("researcher", "operator")]
    assert [answer.status_code for answer in answers] == [200, 200]
    plan = answers[0].json()
    assert plan == answers[1].json()
    assert plan["method"] == "neighbours"
    assert {promise["level"]: promise["holders"] for promise in plan["promises"]} == HEAD_COUNTS
    assert [(each["queries"], each["sigma"], each["until"]) for each in plan["rounds"]] == [(10, 20, 0.5), (20, 20, 1)]
    assert [each["allowed"] for each in plan["budgets"]] == pytest.approx([each["cap"] / 2 for each in plan["budgets"]])
    turnout, forecasts = plan["turnout"], plan["forecasts"]
    assert turnout["queries"] == 10 and [level["name"] for level in turnout["levels"]] == list(HEAD_COUNTS)
    assert forecasts[0]["of"] == "labels" and forecasts[0]["judged"] > 0 and forecasts[0]["rests_on"]
    assert all(0 <= each["low"] <= each["value"] <= each["high"] <= 1 for each in forecasts)
    assert plan["answers"] is None, "all points are asked"
    assert not {"teachers", "groups", "variant", "left_out"} & plan.keys(), "those are of other methods"
    body = proposal(study, choices={"rounds": None, "sigma": 500.0}, share=0.01)
    notes = client("researcher").post(f"{RUNS}/plan", body, format="json").json()["notes"]
    assert any("too few people" in note for note in notes)
    assert not Run.objects.exists()


def steps(of: Study, **fields: Any) -> dict[str, Any]:
    return proposal(of, title="Steps", method="sgd", **fields)


@pytest.fixture
def learned_over_samples(study: Study) -> Run:
    return finished(study, SAMPLED_RUN | {"public_dataset": None})


def finished(study: Study, recipe: dict[str, Any]) -> Run:
    run = run_ask(run_start(study, **recipe, share=0.5, title="Learned"))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_a_run_over_samples_is_charged_in_advance_and_gives_a_network(learned_over_samples, client) -> None:
    run, researcher = learned_over_samples, client("researcher")
    costs = researcher.get(f"{RUNS}/{run.pk}/costs").json()
    for group in costs["groups"]:
        assert 0.99 * group["allowed"] < group["spent"] <= group["allowed"]
    assert costs["history"]["queries"] == [0, 2, 4, 6]
    for shares in costs["history"]["shares"].values():
        assert len(set(shares)) == 1
    model = researcher.get(f"{MODELS}/{run.pk}").json()
    assert (model["learner"], model["schema"]["classes"]) == ("network_linear", run.classes)
    assert model["card"]["learned_from"]["dataset"] is None
    file = researcher.get(f"{MODELS}/{run.pk}/file")
    assert published_load("network_linear", file.content).classes == len(run.classes)
    assert [each["id"] for each in researcher.get(MODELS).json()["results"]] == [str(run.pk)]


def test_the_choices_of_each_method_and_variant_are_listed_with_valid_values(client: Client, db: None) -> None:
    methods = {each["name"]: each for each in client("researcher").get("/api/v1/methods").json()}
    assert methods.keys() == {"neighbours", "pate", "sgd", "counts", "synthesis"}
    variants = {each["name"]: each for each in methods["sgd"]["variants"]}
    assert [*variants][:3] == ["individual", "sample", "scale"]
    assert {"network", "expected"} <= {field["name"] for field in variants["scale"]["choices"]}
    assert [each["needs_public_points"] for each in (variants["individual"], variants["scale"])] == [False, False]
    assert methods["sgd"]["choices"] == variants["individual"]["choices"]
    assert [each["name"] for each in methods["neighbours"]["variants"]] == [""]
    fields = {field["name"]: field for field in methods["neighbours"]["choices"]}
    defaults = {name: field["default"] for name, field in fields.items()}
    assert NeighbourChoices.from_json(defaults) == NeighbourChoices.from_json({})
    assert (fields["rounds"]["minimum"], fields["rounds"]["maximum"]) == (1, 2)
    for choice in fields["kernel"]["choices"]:
        assert NeighbourChoices.from_json({"kernel": choice}).kernel == choice
