"""Proposing, approving and watching runs of gradient steps over samples."""

from typing import Any

import pytest

from accounting.models import Release
from consent.models import Role, Study
from consent.services import membership_add
from tests import factories
from tests.ipate_web.staff.test_steps_pages import as_, filled_in, url
from tests.pages import study_with_roles
from tests.training.asking import SAMPLED_RUN, batch_ask, run_ask
from tests.training.runs import rehearsal_with_table, run_draft, run_start
from training.models import Run

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

#: Everybody is drawn in every step, so that plans take no time.
ALL = {"steps-variant": "scale", "steps-expected": 60, "steps-steps": 6, "steps-batch_size": 2}


@pytest.fixture
def study() -> Study:
    return study_with_roles(holders=60)


def test_a_plan_shows_noise_norms_and_charges_of_each_level(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, **ALL))
    assert page.status_code == 200, page.context["form"].errors
    sampled = page.context["plan"].sampled
    for words in (
        "6 steps over 60 holders on average",
        "Noise, rates and norms",
        "Charge μ²",
        f"{sampled.charges[2]:.4f}",
        "100 %",
        "1e-7 of δ is used",
        "charged before its first step",
        "Of such a run nothing is forecast.",
        "The columns, standardised",
    ):
        assert words in page.text, words


def test_choices_are_saved_and_offered_again(study: Study) -> None:
    chosen = ALL | {"steps-network": "mlp", "steps-clip_norm": 0.7, "steps-step_size": 3, "steps-momentum": 0.5}
    chosen |= {"steps-publish": "student"}
    as_("operator").post(url("run_new", study), filled_in(study, **chosen, confirmed="1"))
    run = Run.objects.get()
    assert (run.method, run.variant, run.batch_size) == ("sgd", "scale", 2)
    assert "sigma" not in run.choices and "rounds" not in run.choices, "these are of the other variant"
    fields = {
        name: run.choices[name] for name in ("network", "expected", "steps", "clip_norm", "step_size", "momentum")
    }
    assert fields == {
        "network": "mlp", "expected": 60, "steps": 6, "clip_norm": 0.7, "step_size": 3, "momentum": 0.5
    }  # fmt: skip
    form = as_("operator").get(url("run_new", study), {"like": run.pk}).context["form"]
    assert {name: form[name].value() for name in chosen} == chosen
    page = as_("operator").get(url("run", study, run.pk)).text
    for words in (
        "Samples, each level clipped to its own norm",
        "Small network",
        "Steps in a chunk</dt><dd>2",
        "The student",
    ):
        assert words in page, words


def test_without_public_points_only_the_model_itself_can_be_published(study: Study) -> None:
    sent = filled_in(study, **ALL, public_dataset="")
    page = as_("operator").post(url("run_new", study), sent)
    assert page.status_code == 200, page.context["form"].errors
    for words in ("The records as they are", "there is no student"):
        assert words in page.text, words
    as_("operator").post(url("run_new", study), sent | {"confirmed": "1"})
    run = Run.objects.get()
    assert (run.public_dataset, run.student_learner) == (None, "")
    as_("olga").post(url("run_approve", study, run.pk), {"per_cent": 50})
    run = run_ask(Run.objects.get())
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("researcher").get(url("run", study, run.pk)).text
    for words in (
        "none were used",
        "inear model that the steps over samples led to",
        "none, as there are no public points",
    ):
        assert words in page, words
    assert as_("researcher").get(url("run_student_model", study, run.pk, 1)).status_code == 200


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"steps-steps": 0}, "steps-steps", "greater than"),
        ({"steps-expected": 0.5}, "steps-expected", "greater than"),
        ({"steps-network": "cnn"}, "steps-network", "takes images from"),
        ({"steps-network": "cnn", "steps-representation": "standardised"}, "steps-representation", "as they are"),
        ({"steps-variant": "non_private"}, "steps-variant", "valid choice"),
        ({"public_dataset": "", "steps-publish": "student"}, "steps-publish", "student learns on public points"),
        (
            {"public_dataset": "", "steps-representation": "standardised"},
            "steps-representation",
            "fitted on public points",
        ),
        ({"public_dataset": "", "method": "neighbours"}, "public_dataset", "Choose the public points"),
    ],
)
def test_the_page_shows_errors_beside_their_fields(
    study: Study, changes: dict[str, Any], field: str, words: str
) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, **ALL | changes))
    assert page.status_code == 422
    assert words in str(page.context["form"].errors[field])


def test_fields_of_the_other_variant_do_not_count(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, **ALL, **{"steps-sigma": "much"}))
    assert page.status_code == 200
    page = as_("operator").post(url("run_new", study), filled_in(study, **{"steps-expected": "many"}))
    assert page.status_code == 200


def test_a_run_shows_its_charge_before_its_first_step(study: Study) -> None:
    run = batch_ask(run_start(study, **SAMPLED_RUN, share=0.5))
    assert (run.status, run.position) == ("asking", 0)
    page = as_("researcher").get(url("run", study, run.pk))
    for words in ("for the whole run, before its first step", "of 6", "What it costs each group"):
        assert words in page.text, words
    for group in page.context["groups"]:
        assert 0.49 < group.spent_share <= group.allowed_share
    run = batch_ask(run)
    page = as_("researcher").get(url("run_live", study, run.pk))
    assert '<span class="number">33 %</span>' in page.text
    page = as_("operator").get(url("run_cancel", study, run.pk)).text
    assert "charged for all of its steps" in page


def test_the_card_the_register_and_the_report_say_how_the_steps_were_made(study: Study) -> None:
    run = run_ask(run_start(study, **SAMPLED_RUN, share=0.5))
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("committee").get(url("run", study, run.pk)).text
    sentence = "labelled public points that the student had not learned from"
    for words in ("6 steps over 60 holders on average", "a part of 1e-7 was set aside", sentence):
        assert words in page, words
    page = as_("auditor").get(url("ledger", study), {"kind": Release.Kind.STEPS})
    assert page.text.count("gradient steps: 2 steps") == 3
    assert page.text.count("gradient steps: the charge for all steps of the run") == 1
    report = as_("auditor").get(url("ledger_report", study, run.pk)).text
    for words in ("Private gradient steps", "Noise, rates and norms"):
        assert words in report, words


def test_baselines_are_offered_and_shown_in_a_rehearsal() -> None:
    rehearsal = rehearsal_with_table(holders=60)
    membership_add(study=rehearsal, user=factories.user_create("operator"), role=Role.OPERATOR, acting_user=None)
    sent = filled_in(rehearsal, seed=3, **ALL | {"steps-variant": "non_private"})
    as_("operator").post(url("run_new", rehearsal), {**sent, "confirmed": "1"})
    assert as_("olga").post(url("run_approve", rehearsal, Run.objects.get().pk)).status_code == 302
    run = run_ask(Run.objects.get())
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("olga").get(url("run", rehearsal, run.pk)).text
    for words in ("Baseline: without privacy", "no bound: nothing protects anybody"):
        assert words in page, words


def test_a_list_of_runs_says_by_which_variant(study: Study) -> None:
    run_draft(study, **SAMPLED_RUN)
    page = as_("auditor").get(url("runs", study)).text
    assert "<td>private gradient steps, samples, each level clipped to its own norm</td>" in page
