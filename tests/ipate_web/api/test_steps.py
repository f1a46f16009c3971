"""Runs of private gradient steps, through the API: propose, plan, follow, costs, model."""

from typing import Any

import pytest

from accounting.models import Release
from consent.models import Study
from learning.published import published_load
from tests.ipate_web.api.conftest import HEAD_COUNTS, Client
from tests.ipate_web.api.test_everybody import proposal as everybody
from tests.ipate_web.api.test_runs import RUNS, assert_refused
from tests.training.asking import STEPS_RUN, run_ask
from tests.training.runs import run_draft, run_start
from training.models import Run

pytestmark = pytest.mark.slow

MODELS = "/api/v1/models"


def proposal(of: Study, **fields: Any) -> dict[str, Any]:
    return everybody(of, title="Steps", method="sgd", **fields)


@pytest.fixture
def learned(study: Study) -> Run:
    body = {"steps": 6, "sigma": 20.0, "publish": "model"}
    run = run_ask(run_start(study, **STEPS_RUN | {"choices": body}, share=0.5, title="Learned"))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_nothing_of_teachers_has_to_be_given(study: Study, client: Client) -> None:
    answer = client("researcher").post(RUNS, proposal(study, choices={"steps": 9}), format="json")
    assert answer.status_code == 201, answer.content
    run = answer.json()
    assert (run["method"], run["status"], run["variant"], run["batch_size"]) == ("sgd", "draft", "individual", 10)
    assert (run["choices"]["steps"], run["choices"]["sigma"]) == (9, None), "what it says nothing of is told"
    assert run["progress"]["stages"] == [{"stage": "asking", "share": 0}]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"choices": {"steps": 0}}, "choices.steps", "steps is 0"),
        ({"choices": {"teachers": 9}}, "choices", "There is no choice teachers"),
        ({"choices": {"representation": "wavelets"}}, "choices.representation", "for images"),
        ({"teachers": 20}, "teachers", "Send it within “choices”"),
        ({"wanted_labels": 3}, "wanted_labels", "Nobody is asked for labels"),
    ],
)
def test_the_answer_names_the_wrong_field(study: Study, client: Client, fields: Any, field: str, words: str) -> None:
    assert_refused(client, proposal(study, **fields), field, words)


def test_a_plan_says_which_steps_are_taken(study: Study, client: Client) -> None:
    body = proposal(study, choices={"steps": 9, "sigma": 20, "clip_norm": 0.5}, share=0.5)
    plan = client("researcher").post(f"{RUNS}/plan", body, format="json").json()
    assert {promise["level"]: promise["holders"] for promise in plan["promises"]} == HEAD_COUNTS
    (planned,) = plan["rounds"]
    fields = {name: planned["plan"][name] for name in ("steps", "sigma", "clip_norm", "step_size")}
    assert (fields, planned["until"]) == ({"steps": 9, "sigma": 20, "clip_norm": 0.5, "step_size": 1}, 1)
    assert [each["allowed"] for each in plan["budgets"]] == pytest.approx([each["cap"] / 2 for each in plan["budgets"]])
    (expected,) = plan["forecasts"]
    assert expected["of"] == "model" and expected["judged"] > 0
    assert 0 <= expected["low"] <= expected["value"] <= expected["high"] <= 1 and 0 < expected["noiseless"] <= 1
    assert not {"queries", "radius_share"} & planned.keys(), "those are of other methods"
    assert not Run.objects.exists()


def test_a_run_says_how_many_steps_it_has_taken(learned: Run, client: Client) -> None:
    document = client("researcher").get(f"{RUNS}/{learned.pk}").json()
    assert (document["status"], document["stop_reason"], document["labels"]) == ("finished", "steps", 0)
    stages = [{"stage": "asking", "share": 1.0}]
    assert document["progress"] == {"stages": stages, "queries": 6, "points": 6, "labels": 0, "student": None}
    assert client("researcher").get(f"{RUNS}/{learned.pk}/labels").json()["results"] == []


def test_costs_are_what_anybody_was_charged_at_most(learned: Run, client: Client) -> None:
    costs = client("researcher").get(f"{RUNS}/{learned.pk}/costs").json()
    largest = max(group["cap"] for group in costs["groups"])
    for group in costs["groups"]:
        assert group["spent"] == pytest.approx(6 / 20**2 * group["cap"] / largest)
    assert (costs["history"]["queries"], costs["history"]["labels"]) == ([2, 4, 6], [0, 0, 0])


def test_the_model_of_the_steps_can_be_fetched_and_asked(learned: Run, study: Study, client: Client) -> None:
    researcher = client("researcher")
    model = researcher.get(f"{MODELS}/{learned.pk}").json()
    assert (model["learner"], model["labels"]) == ("linear", 0)
    file = researcher.get(f"{MODELS}/{learned.pk}/file")
    assert file.headers["Content-Disposition"].rpartition(".")[2].strip('"') == "safetensors"
    assert published_load("linear", file.content).classes == len(learned.public_dataset.classes)
    result = Release.objects.get(run=learned.pk, kind=Release.Kind.DOWNLOAD)
    assert (result.content["what"], result.recorded_by.username) == ("model", "researcher")


def test_runs_are_filtered_by_method(learned: Run, study: Study, client: Client) -> None:
    run_draft(study, title="Teachers")
    found = client("researcher").get(RUNS, {"method": "sgd"}).json()["results"]
    assert [run["title"] for run in found] == ["Learned"]


def test_what_a_proposal_may_say_is_listed(study: Study, client: Client) -> None:
    methods = {each["name"]: each["choices"] for each in client("researcher").get("/api/v1/methods").json()}
    fields = {field["name"]: (field["type"], field["minimum"], field["maximum"]) for field in methods["sgd"]}
    assert fields["steps"][1] == 1 and fields["sigma"][0] == "number"
