"""One forecast on every way in, with warnings that know the noise of the check, two classes and small groups."""

import json
from io import StringIO
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import translation

from accounting.caps import caps_of
from accounting.models import HeadCount
from accounting.shares import share_free, suggested_share
from common.sentences import Sentence, in_words
from consent import services
from consent.models import Study
from ipate_web.staff.forms.runs import initial_for
from ipate_web.staff.templatetags.run_words import said
from learning.forecasts import Forecast
from learning.mechanisms.pate.aggregators import AGGREGATORS
from tests import factories
from tests.pages import as_
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, COUNTS_RUN, STEPS_RUN, SYNTHESIS_RUN, run_ask
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, run_finish, run_start, study_with_table
from training.forecast_outcomes import forecast_outcomes, outcomes_of
from training.models import Dataset, Run
from training.services.alternatives import Alternative, alternatives_notes
from training.services.forecasts import forecast

pytestmark = pytest.mark.django_db


@pytest.fixture
@built_once
def study() -> Study:
    study = study_with_table()
    otto = factories.user_create("otto")
    if not study.memberships.filter(user=otto).exists():
        services.membership_add(study=study, user=otto, role="operator", acting_user=None)
    ada = factories.user_create("ada")
    services.membership_add(study=study, user=ada, role="operator", acting_user=None)
    return study


def planned(run: Run, **options: Any) -> dict[str, Any]:
    """Output of the command."""
    out = StringIO()
    call_command("run_plan", str(run.pk), "--json", stdout=out, **options)
    return json.loads(out.getvalue())


@pytest.mark.slow
def test_page_api_and_command_tell_the_same(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN)
    expected = forecast(run)
    assert expected.share == 0.25
    assert any("where the public points come from" in note for note in expected.notes)
    record = planned(run)
    assert record["notes"] == [str(note) for note in expected.notes]
    answer = as_("ada").get(f"/api/v1/runs/{run.pk}/plan").json()
    run.refresh_from_db()
    assert run.status == "draft"
    assert answer["notes"] == record["notes"]
    assert [budget["allowed"] for budget in answer["budgets"]] == [each["allowed"] for each in record["budgets"]]
    proposal = {
        "study": study.slug,
        "title": "The same",
        "method": "pate",
        "choices": run.choices,
        "student_learner": run.student_learner,
        **{f"{each.kind}_dataset": each.pk for each in Dataset.objects.filter(study=study)},
    }
    answer = as_("ada").post("/api/v1/runs/plan", proposal, "application/json").json()
    assert (answer["notes"], answer["share"]) == (record["notes"], 0.25)
    page = as_("ada").get(f"/studies/table/runs/{run.pk}/approve/").text
    for note in record["notes"]:
        assert note.replace("'", "&#x27;").partition(":")[0] in page


@pytest.mark.slow
def test_a_share_that_nobody_names_is_not_all(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN)
    answer = as_("ada").post(f"/api/v1/runs/{run.pk}/approve", {}, "application/json").json()
    assert (answer["status"], answer["share"], answer["plan"]["share"]) == ("approved", 0.25, 0.25)
    assert as_("ada").get(f"/api/v1/runs/{run.pk}/plan?share=0.5").json() == answer["plan"], "the plan that it keeps"
    assert share_free(study) == pytest.approx(0.75)
    run_start(study, share=0.7, **TABLE_RUN)
    assert suggested_share(study) == pytest.approx(0.05), "what is free, where that is less"
    assert suggested_share(rehearsal_with_table()) == 1.0


