"""Proposing, approving and watching runs of private gradient steps, over everybody's gradients and over samples."""

from functools import partial

import pytest
from django.urls import reverse

from accounting.models import Release
from consent.models import Role, Study
from consent.services import membership_add
from tests.factories import user_create
from tests.pages import as_, proposal_is_refused, rehearsal_is_shown, run_form_filled, study_with_roles, url
from tests.snapshots import built_once
from tests.training.asking import SAMPLED_RUN, STEPS_RUN, batch_ask, run_ask
from tests.training.runs import rehearsal_with_table, run_start
from training.models import Run

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

#: Data that a browser sends for the form as it was opened.
filled_in = partial(run_form_filled, title="Steps", method="sgd")
#: Everybody is drawn in every step, so that plans take no time.
ALL = {"steps-variant": "scale", "steps-expected": 60, "steps-steps": 6, "steps-batch_size": 2}


@pytest.fixture
def study() -> Study:
    return study_with_roles(holders=60)


@pytest.fixture
@built_once
def finished() -> Run:
    return run_ask(run_start(study_with_roles(holders=60), **STEPS_RUN, share=0.5))


def proposed(study: Study, chosen: dict[str, object]) -> Run:
    """Propose a run and check that the form of a similar one offers the same again."""
    as_("operator").post(url("run_new", study), filled_in(study, **chosen, confirmed="1"))
    run = Run.objects.get()
    form = as_("operator").get(url("run_new", study), {"like": run.pk}).context["form"]
    assert {name: form[name].value() for name in chosen} == chosen
    return run


# --- Everybody's gradients ------------------------------------------------------------------------------------------


def test_the_rule_chooses_what_is_left_open(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study))
    assert page.status_code == 200, page.context["form"].errors
    (planned,) = page.context["plan"].rounds
    assert planned["plan"]["steps"] > 1 and planned["plan"]["sigma"] > 0
    steps = f'<td class="number">{planned["plan"]["steps"]}</td>'
    for words in ("Noise multiplier σ", steps, "cut off by quantiles", "Without noise"):
        assert words in page.text, words


def test_choices_are_saved_and_offered_again(study: Study) -> None:
    chosen = {"steps-steps": 9, "steps-sigma": 4.5, "steps-clip_norm": 0.7, "steps-step_size": 3}
    chosen |= {"steps-ridge": 0.5, "steps-publish": "model", "steps-rounds": 2, "steps-batch_size": 4}
    run = proposed(study, chosen)
    assert (run.method, run.variant, run.batch_size) == ("sgd", "individual", 4)
    names = ("steps", "sigma", "clip_norm", "step_size", "ridge", "publish")
    assert [run.choices[name] for name in names] == [9, 4.5, 0.7, 3.0, 0.5, "model"]
    page = as_("operator").get(url("run", run)).text
    for words in ("Ridge</dt><dd>0.5", "Steps in a chunk</dt><dd>4", "The model that the steps led to"):
        assert words in page, words


def test_the_page_shows_errors_beside_their_fields(study: Study) -> None:
    network = {"steps-network": "cnn"}
    for changes, field, words in (
        ({"steps-steps": 0}, "steps-steps", "greater than"),
        ({"steps-sigma": 1e9}, "steps-sigma", "less than"),
        ({"steps-ridge": -1}, "steps-ridge", "greater than"),
        ({"steps-representation": "embedding"}, "steps-stated-embedding", "only if you state this"),
        ({"wanted_labels": 5}, "wanted_labels", "Nobody is asked for labels"),
        (ALL | {"steps-expected": 0.5}, "steps-expected", "greater than"),
        (ALL | network, "steps-network", "takes images from"),
        (ALL | network | {"steps-representation": "standardised"}, "steps-representation", "as they are"),
        (ALL | {"steps-variant": "non_private"}, "steps-variant", "valid choice"),
        (ALL | {"public_dataset": "", "steps-publish": "student"}, "steps-publish", "student learns on public points"),
        ({"public_dataset": "", "method": "neighbours"}, "public_dataset", "Choose the public points"),
    ):
        proposal_is_refused(study, filled_in(study, **changes), field, words)


def test_steps_taken_are_shown_while_the_model_learns(study: Study) -> None:
    run = batch_ask(run_start(study, **STEPS_RUN, share=0.5))
    assert (run.status, run.position) == ("asking", 2)
    for name in ("run", "run_live"):
        page = as_("researcher").get(url(name, run))
        for words in ("Private gradient steps</label>", '<span class="number">33 %</span>', "of 6"):
            assert words in page.text, words
        for words in ("Asking begun", "Taken so far", "until everything that was planned is asked", "noise alone"):
            assert words in page.text, words
        assert page.context["curves"].x == [1, 2]
        assert all(len(series.values) == 2 for series in page.context["curves"].series)
        for words in ("See the labels", "Labels released", "put to the vote"):
            assert words not in page.text, words
    page = as_("operator").get(url("run_cancel", run)).text
    assert "The 2 gradient steps released so far stay released" in page and "labels released" not in page


def test_a_finished_run_shows_public_charges_and_the_card(finished: Run) -> None:
    assert finished.status == Run.Status.FINISHED, finished.message
    page = as_("committee").get(url("run", finished))
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
    page = as_("auditor").get(url("ledger", finished.study), {"kind": Release.Kind.STEPS})
    assert page.text.count("<td>gradient steps: 2 steps</td>") == finished.batches.count() == 3
    report = as_("auditor").get(url("ledger_report", finished)).text
    for words in ("Private gradient steps", "Round 1: 6 full steps", "steps taken"):
        assert words in report, words


