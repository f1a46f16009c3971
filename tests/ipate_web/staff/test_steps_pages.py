"""Proposing, approving and watching runs of private gradient steps."""

from functools import partial
from typing import Any

import pytest
from django.urls import reverse

from accounting.models import Release
from consent.models import Study
from tests.pages import as_, rehearsal_is_shown, run_form_filled, study_with_roles, url
from tests.training.asking import STEPS_RUN, batch_ask, run_ask
from tests.training.runs import rehearsal_with_table, run_draft, run_start
from training.models import Run

pytestmark = pytest.mark.django_db

#: Data that a browser sends for the form as it was opened.
filled_in = partial(run_form_filled, title="Steps", method="sgd")


@pytest.fixture
def study() -> Study:
    return study_with_roles(holders=60)


@pytest.mark.slow
def test_the_rule_chooses_what_is_left_open(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study))
    assert page.status_code == 200, page.context["form"].errors
    (planned,) = page.context["plan"].rounds
    assert planned["plan"]["steps"] > 1 and planned["plan"]["sigma"] > 0
    for words in (
        "Noise multiplier σ",
        f'<td class="number">{planned["plan"]["steps"]}</td>',
        "cut off by quantiles",
        "Without noise",
    ):
        assert words in page.text, words


@pytest.mark.slow
def test_choices_are_saved_and_offered_again(study: Study) -> None:
    chosen = {"steps-steps": 9, "steps-sigma": 4.5, "steps-clip_norm": 0.7, "steps-step_size": 3}
    chosen |= {"steps-ridge": 0.5, "steps-publish": "model", "steps-rounds": 2, "steps-batch_size": 4}
    as_("operator").post(url("run_new", study), filled_in(study, **chosen, confirmed="1"))
    run = Run.objects.get()
    assert (run.method, run.variant, run.batch_size) == ("sgd", "individual", 4)
    fields = {name: run.choices[name] for name in ("steps", "sigma", "clip_norm", "step_size", "ridge", "publish")}
    assert fields == {
        "steps": 9, "sigma": 4.5, "clip_norm": 0.7, "step_size": 3.0, "ridge": 0.5, "publish": "model"
    }  # fmt: skip
    form = as_("operator").get(url("run_new", study), {"like": run.pk}).context["form"]
    assert {name: form[name].value() for name in chosen} == chosen
    page = as_("operator").get(url("run", study, run.pk)).text
    for words in ("Ridge</dt><dd>0.5", "Steps in a chunk</dt><dd>4", "The model that the steps led to"):
        assert words in page, words


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"steps-steps": 0}, "steps-steps", "greater than"),
        ({"steps-sigma": 1e9}, "steps-sigma", "less than"),
        ({"steps-ridge": -1}, "steps-ridge", "greater than"),
        ({"steps-representation": "wavelets"}, "steps-representation", "is for images"),
        ({"steps-representation": "embedding"}, "steps-stated-embedding", "only if you state this"),
        ({"steps-batch_size": 0}, "steps-batch_size", "greater than"),
        ({"wanted_labels": 5}, "wanted_labels", "Nobody is asked for labels"),
    ],
)
def test_the_page_shows_errors_beside_their_fields(
    study: Study, changes: dict[str, Any], field: str, words: str
) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, **changes))
    assert page.status_code == 422
    assert words in str(page.context["form"].errors[field])


@pytest.mark.slow
def test_steps_taken_are_shown_while_the_model_learns(study: Study) -> None:
    run = batch_ask(run_start(study, **STEPS_RUN, share=0.5))
    assert (run.status, run.position) == ("asking", 2)
    for name in ("run", "run_live"):
        page = as_("researcher").get(url(name, study, run.pk))
        for words in ("Private gradient steps</label>", '<span class="number">33 %</span>', "of 6"):
            assert words in page.text, words
        for words in ("Asking begun", "Taken so far", "until everything that was planned is asked", "noise alone"):
            assert words in page.text, words
        assert page.context["curves"].x == [1, 2]
        assert all(len(series.values) == 2 for series in page.context["curves"].series)
        for words in ("See the labels", "Labels released", "put to the vote"):
            assert words not in page.text, words
    page = as_("operator").get(url("run_cancel", study, run.pk)).text
    assert "The 2 gradient steps released so far stay released" in page and "labels released" not in page


@pytest.mark.slow
def test_a_finished_run_shows_public_charges_and_the_card(study: Study) -> None:
    run = run_ask(run_start(study, **STEPS_RUN, share=0.5))
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("committee").get(url("run", study, run.pk))
    for words in (
        "the most that anybody of a level can have been charged",
        "Round 1: 6 full steps; every holder",
        "every planned step was taken",
        "labelled public points that the student had not learned from",
        "6 gradient steps",
        "promised and kept: ε 1, over all that the study releases",
    ):
        assert words in page.text, words
    for group in page.context["groups"]:
        assert 0 < group.spent_share <= group.allowed_share
    assert as_("researcher").get(url("run_student_model", study, run.pk, 1)).status_code == 200


@pytest.mark.slow
def test_the_register_and_the_report_know_released_steps(study: Study) -> None:
    run = run_ask(run_start(study, **STEPS_RUN, share=0.5))
    page = as_("auditor").get(url("ledger", study), {"kind": Release.Kind.STEPS})
    assert page.text.count("<td>gradient steps: 2 steps</td>") == run.batches.count() == 3
    report = as_("auditor").get(url("ledger_report", study, run.pk)).text
    for words in ("Private gradient steps", "Round 1: 6 full steps", "steps taken"):
        assert words in report, words


@pytest.mark.slow
def test_a_rehearsal_is_shown_with_what_levels_would_have_spent() -> None:
    rehearsal = rehearsal_with_table(holders=60)
    rehearsal_is_shown(rehearsal, filled_in(rehearsal, seed=3, **{"steps-steps": 4, "steps-sigma": 2}), "noise alone")


def test_a_list_of_runs_says_by_which_method(study: Study) -> None:
    run_draft(study, **STEPS_RUN)
    page = as_("auditor").get(url("runs", study)).text
    assert "<td>private gradient steps, everyone is charged for their own gradients</td>" in page


def test_a_run_of_steps_has_no_page_of_labels(study: Study) -> None:
    """Its steps are no queries, of which some would be rejected, and nobody has taken labels of it."""
    run = run_ask(run_start(study, **STEPS_RUN, share=0.5))
    researcher = as_("researcher")
    assert researcher.get(url("run_labels", run)).status_code == 404
    assert researcher.get(url("run_labels_file", run, "csv")).status_code == 404
    assert researcher.get(reverse("api:run-labels", args=[run.pk])).json()["results"] == []
    assert not Release.objects.filter(study=study, kind=Release.Kind.DOWNLOAD).exists()