def test_the_command_says_it_to_people_and_refuses_in_words(study: Study) -> None:
    run, out = run_draft(study, title="First", **TABLE_RUN), StringIO()
    call_command("run_plan", str(run.pk), "--share", "0.5", stdout=out)
    assert out.getvalue().startswith("First: teachers vote, 50 % of every cap\n")
    assert "Note: Nobody has stated" in out.getvalue()
    for arguments, words in ((["0", "--json"], "There is no run 0"), ([str(run.pk), "--share", "2"], "at most 1")):
        with pytest.raises(CommandError, match=words):
            call_command("run_plan", *arguments, stdout=StringIO())
    Run.objects.filter(pk=run.pk).update(choices=run.choices | {"teachers": 1000})
    with pytest.raises(CommandError, match="too few"):
        call_command("run_plan", str(run.pk), stdout=StringIO())


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("teachers", [20, 100, 250])
def test_suggested_values_warn_of_nothing(classes: int, teachers: int) -> None:
    for aggregator in AGGREGATORS.values():
        values = {each.name: each.suggested(teachers, classes) for each in aggregator.fields()}
        if not aggregator.asks_student:  # whose thresholds are of another kind
            assert aggregator(**values).warnings(teachers, classes) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sigma_threshold": 200.0, "threshold": 75.0}, "σ_T = 200 is large for 100 votes over 2 classes"),
        ({"sigma_threshold": 20.0, "threshold": 50.0}, "reach without agreeing"),
        ({"sigma_threshold": 20.0, "threshold": 175.0}, "lies above the number of votes"),
    ],
)
def test_a_check_that_cannot_tell_agreement_is_warned_of(values: dict[str, float], words: str) -> None:
    vote = AGGREGATORS["confident_gnmax"](sigma=20.0, **values)  # type: ignore[call-arg]
    assert any(words in warning for warning in vote.warnings(100, 2))


def test_the_form_begins_with_values_for_the_studys_classes(study: Study) -> None:
    values = initial_for(study)
    teachers = values["teachers"]
    assert values["aggregator-confident_gnmax-threshold"] == pytest.approx(teachers * 2 / 3, abs=0.01)


def test_small_groups_are_warned_of(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN)
    assert not [note for note in forecast(run).notes if "hides among few" in note or "drawn with noise" in note]
    HeadCount.objects.filter(study=study, level="LOW").update(count=4)
    HeadCount.objects.filter(study=study, level="HIGH").update(count=12, sigma=8.0)
    notes = "\n".join(forecast(run).notes)
    assert "Only 4 holders have the promise LOW" in notes
    assert "The head count of HIGH, 12, was drawn with noise of standard deviation 8" in notes
    assert "AVERAGE, " not in notes


@pytest.mark.parametrize("recipe", [ASKING_RUN, STEPS_RUN], ids=["votes", "steps"])
def test_a_plan_says_what_levels_bring(study: Study, recipe: dict[str, Any]) -> None:
    run = run_draft(study, **recipe)
    expected = forecast(run)
    levels, threshold, smallest = expected.alternatives
    mu = np.sqrt(caps_of([1.0, 2.0, 3.0], study.delta))  # ten people of each
    assert (levels.holders, levels.signal) == (30, pytest.approx(10 * mu.sum()))
    best = int(np.argmax(mu * [30, 20, 10]))
    assert (threshold.epsilon, threshold.holders) == (best + 1.0, 30 - 10 * best)
    assert threshold.signal == pytest.approx((mu * [30, 20, 10]).max())
    assert (smallest.epsilon, smallest.holders, smallest.signal) == (1.0, 30, pytest.approx(30 * mu[0]))
    assert all(each.forecast is not None and 0 <= each.forecast.noisy <= 1 for each in expected.alternatives)
    assert planned(run)["alternatives"] == in_words([each.to_json() for each in expected.alternatives])
    approval = as_("ada").get(reverse("staff:run_approve", args=[study.slug, run.pk])).text
    assert "What levels bring" in approval and f"all at ε = {best + 1}" in approval


@pytest.mark.slow
def test_a_plan_says_where_levels_bring_little() -> None:
    study = study_with_table(levels="LLLLLLLLLA")
    expected = forecast(run_draft(study, **TABLE_RUN))
    (note,) = [str(note) for note in expected.notes if "Levels bring little" in str(note)]
    _levels, threshold, _smallest, _lenient = expected.alternatives
    assert f"ε = {threshold.epsilon:g} " in note
    assert [each.forecast.of for each in expected.alternatives if each.forecast] == ["labels"] * 4


@pytest.mark.slow
def test_a_plan_of_teachers_says_how_many_labels_the_strictest_cost(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 6.0}})
    expected = forecast(run, 0.9)
    levels, _threshold, smallest, lenient = expected.alternatives
    documents = {each["kind"]: each for each in planned(run, share=0.9)["alternatives"]}
    page = as_("ada").get(reverse("staff:run_approve", args=[study.slug, run.pk])).text
    assert '<th scope="row">everybody but High protection, as they chose</th>' in page
    HeadCount.objects.filter(study=study, level="HIGH").update(count=0)
    without = forecast(run, 0.9).plan.labels
    assert levels.labels is not None and without is not None and smallest.labels is not None
    assert (lenient.labels, lenient.holders, lenient.left_out) == (without, 20, ("HIGH",))
    assert smallest.labels < levels.labels < without < 12, "of 12 public points"
    assert (documents["lenient"]["labels"], documents["lenient"]["left_out"]) == (without, ["HIGH"])
    (note,) = [note for note in expected.notes if "strictest promise" in str(note)]
    more = without - levels.labels
    assert f"costs {more} labels: without the 10 holders of HIGH, accounts would afford {without} in" in str(note)
    with translation.override("de"):
        words = f"der Stufe Hoher Schutz würden die Konten für {without} statt {levels.labels} reichen"
        assert words in said(note)


