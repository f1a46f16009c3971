"""Runs of gradient steps over samples, through the API: propose, plan, follow, costs, model."""

from typing import Any

import pytest

from consent.models import Study
from learning.published import published_load
from tests.ipate_web.api.conftest import HEAD_COUNTS, Client
from tests.ipate_web.api.test_runs import RUNS, assert_refused
from tests.ipate_web.api.test_steps import MODELS, proposal
from tests.training.asking import SAMPLED_RUN, run_ask
from tests.training.runs import run_start
from training.models import Run

pytestmark = pytest.mark.slow

ALL = {"steps": 6, "expected": 1e6}


def over_samples(of: Study, **fields: Any) -> dict[str, Any]:
    return proposal(of, **{"variant": "scale", "choices": ALL, **fields})


@pytest.fixture
def learned(study: Study) -> Run:
    run = run_ask(run_start(study, **SAMPLED_RUN | {"public_dataset": None}, share=0.5, title="Learned"))
    assert run.status == Run.Status.FINISHED, run.message
    return run


def test_public_points_and_a_student_may_be_left_out(study: Study, client: Client) -> None:
    body = over_samples(study)
    del body["public_dataset"], body["student_learner"]
    answer = client("researcher").post(RUNS, body, format="json")
    assert answer.status_code == 201, answer.content
    run = answer.json()
    assert (run["variant"], run["public_dataset"], run["student_learner"], run["batch_size"]) == ("scale", None, "", 50)
    assert (run["choices"]["network"], run["choices"]["clip_norm"]) == ("linear", None)
    assert run["progress"]["stages"] == [{"stage": "asking", "share": 0}]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"choices": {"expected": 0}}, "choices.expected", "expected is 0"),
        ({"choices": {"rounds": 2}}, "choices", "There is no choice rounds"),
        ({"variant": "non_private"}, "variant", "rehearsal"),
        (
            {"variant": "individual", "choices": {"rounds": 2}, "public_dataset": None},
            "choices.rounds",
            "needs a student",
        ),
        ({"teachers": 20}, "teachers", "Send it within “choices”"),
        ({"choices": {"teachers": 20}}, "choices", "There is no choice teachers"),
    ],
)
def test_the_answer_names_the_wrong_field(study: Study, client: Client, fields: Any, field: str, words: str) -> None:
    assert_refused(client, over_samples(study, **fields), field, words)


def test_a_plan_says_what_everybody_is_charged_before_the_first_step(study: Study, client: Client) -> None:
    plan = client("researcher").post(f"{RUNS}/plan", over_samples(study, share=0.5), format="json").json()
    people = sum(HEAD_COUNTS.values())
    (planned,) = plan["rounds"]
    (phase,) = planned["plan"]["phases"]
    assert (planned["plan"]["steps"], planned["plan"]["expected"], planned["until"]) == (6, people, 1)
    assert (phase["rates"], phase["expected"]) == ([1.0] * len(plan["promises"]), people)
    for charge, budget in zip(planned["plan"]["charges"], plan["budgets"], strict=True):
        assert 0.99 * budget["allowed"] < charge <= budget["allowed"]
    assert planned["plan"]["slack"] == pytest.approx(study.delta / 1000)
    assert any("before its first step" in note for note in plan["notes"])
    assert plan["forecasts"] == [] and not Run.objects.exists()


def test_the_whole_cost_comes_first(learned: Run, client: Client) -> None:
    costs = client("researcher").get(f"{RUNS}/{learned.pk}/costs").json()
    for group in costs["groups"]:
        assert 0.99 * group["allowed"] < group["spent"] <= group["allowed"]
    assert costs["history"]["queries"] == [0, 2, 4, 6]
    for shares in costs["history"]["shares"].values():
        assert len(set(shares)) == 1


def test_the_network_can_be_fetched_and_asked(learned: Run, client: Client) -> None:
    researcher = client("researcher")
    model = researcher.get(f"{MODELS}/{learned.pk}").json()
    assert model["learner"] == "network_linear"
    assert model["schema"]["classes"] == learned.classes
    assert model["card"]["learned_from"]["dataset"] is None
    file = researcher.get(f"{MODELS}/{learned.pk}/file")
    assert file.headers["Content-Disposition"].rpartition(".")[2].strip('"') == "safetensors"
    assert published_load("network_linear", file.content).classes == len(learned.classes)
    assert [each["id"] for each in researcher.get(MODELS).json()["results"]] == [str(learned.pk)]
    assert researcher.get(f"{RUNS}/{learned.pk}/labels").json()["results"] == []


def test_the_variants_of_each_method_are_listed_with_what_they_take(study: Study, client: Client) -> None:
    methods = {each["name"]: each for each in client("researcher").get("/api/v1/methods").json()}
    variants = {each["name"]: each for each in methods["sgd"]["variants"]}
    assert [*variants][:3] == ["individual", "sample", "scale"]
    assert {"network", "expected"} <= {field["name"] for field in variants["scale"]["choices"]}
    assert [each["needs_public_points"] for each in (variants["individual"], variants["scale"])] == [False, False]
    assert methods["sgd"]["choices"] == variants["individual"]["choices"]
    assert [each["name"] for each in methods["neighbours"]["variants"]] == [""]
