"""Plans of runs, which depend only on public information, and the same forecast on pages, API and commands."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from django.core.management import call_command
from django.urls import reverse

from accounting.caps import caps_of, epsilon_of
from accounting.models import HeadCount
from accounting.shares import share_free, suggested_share
from common.artifacts import arrays_load
from common.noise import SimulationNoise
from common.sentences import Sentence
from consent.models import Study
from ipate_web.staff.charts import plan_charts
from learning.forecasts import judged_forecast
from learning.mechanisms.pate.aggregators import AGGREGATORS
from learning.mechanisms.protocol import PlanError
from learning.outcomes.labels import AREA
from tests import factories
from tests.factories import policy_approve, study_create, user_create
from tests.pages import as_
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, SAMPLED_RUN, STEPS_RUN
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    consents_give,
    head_counts_state,
    rehearsal_with_table,
    run_approve,
    run_draft,
    run_finish,
    run_planned,
    run_prepared,
    run_start,
    study_with_table,
    table_rows,
)
from training.comparison import forecast_outcomes, outcomes_of
from training.methods import method_of
from training.methods.pate_plan import teachers_plan
from training.models import Dataset, Run
from training.selectors import run_groups
from training.services import forecasts
from training.services.datasets import dataset_import
from training.services.drawings import head_counts_draw, head_counts_enter
from training.services.forecasts import forecast
from training.services.runs import run_cancel

pytestmark = pytest.mark.django_db


def test_teachers_follow_head_counts_weights_the_caps_and_a_share_is_a_part_of_every_cap() -> None:
    study = study_with_table(levels="HAALLL")
    planned = teachers_plan(run_draft(study, **TABLE_RUN), 0.25)
    found = [(promise.level, promise.holders, promise.epsilon, promise.group) for promise in planned.promises]
    assert found == [("HIGH", 5, 1.0, 0), ("AVERAGE", 10, 2.0, 1), ("LOW", 15, 3.0, 2)]
    assert [group.teachers for group in planned.plan.groups] == [1, 2, 3]
    weights, caps = planned.plan.teacher_weights(), caps_of([1.0, 2.0, 3.0], study.delta)
    assert weights.sum() == pytest.approx(6, abs=1e-3)
    np.testing.assert_allclose(weights[[1, 3]] / weights[0], np.sqrt(caps[1:] / caps[0]), rtol=5e-4)  # rounded
    for group, budget, cap in zip(planned.plan.groups, planned.budgets, caps, strict=True):
        assert budget.cap == cap
        assert budget.allowed == pytest.approx(0.25 * cap)
        assert budget.label == pytest.approx(2 * group.weight**2 / 10.0**2)
        assert planned.answers <= budget.allowed / budget.label < planned.answers + 1
    assert run_finish(run_start(study, share=0.25, **TABLE_RUN)).labels == planned.answers


def test_a_plan_names_what_is_missing() -> None:
    study = study_create("unready")
    for kind, rows in (("private", table_rows(9, ["a", "b", "c"] * 3)), ("public", table_rows(3))):
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
    run = run_draft(study, **TABLE_RUN | {"teachers": 2})
    with pytest.raises(PlanError, match=r"no approved ε policy\. Ask its ethics committee"):
        teachers_plan(run)
    policy_approve(study)
    with pytest.raises(PlanError, match="no head counts yet"):
        teachers_plan(run)
    counts = {"HIGH": 0, "AVERAGE": 0, "LOW": 1}
    head_counts_enter(study=study, acting_user=user_create("olga"), counts=counts)
    with pytest.raises(PlanError, match="1 holders are too few for 2 teachers"):
        teachers_plan(run)


@pytest.mark.parametrize("fields", [TABLE_RUN, ASKING_RUN, STEPS_RUN, SAMPLED_RUN])
def test_no_run_is_planned_where_delta_is_above_one_in_the_people_counted(fields: dict[str, Any]) -> None:
    study = study_with_table(delta=1e-4)
    run = run_draft(study, **fields)
    acts = {"study": study, "acting_user": user_create("olga")}
    head_counts_enter(**acts, counts={"HIGH": 5_000, "AVERAGE": 5_000, "LOW": 1})
    with pytest.raises(PlanError, match=r"about 10001 people take part, so δ may be at most 0.0001."):
        method_of(run).plan(run, 0.5)
    with pytest.raises(PlanError, match="new study with a smaller δ"):
        run_approve(run=run, acting_user=user_create("olga"), share=0.5)
    head_counts_enter(**acts, counts={"HIGH": 5_000, "AVERAGE": 5_000, "LOW": 0})
    assert method_of(run).plan(run, 0.5)


def test_only_holders_who_consented_to_a_counted_promise_take_part() -> None:
    study = study_with_table(levels="H-A-")
    run = run_prepared(run_start(study, share=0.5, **TABLE_RUN))
    consented = {event.holder_id for event in study.consent_events.all()}
    assert set(arrays_load(run.assignment)["holder"].tolist()) == consented
    assert len(consented) == 15
    run_cancel(run=run, acting_user=None)
    policy_approve(study, 1.5, 2.5, 3.5)
    consents_give(study, "LLLL")
    later = run_prepared(run_start(study, share=0.5, **TABLE_RUN))
    assert len(arrays_load(later.assignment)["holder"]) == 0, "nobody has a promise that was counted"


def test_small_groups_are_merged_or_left_out_as_chosen_and_warned_of(study: Study) -> None:
    small = study_with_table("small", levels="HHHHHAAAAL", holders=20)  # 2 LOW holders; a teacher has 20 / 4 = 5
    merged = teachers_plan(run_draft(small, **TABLE_RUN | {"teachers": 4}))
    assert [group.merged for group in merged.plan.groups] == [(), ("LOW",)]
    assert [promise.group for promise in merged.promises] == [0, 1, 1]
    assert any("too few holders for a teacher" in note and "merged into AVERAGE" in note for note in merged.notes)
    without = teachers_plan(run_draft(small, **TABLE_RUN | {"teachers": 4, "small_groups": "leave_out"}))
    assert without.plan.left_out == ("LOW",) and any("left out" in note for note in without.notes)
    assert [(promise.level, promise.group) for promise in without.promises][-1] == ("LOW", -1)
    run = run_draft(study, **TABLE_RUN)
    assert not [note for note in forecast(run).notes if "hidden among only a few" in note or "taken with noise" in note]
    HeadCount.objects.filter(study=study, level="LOW").update(count=4)
    HeadCount.objects.filter(study=study, level="HIGH").update(count=12, sigma=8.0)
    notes = "\n".join(forecast(run).notes)
    assert "Only 4 holders have the promise LOW" in notes
    assert "The head count of HIGH (12) was taken with noise of standard deviation 8" in notes
    assert "AVERAGE, " not in notes


def test_head_counts_count_every_promise_that_can_have_been_given_if_drawn_and_those_in_force_if_entered() -> None:
    study = study_with_table()
    policy_approve(study, high=1.5, average=2.5, low=3.5)
    consents_give(study, "H--")
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(2))
    planned = teachers_plan(run_draft(study, **TABLE_RUN))
    assert [promise.epsilon for promise in planned.promises] == [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    assert [promise.name for promise in planned.promises][:2] == ["HIGH", "HIGH 2"]
    head_counts_state(study)
    draft = run_draft(study, **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 1.0}})
    planned = teachers_plan(draft)
    assert [promise.epsilon for promise in planned.promises] == [1.5, 2.5, 3.5]
    assert planned.answers == 0 and any("no query can be answered" in note for note in planned.notes)
    assert any(
        "The run may use everything that is left of" in note for note in teachers_plan(draft, share_free(study)).notes
    )
    assert not any("The run may use everything that is left of" in note for note in teachers_plan(draft, 0.5).notes)
    run_start(study, share=share_free(study), **TABLE_RUN)
    with pytest.raises(PlanError, match="cap is fully used or reserved"):
        teachers_plan(draft)


@pytest.fixture
@built_once
def study() -> Study:
    return factories.members_add(study_with_table(), otto="operator", ada="operator")


def planned(run: Run, **options: Any) -> dict[str, Any]:
    """Return the output of the command."""
    out = StringIO()
    call_command("run_plan", str(run.pk), "--json", stdout=out, **options)
    return json.loads(out.getvalue())


def test_page_api_and_command_tell_the_same_and_a_share_that_nobody_names_is_not_all(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN)
    expected = forecast(run)
    assert expected.share == 0.25
    assert any("because the model card shows it" in note for note in expected.notes)
    record = planned(run)
    assert record["notes"] == [str(note) for note in expected.notes]
    answer = as_("ada").get(f"/api/v1/runs/{run.pk}/plan").json()
    assert answer["notes"] == record["notes"] and Run.objects.get(pk=run.pk).status == "draft"
    most = max(np.bincount(arrays_load(run.test_dataset.artifact, "y")["y"])) / run.test_dataset.rows
    assert [each["majority"] for each in answer["forecasts"]] == [pytest.approx(most, abs=0.005)]
    assert [budget["allowed"] for budget in answer["budgets"]] == [each["allowed"] for each in record["budgets"]]
    proposal = {"study": study.slug, "title": "The same", "method": "pate", "choices": run.choices}
    proposal |= {f"{each.kind}_dataset": each.pk for each in Dataset.objects.filter(study=study)}
    proposal["student_learner"] = run.student_learner
    answer = as_("ada").post("/api/v1/runs/plan", proposal, "application/json").json()
    assert (answer["notes"], answer["share"]) == (record["notes"], 0.25)
    page = as_("ada").get(f"/studies/table/runs/{run.pk}/approve/").text
    for note in record["notes"]:
        assert note.replace("'", "&#x27;").partition(":")[0] in page
    answer = as_("ada").post(f"/api/v1/runs/{run.pk}/approve", {}, "application/json").json()
    assert (answer["status"], answer["share"]) == ("planning", 0.25)
    assert as_("ada").get(f"/api/v1/runs/{run.pk}/plan").status_code == 409
    run_planned(Run.objects.get(pk=run.pk))
    answer = as_("ada").get(f"/api/v1/runs/{run.pk}/plan?share=0.5").json()
    assert set(answer["notes"]) < set(record["notes"]) and answer["share"] == 0.25, "the stored plan"
    assert share_free(study) == pytest.approx(0.75)
    run_start(study, share=0.7, **TABLE_RUN)
    assert suggested_share(study) == pytest.approx(0.05), "the free share, if that is less"
    assert suggested_share(rehearsal_with_table()) == 1.0


@pytest.mark.parametrize(
    ("of", "classes", "says"), [("model", 2, 1), ("labels", 2, 1), ("model", 3, 0), ("table", 2, 0)]
)
def test_a_plan_says_where_no_area_is_forecast(of: str, classes: int, says: int) -> None:
    made = judged_forecast(of, 0.9, 0.95, judged=100, surrogates=100, rests_on=Sentence("Points."))
    run, plan = Mock(classes=["a", "b", "c"][:classes]), Mock(forecasts=(made,))
    assert len(list(forecasts._area_notes(run, plan))) == says
    plan.forecasts = (made, replace(made, of="model", measure=AREA))
    assert not list(forecasts._area_notes(run, plan))


@pytest.mark.parametrize("classes", [2, 100])
@pytest.mark.parametrize("teachers", [20, 250])
def test_suggested_values_warn_of_nothing_and_a_check_that_cannot_tell_agreement_does(classes, teachers) -> None:
    for aggregator in AGGREGATORS.values():
        values = {each.name: each.suggested(teachers, classes) for each in aggregator.fields()}
        if not aggregator.asks_student:  # its thresholds have another meaning
            assert aggregator(**values).warnings(teachers, classes) == []
    for sigma, threshold, words in (
        (200.0, 75.0, "σ_T = 200 is too large for 100 votes across 2 classes"),
        (20.0, 50.0, "The check costs budget but rejects hardly any queries"),
        (20.0, 175.0, "so nearly every query will be rejected"),
    ):
        vote = AGGREGATORS["confident_gnmax"](sigma=20.0, sigma_threshold=sigma, threshold=threshold)  # type: ignore[call-arg]
        assert any(words in warning for warning in vote.warnings(100, 2))


@pytest.mark.exhaustive
def test_what_a_proposal_leaves_open_the_plan_chooses_by_forecast() -> None:
    """For labels and for counts, the plan chooses the largest number of teachers whose forecast is almost the best."""
    study = study_with_table(holders=90, points=60)
    run = run_draft(study, **TABLE_RUN | {"teachers": None, "aggregator": None, "learner": "logistic_regression"})
    plan = teachers_plan(run, 0.9)
    assert {each.releases for each in plan.compared} == {"counts", "labels"}
    assert len({each.teachers for each in plan.compared}) > 1
    best = max(each.right for each in plan.compared)
    chosen = plan.plan.teachers, plan.plan.aggregator.deviation
    (taken,) = [each for each in plan.compared if (each.teachers, each.sigma) == chosen]
    assert taken.right >= best - 0.02 and plan.forecasts[-1] == taken.forecast
    assert all(each.right < best - 0.02 for each in plan.compared if each.teachers > taken.teachers)
    for each in plan.compared:  # counts get little more noise than is needed to ask about all points
        assert each.releases == "labels" or (1 / each.charge * 1.001 > 59 and each.queries == 60)
    document = planned(run, share=0.9)
    assert [each["right"] for each in document["compared"]] == [each.right for each in plan.compared]
    assert any("The plan uses" in note for note in document["notes"])
    page = as_("olga").get(reverse("staff:run_approve", args=[study.slug, run.pk])).text
    assert "Options compared by the plan" in page
    assert len(method_of(run).tiles(run)) == 3, "pages show it, too, although its choices name no vote"
    named = teachers_plan(run_draft(study, **TABLE_RUN | {"title": "Named", "teachers": 6, "aggregator": None}), 0.9)
    assert 6 in {each.teachers for each in named.compared} and named.plan.teachers == 6
    for number, each in ((plan.plan.teachers, plan), (plan.plan.teachers, named)):
        assert [other.teachers for other in each.compared if other.is_suggested] == [number], "for any number"
    (right, _), cost = plan_charts(plan)[0], plan_charts(named)[1][1]
    assert right == "Points for which the student is expected to learn the correct answer"
    assert [series.name for series in cost.series] == ["noisy counts", "labels", "this plan", "suggested"]
    assert cost.rows[cost.x.index(6)][1][2] == pytest.approx(cost.rows[cost.x.index(6)][1][0]), "it has counts, too"
    assert teachers_plan(run_draft(study, **TABLE_RUN | {"title": "All"}), 0.9).compared == ()


@pytest.mark.parametrize(
    ("recipe", "of"),
    [(TABLE_RUN, ["labels"]), (ASKING_RUN, ["labels"]), (STEPS_RUN, ["model"])],
    ids=["teachers", "votes", "steps"],
)
def test_every_method_forecasts_in_one_form_and_is_held_against_what_came(recipe, of, settings) -> None:
    run = run_start(study_with_table(points=30), share=0.5, **recipe)
    kept = run.plan["forecasts"]
    assert [each["of"] for each in kept] == of and all(each["judged"] > 0 for each in kept)
    waiting = forecast_outcomes(run)
    assert [(each.came, each.inside) for each in waiting] == [(None, None)] * len(of)
    run = run_finish(run)
    assert run.status == Run.Status.FINISHED, run.message
    version = run.students.get()
    measured = {"labels": version.label_accuracy, "model": version.card["evaluation"]["accuracy"]}
    for each in forecast_outcomes(run):
        assert each.came == measured[each.forecast.of] is not None
        assert each.inside == (each.forecast.low - 0.005 <= each.came <= each.forecast.high + 0.005)
    assert version.card["forecasts"] == [each.to_json() for each in forecast_outcomes(run)]
    page = as_("olga").get(reverse("staff:run_tab", args=[run.study.slug, run.pk, "card"])).text
    assert "Forecast and result" in page and ("in the interval" in page or "outside the interval" in page)
    settings.LEAST_TEST_POINTS = 100
    document = as_("olga").get(reverse("api:run", args=[run.pk])).json()
    assert [(each["of"], each["came"], each["inside"]) for each in document["forecasts"]] == [
        (each.forecast.of, each.came, each.inside) for each in forecast_outcomes(run)
    ]
    _is_one_outlook(run, recipe, document)


def _is_one_outlook(run: Run, recipe: dict[str, Any], document: dict[str, Any]) -> None:
    """Check that the plan, the finished run and its page agree on what the run achieves and costs."""
    expected = document["outlook"]
    came, kept = expected["result"], {name: value for name, value in expected.items() if name != "result"}
    head = document["forecasts"][-1]
    assert (came["value"], came["inside"]) == (head["came"], head["inside"])
    assert kept["forecast"] == {name: value for name, value in head.items() if name not in ("came", "inside")}
    assert came["amount"] == (run.labels or run.position) <= kept["amount"]
    assert kept["unit"] == ("labels" if run.labels else "steps")
    for cost, group in zip(kept["costs"], run_groups(run), strict=True):
        assert cost["used"] == epsilon_of(group.spent, run.study.delta) <= cost["most"] < cost["promised"]
    assert any("100 are needed to judge" in doubt for doubt in kept["doubts"])
    draft = run_draft(run.study, **{**recipe, "title": "Again"})
    planned = as_("olga").get(reverse("api:run-planned", args=[draft.pk]), {"share": 0.5}).json()["outlook"]
    costs = [{**each, "used": None} for each in kept["costs"]]
    assert planned == {**expected, "result": None, "costs": costs, "minutes": 1}
    page = as_("olga").get(reverse("staff:run", args=[run.study.slug, run.pk])).text
    before = as_("olga").post(
        reverse("staff:run_approve", args=[run.study.slug, draft.pk]), {"look": 1, "per_cent": 50}
    )
    for text in ("Expected and actual results", f"{head['majority']:.1%}".replace("%", " %")):
        assert text in page
    assert "What you will get" in before.text and "Why the run may not produce anything useful" in before.text


def test_the_forecast_of_steps_is_held_against_the_model_that_they_led_to(study: Study) -> None:
    run = run_start(study, share=0.5, **STEPS_RUN)
    fields = {"learned_from": {"label_accuracy": None, "labels": 12}, "evaluation": {"accuracy": 0.1, "points": 21}}
    (alone,) = outcomes_of(run, fields)
    candidates = [{"learner": "shares", "accuracy": 0.1}, {"learner": "linear", "accuracy": 0.9}]
    (beside,) = outcomes_of(run, fields | {"candidates": candidates})
    assert (alone.came, beside.came) == (0.1, 0.9)
    area = {"of": "model", "measure": "Area under the ROC curve", "value": 0.8, "low": 0.7, "high": 0.9}
    run.plan["forecasts"] = [run.plan["forecasts"][0] | area | {"majority": 0.5}]
    card = fields | {"classes": ["no", "yes"]}
    found = ({"evaluation": {"area": 0.95, "points": 21}}, {"candidates": [{"learner": "linear", "area": 0.7}]})
    assert [outcomes_of(run, card | each)[0].to_json()["inside"] for each in found] == [False, True]