def test_labels_end_at_the_public_points(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 40.0}})
    expected = forecast(run, 0.9)
    assert [each.labels for each in expected.alternatives] == [12] * 4
    assert not [note for note in expected.notes if "strictest promise" in str(note)]


def test_where_the_strict_fall_silent_they_end_no_vote(study: Study) -> None:
    expected = forecast(run_draft(study, **TABLE_RUN, on_exhausted="retire"), 0.9)
    assert [each.labels for each in expected.alternatives] == [None] * 3


@pytest.mark.parametrize(("value", "is_noted"), [(0.902, True), (0.91, False)])
def test_a_plan_says_where_its_forecast_gains_little_by_levels(value: float, is_noted: bool) -> None:
    def alternative(kind: str, signal: float, value: float) -> Alternative:
        return Alternative(kind, 2.0, 30, signal, Forecast("model", value, 0.8, 1.0, 0.95, 100, Sentence("points")))

    compared = (
        alternative("levels", 20.0, value),
        alternative("threshold", 10.0, 0.9),
        alternative("smallest", 5.0, 0.9),
    )
    assert ["half a point" in note for note in alternatives_notes(compared)] == [True] * is_noted


@pytest.mark.slow
def test_with_one_promise_there_is_nothing_to_compare() -> None:
    assert forecast(run_draft(study_with_table(levels="H"), **TABLE_RUN)).alternatives == ()
    run = run_draft(rehearsal_with_table(), **TABLE_RUN)
    assert forecast(run).alternatives == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "of"),
    [(TABLE_RUN, ["labels"]), (ASKING_RUN, ["labels"]), (STEPS_RUN, ["model"])],
    ids=["teachers", "votes", "steps"],
)
def test_every_method_forecasts_in_one_form_and_is_held_against_what_came(
    recipe: dict[str, Any], of: list[str]
) -> None:
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
    page = as_("olga").get(reverse("staff:run", args=[run.study.slug, run.pk])).text
    assert "Forecast and outcome" in page and ("in the interval" in page or "outside the interval" in page)
    document = as_("olga").get(reverse("api:run", args=[run.pk])).json()
    assert [(each["of"], each["came"], each["inside"]) for each in document["forecasts"]] == [
        (each.forecast.of, each.came, each.inside) for each in forecast_outcomes(run)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [COUNTS_RUN, SYNTHESIS_RUN], ids=["counts", "rows"])
def test_what_noise_makes_of_a_table_is_forecast(recipe: dict[str, Any]) -> None:
    run = run_start(study_with_table(), share=0.5, **recipe)
    (kept,) = run.plan["forecasts"]
    assert kept["of"] == "table" and 0 <= kept["low"] < kept["high"] <= 1 and kept["measure"]
    run = run_ask(run)
    (each,) = forecast_outcomes(run)
    drawn = run.result.content.get("noise")
    assert (each.came, each.inside) == (drawn, None if drawn is None else drawn <= kept["high"])
    page = as_("olga").get(reverse("staff:run", args=[run.study.slug, run.pk])).text
    assert "Forecast and outcome" in page and kept["measure"] in page
    (document,) = as_("olga").get(reverse("api:run", args=[run.pk])).json()["forecasts"]
    assert (document["of"], document["came"]) == ("table", drawn)


def test_the_forecast_of_steps_is_held_against_the_model_that_they_led_to(study: Study) -> None:
    run = run_start(study, share=0.5, **STEPS_RUN)
    fields = {"learned_from": {"label_accuracy": None, "labels": 12}, "evaluation": {"accuracy": 0.1, "points": 21}}
    linear, student = {"learner": "linear", "accuracy": 0.9}, {"learner": "shares", "accuracy": 0.1}
    (alone,) = outcomes_of(run, fields)
    (beside,) = outcomes_of(run, fields | {"candidates": [student, linear]})
    assert (alone.came, beside.came) == (0.1, 0.9)
