"""Runs in which every holder votes, or of private gradient steps, through the API: propose, plan, follow, costs."""

import csv
import io
from typing import Any

import numpy as np
import pytest

from accounting.models import Release
from consent.models import Study
from learning.mechanisms.neighbours.rounds import NeighbourChoices
from learning.published import published_load
from learning.representations import representation_create
from tests.ipate_web.api.conftest import HEAD_COUNTS, POINTS, Client
from tests.ipate_web.api.test_runs import RUNS, assert_refused
from tests.training.asking import SAMPLED_RUN, STEPS_RUN, run_ask
from tests.training.runs import run_start
from training.models import Dataset, Query, Run
from training.services.runs import suggested_method

MODELS = "/api/v1/models"


def proposal(of: Study, **fields: Any) -> dict[str, Any]:
    datasets = {f"{dataset.kind}_dataset": dataset.pk for dataset in Dataset.objects.filter(study=of)}
    return {
        **{"study": of.slug, "title": "Everybody", "method": "neighbours", "student_learner": "nearest_neighbour"},
        **datasets,
        **fields,
    }


def test_nothing_of_teachers_has_to_be_given(study: Study, client: Client) -> None:
    assert_refused(client, [proposal(study, choices="gently")], [("choices", "dictionary")])
    answer = client("researcher").post(RUNS, proposal(study, choices={"rounds": 2}), format="json")
    assert answer.status_code == 201, answer.content
    run = answer.json()
    assert (run["method"], run["status"], run["variant"]) == ("neighbours", "draft", "")
    assert "teachers" not in run["choices"]
    assert (run["choices"]["rounds"], run["choices"]["sigma"]) == (2, None), "what it says nothing of is told"
    assert run["progress"]["stages"] == [{"stage": "asking", "share": 0}]


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
    assert any("Too few people" in note for note in notes)
    assert not Run.objects.exists()


def test_a_finished_run_tells_its_progress_its_counts_and_its_costs(asking_run: Run, client: Client) -> None:
    researcher = client("researcher")
    document = researcher.get(f"{RUNS}/{asking_run.pk}").json()
    assert (document["status"], document["labels"], document["rejected"]) == ("finished", POINTS, 0)
    assert document["progress"] == {
        "stages": [{"stage": "asking", "share": 1.0}],
        **{"queries": POINTS, "points": POINTS, "labels": POINTS},
        "student": None,
    }
    assert [promise["level"] for promise in document["promises"]] == ["HIGH", "AVERAGE", "LOW"]
    found = {name: researcher.get(RUNS, {"method": name}).json()["count"] for name in ("neighbours", "pate")}
    assert found == {"neighbours": 1, "pate": 0}

    costs = researcher.get(f"{RUNS}/{asking_run.pk}/costs").json()
    assert [group["levels"] for group in costs["groups"]] == [["HIGH"], ["AVERAGE"], ["LOW"]]
    (planned,) = asking_run.plan["rounds"]
    for group in costs["groups"]:
        assert group["spent"] == pytest.approx(min(POINTS / planned["sigma"] ** 2, group["allowed"]))
        assert group["allowed"] == pytest.approx(group["cap"] / 2)
    assert (costs["history"]["queries"], costs["history"]["labels"]) == ([20, 30], [20, 30])


def test_noisy_counts_come_with_the_labels_and_their_points(asking_run: Run, client: Client) -> None:
    researcher, address = client("researcher"), f"{RUNS}/{asking_run.pk}/labels"
    released = {query.row: query for query in Query.objects.filter(run=asking_run)}
    results = researcher.get(address, {"limit": 1000}).json()["results"]
    assert [each["row"] for each in results] == sorted(released)
    for each in results:
        assert each["counts"] == released[each["row"]].counts
        assert each["label"] == asking_run.public_dataset.classes[released[each["row"]].label]
    table = list(csv.reader(io.StringIO(researcher.get(address, {"format": "csv"}).content.decode())))
    assert table[0] == ["row", "label", "count_healthy", "count_ill"]
    assert [[int(cell) for cell in line[2:]] for line in table[1:]] == [each["counts"] for each in results]
    answer = researcher.get(address, {"format": "npz"})
    assert answer["Content-Type"] == "application/x-npz"
    with np.load(io.BytesIO(answer.content), allow_pickle=False) as arrays:
        assert set(arrays.files) == {"x", "row", "label", "reinforced", "counts", "classes"}, (
            "no labels of the points' own"
        )
        assert arrays["x"].shape == (POINTS, 3)
        assert arrays["row"].tolist() == sorted(released)
        assert arrays["classes"][arrays["label"]].tolist() == [each["label"] for each in results]
        assert arrays["counts"].tolist() == [each["counts"] for each in results]
    download = Release.objects.get(run=asking_run.pk, kind=Release.Kind.DOWNLOAD)
    assert download.content == {"what": "labels", "queries": POINTS, "labels": POINTS}
    assert download.recorded_by.username == "researcher"
    assert client("auditor").get(address, {"format": "npz"}).status_code == 403


def test_representations_are_listed_with_valid_parameters(study: Study, client: Client) -> None:
    listed = {each["name"]: each for each in client("researcher").get("/api/v1/representations").json()}
    of_images, of_all = {"wavelets", "patches", "learned"}, {"standardised", "thresholds", "evened", "whitened"}
    assert listed.keys() == of_images | of_all | {"embedding", "words", "encoder"}, "those of a first round"
    for name, each in listed.items():
        defaults = {parameter["name"]: parameter["default"] for parameter in each["parameters"]}
        assert representation_create(name, defaults).parameters() == defaults
    assert listed["wavelets"]["images"] and not listed["whitened"]["images"]
    assert "without the private data" in listed["embedding"]["statement"]


def steps(of: Study, **fields: Any) -> dict[str, Any]:
    return proposal(of, title="Steps", method="sgd", **fields)


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
    answer = client("researcher").post(RUNS, steps(study, choices={"steps": 9}), format="json")
    assert answer.status_code == 201, answer.content
    run = answer.json()
    assert (run["method"], run["status"], run["variant"], run["batch_size"]) == ("sgd", "draft", "individual", 10)
    assert (run["choices"]["steps"], run["choices"]["sigma"]) == (9, None), "what it says nothing of is told"
    assert run["progress"]["stages"] == [{"stage": "asking", "share": 0}]

    body = steps(study, variant="scale", choices={"steps": 6, "expected": 1e6})
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
    body = steps(study, variant="scale", choices={"steps": 6, "expected": 1e6}, share=0.5)
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