def test_a_run_of_steps_has_a_model_and_no_page_of_labels(finished: Run) -> None:
    """Its steps are no queries, of which some would be rejected, and nobody has taken labels of it."""
    researcher = as_("researcher")
    assert researcher.get(url("run_labels", finished)).status_code == 404
    assert researcher.get(url("run_labels_file", finished, "csv")).status_code == 404
    assert researcher.get(reverse("api:run-labels", args=[finished.pk])).json()["results"] == []
    assert not Release.objects.filter(study=finished.study, kind=Release.Kind.DOWNLOAD).exists()
    assert researcher.get(url("run_student_model", finished, 1)).status_code == 200


def test_a_rehearsal_is_shown_with_what_levels_would_have_spent() -> None:
    rehearsal = rehearsal_with_table(holders=60)
    rehearsal_is_shown(rehearsal, filled_in(rehearsal, seed=3, **{"steps-steps": 4, "steps-sigma": 2}), "noise alone")


# --- Samples --------------------------------------------------------------------------------------------------------


def test_a_plan_over_samples_shows_noise_norms_and_charges_of_each_level(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, **ALL, **{"steps-sigma": "much"}))
    assert page.status_code == 200, "a field of the other variant does not count"
    for words in (
        "6 steps over 60 holders on average",
        "Noise, rates and norms",
        "Charge μ²",
        f"{page.context['plan'].sampled.charges[2]:.4f}",
        "100 %",
        "1e-7 of δ is used",
        "charged before its first step",
        "Of such a run nothing is forecast.",
        "The columns, standardised",
    ):
        assert words in page.text, words


def test_choices_of_a_run_over_samples_are_saved_and_offered_again(study: Study) -> None:
    chosen = ALL | {"steps-network": "mlp", "steps-clip_norm": 0.7, "steps-step_size": 3, "steps-momentum": 0.5}
    run = proposed(study, chosen | {"steps-publish": "student"})
    assert (run.method, run.variant, run.batch_size) == ("sgd", "scale", 2)
    assert "sigma" not in run.choices and "rounds" not in run.choices, "these are of the other variant"
    names = ("network", "expected", "steps", "clip_norm", "step_size", "momentum")
    assert [run.choices[name] for name in names] == ["mlp", 60, 6, 0.7, 3, 0.5]
    page = as_("operator").get(url("run", run)).text
    assert "Samples, each level clipped to its own norm" in page
    for words in ("Small network", "Steps in a chunk</dt><dd>2", "The student"):
        assert words in page, words


def test_without_public_points_only_the_model_itself_can_be_published(study: Study) -> None:
    sent = filled_in(study, **ALL, public_dataset="")
    page = as_("operator").post(url("run_new", study), sent)
    assert page.status_code == 200, page.context["form"].errors
    assert "The records as they are" in page.text and "there is no student" in page.text
    as_("operator").post(url("run_new", study), sent | {"confirmed": "1"})
    run = Run.objects.get()
    assert (run.public_dataset, run.student_learner) == (None, "")
    as_("olga").post(url("run_approve", run), {"per_cent": 50})
    run = run_ask(Run.objects.get())
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("researcher").get(url("run", run)).text
    model = "inear model that the steps over samples led to"
    for words in ("none were used", model, "none, as there are no public points"):
        assert words in page, words
    assert as_("researcher").get(url("run_student_model", run, 1)).status_code == 200


def test_a_run_over_samples_shows_its_charge_before_its_first_step_and_how_steps_were_made(study: Study) -> None:
    run = batch_ask(run_start(study, **SAMPLED_RUN, share=0.5))
    assert (run.status, run.position) == ("asking", 0)
    page = as_("researcher").get(url("run", run))
    for words in ("for the whole run, before its first step", "of 6", "What it costs each group"):
        assert words in page.text, words
    for group in page.context["groups"]:
        assert 0.49 < group.spent_share <= group.allowed_share
    run = batch_ask(run)
    assert '<span class="number">33 %</span>' in as_("researcher").get(url("run_live", run)).text
    assert "charged for all of its steps" in as_("operator").get(url("run_cancel", run)).text

    run = run_ask(run)
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("committee").get(url("run", run)).text
    sentence = "labelled public points that the student had not learned from"
    for words in ("6 steps over 60 holders on average", "a part of 1e-7 was set aside", sentence):
        assert words in page, words
    page = as_("auditor").get(url("ledger", study), {"kind": Release.Kind.STEPS}).text
    assert page.count("gradient steps: 2 steps") == 3
    assert page.count("gradient steps: the charge for all steps of the run") == 1
    report = as_("auditor").get(url("ledger_report", run)).text
    for words in ("Private gradient steps", "Noise, rates and norms"):
        assert words in report, words


def test_baselines_are_offered_and_shown_in_a_rehearsal() -> None:
    rehearsal = rehearsal_with_table(holders=60)
    membership_add(study=rehearsal, user=user_create("operator"), role=Role.OPERATOR, acting_user=None)
    sent = filled_in(rehearsal, seed=3, **ALL | {"steps-variant": "non_private"})
    as_("operator").post(url("run_new", rehearsal), {**sent, "confirmed": "1"})
    assert as_("olga").post(url("run_approve", Run.objects.get())).status_code == 302
    run = run_ask(Run.objects.get())
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("olga").get(url("run", run)).text
    for words in ("Baseline: without privacy", "no bound: nothing protects anybody"):
        assert words in page, words
