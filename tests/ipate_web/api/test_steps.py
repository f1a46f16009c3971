"""Runs of private gradient steps, through the API: propose, plan, follow, costs, model."""

from typing import Any

import pytest

from accounting.models import Release
from consent.models import Study
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.published import published_load
from tests.ipate_web.api.conftest import HEAD_COUNTS, Client
from tests.ipate_web.api.test_everybody import proposal as everybody
from tests.ipate_web.api.test_runs import RUNS
from tests.training.asking import SAMPLED_RUN, STEPS_RUN, run_ask
from tests.training.runs import run_start
from training.models import Run

MODELS = "/api/v1/models"


def proposal(of: Study, **fields: Any) -> dict[str, Any]:
    return everybody(of, title="Steps", method="sgd", **fields)


@pytest.fixture
def learned(study: Study) -> Run:
    body = {"steps": 6, "sigma": 20.0, "publish": "model"}
    return finished(study, STEPS_RUN | {"choices": body})


@pytest.fixture
def learned_over_samples(study: Study) -> Run:
    return finished(study, SAMPLED_RUN | {"public_dataset": None})


def finished(study: Study, recipe: dict[str, Any]) -> Run:
    run = run_ask(run_start(study, **recipe, share=0.5, title="Learned"))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_a_proposal_needs_nothing_of_teachers_nor_of_points(study: Study, client: Client) -> None:
    answer = client("researcher").post(RUNS, proposal(study, choices={"steps": 9}), format="json")
    assert answer.status_code == 201, answer.content
    run = answer.json()
    assert (run["method"], run["status"], run["variant"], run["batch_size"]) == ("sgd", "draft", "individual", 10)
    assert (run["choices"]["steps"], run["choices"]["sigma"]) == (9, None), "what it says nothing of is told"
    assert run["progress"]["stages"] == [{"stage": "asking", "share": 0}]

    body = proposal(study, variant="scale", choices={"steps": 6, "expected": 1e6})
    del body["public_dataset"], body["student_learner"]
    answer = client("researcher").post(RUNS, body, format="json")
    assert answer.status_code == 201, answer.content
    run = answer.json()
    assert (run["variant"], run["public_dataset"], run["student_learner"], run["batch_size"]) == ("scale", None, "", 50)
    assert (run["choices"]["network"], run["choices"]["clip_norm"]) == ("linear", None)


def test_a_finished_run_tells_its_steps_its_costs_and_its_model(learned: Run, client: Client) -> None:
    researcher = client("researcher")
    document = researcher.get(f"{RUNS}/{learned.pk}").json()
    assert (document["status"], document["stop_reason"], document["labels"]) == ("finished", "steps", 0)
    stages = [{"stage": "asking", "share": 1.0}]
    assert document["progress"] == {"stages": stages, "queries": 6, "points": 6, "labels": 0, "student": None}
    assert researcher.get(f"{RUNS}/{learned.pk}/labels").json()["results"] == []
    assert researcher.get(RUNS, {"method": "sgd"}).json()["count"] == 1

    costs = researcher.get(f"{RUNS}/{learned.pk}/costs").json()
    largest = max(group["cap"] for group in costs["groups"])
    for group in costs["groups"]:
        assert group["spent"] == pytest.approx(6 / 20**2 * group["cap"] / largest)
    assert (costs["history"]["queries"], costs["history"]["labels"]) == ([2, 4, 6], [0, 0, 0])

    model = researcher.get(f"{MODELS}/{learned.pk}").json()
    assert (model["learner"], model["labels"]) == ("linear", 0)
    file = researcher.get(f"{MODELS}/{learned.pk}/file")
    assert file.headers["Content-Disposition"].rpartition(".")[2].strip('"') == "safetensors"
    assert published_load("linear", file.content).classes == len(learned.public_dataset.classes)
    result = Release.objects.get(run=learned.pk, kind=Release.Kind.DOWNLOAD, content__what="model")
    assert result.recorded_by.username == "researcher"


def test_a_plan_over_samples_says_what_everybody_is_charged_before_the_first_step(study: Study, client: Client) -> None:
    body = proposal(study, variant="scale", choices={"steps": 6, "expected": 1e6}, share=0.5)
    plan = client("researcher").post(f"{RUNS}/plan", body, format="json").json()
    people = sum(HEAD_COUNTS.values())
    (planned,) = plan["rounds"]
    (phase,) = planned["plan"]["phases"]
    assert (planned["plan"]["steps"], planned["plan"]["expected"], planned["until"]) == (6, people, 1)
    assert (phase["rates"], phase["expected"]) == ([1.0] * len(plan["promises"]), people)
    for charge, budget in zip(planned["plan"]["charges"], plan["budgets"], strict=True):
        assert 0.99 * budget["allowed"] < charge <= budget["allowed"]
    assert planned["plan"]["slack"] == pytest.approx(study.delta / 1000)
    assert any("before its first step" in note for note in plan["notes"])
    assert plan["forecasts"] == [] and not {"queries", "radius_share"} & planned.keys(), "those are of other methods"
    assert not Run.objects.exists()


def test_a_run_over_samples_costs_everything_first_and_leads_to_a_network(
    learned_over_samples: Run, client: Client
) -> None:
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
