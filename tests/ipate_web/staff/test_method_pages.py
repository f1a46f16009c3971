"""Proposing, approving and watching runs in which every holder votes, or that take private gradient steps."""

import csv
import io
import re
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from django.urls import reverse

from accounting.models import Release
from consent.models import Study
from tests.pages import (
    as_,
    proposal_is_refused,
    rehearsal_is_shown,
    run_form_filled,
    study_with_roles,
    url,
)
from tests.snapshots import built_once
from tests.training.asking import CLEAR_RUN, SAMPLED_RUN, STEPS_RUN, batch_ask, run_ask
from tests.training.runs import rehearsal_with_table, run_start
from training.methods.neighbours import question_load
from training.models import Run

pytestmark = pytest.mark.django_db

#: Data that a browser sends for the form as it was opened.
filled_in = partial(run_form_filled, title="Asked", method="neighbours")
steps_form = partial(run_form_filled, title="Steps", method="sgd")
#: Everybody is drawn in every step, so that plans take no time.
ALL = {"steps-variant": "scale", "steps-expected": 60, "steps-steps": 6, "steps-batch_size": 2}


@pytest.fixture
def study() -> Study:
    return study_with_roles(holders=60)


@pytest.fixture
@built_once
def finished() -> Run:
    """Its public points come from a register."""
    study = study_with_roles(holders=60)
    study.datasets.filter(kind="public").update(provenance="A public register of measurements.")
    return run_ask(run_start(study, **CLEAR_RUN, share=0.5))


# --- Proposing ------------------------------------------------------------------------------------------------------


def test_the_plan_tells_rounds_noise_and_forecast(study: Study) -> None:
    form = as_("operator").get(url("run_new", study)).context["form"]
    for name in ("sigma", "radius_share", "first_queries"):
        assert form[f"asking-{name}"].value() is None, "the forecast chooses what is left open"
    page = as_("operator").post(url("run_new", study), filled_in(study, **{"asking-rounds": 2}))
    assert page.status_code == 200, page.context["form"].errors
    assert not Run.objects.exists()
    plan = page.context["plan"]
    assert [each.queries for each in plan.rounds] == [6, 6]
    votes = f'<td class="number">{plan.turnout.levels[0].votes_allowed}</td>'
    for words in ("Votes of the first round", "labelled points of the test dataset", votes):
        assert words in page.text, words
    unlabelled = as_("operator").post(url("run_new", study), filled_in(study, test_dataset=None)).text
    assert "An assumption, since no public points are labelled" in unlabelled


def test_choices_are_saved_and_proposed_again(study: Study) -> None:
    client, new = as_("operator"), url("run_new", study)
    changes = {
        "asking-representation": "embedding", "asking-stated-embedding": "on", "asking-rounds": 2,
        "asking-first_queries": 4, "asking-embedded": "on", "asking-sigma": 7.5, "asking-radius_share": 2.5,
        "asking-kernel": "epanechnikov", "asking-records": 1.5, "asking-batch_size": 40, "wanted_labels": 9,
    }  # fmt: skip
    page = client.post(new, filled_in(study, **changes))
    assert page.status_code == 200, page.context["form"].errors
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?', page.text))
    client.post(new, {**hidden, "confirmed": "1"})
    run = Run.objects.get()
    assert (run.method, run.variant, run.batch_size, run.wanted_labels) == ("neighbours", "", 40, 9)
    assert run.choices == {
        "representation": "embedding", "representation_parameters": {}, "stated": True, "rounds": 2,
        "first_queries": 4, "embedded": True, "sigma": 7.5, "radius_share": 0.025, "kernel": "epanechnikov",
        "records": 1.5, "encoder": "",
    }  # fmt: skip
    assert "Radius, in per cent of the public points</dt><dd>2.5 %" in client.get(url("run", run)).text
    form = client.get(new, {"like": str(run.pk)}).context["form"]
    offered = changes | {"asking-stated-embedding": None, "asking-embedded": True}
    assert {name: form[name].value() for name in offered} == offered


def test_the_page_shows_errors_beside_their_fields(study: Study) -> None:
    network, none = {"steps-network": "cnn"}, {"public_dataset": ""}
    for form, changes, field, message in (
        (filled_in, {"asking-representation": "embedding"}, "asking-stated-embedding", "only if you state this"),
        (filled_in, {"asking-representation": "wavelets"}, "asking-representation", "is for images"),
        (filled_in, {"asking-rounds": 2, "asking-first_queries": 12}, "asking-first_queries", "ask for fewer"),
        (filled_in, {"asking-rounds": 5}, "asking-rounds", "5"),
        (filled_in, {"asking-sigma": 16_385}, "asking-sigma", "less than or equal to 16384"),
        (filled_in, {"asking-radius_share": 101}, "asking-radius_share", "less than"),
        (filled_in, {"asking-records": ""}, "asking-records", "required"),
        (filled_in, {"method": "guessing"}, "method", "guessing"),
        (filled_in, none, "public_dataset", "Choose the public points"),
        (steps_form, {"steps-steps": 0}, "steps-steps", "greater than"),
        (steps_form, {"steps-sigma": 1e9}, "steps-sigma", "less than"),
        (steps_form, {"steps-representation": "embedding"}, "steps-stated-embedding", "only if you state this"),
        (steps_form, {"wanted_labels": 5}, "wanted_labels", "Nobody is asked for labels"),
        (steps_form, ALL | {"steps-expected": 0.5}, "steps-expected", "greater than"),
        (steps_form, ALL | network, "steps-network", "takes images from"),
        (steps_form, ALL | network | {"steps-representation": "standardised"}, "steps-representation", "as they are"),
        (steps_form, ALL | {"steps-variant": "non_private"}, "steps-variant", "valid choice"),
        (steps_form, ALL | none | {"steps-publish": "student"}, "steps-publish", "student learns on public points"),
    ):
        proposal_is_refused(study, form(study, **changes), field, message)


def test_fields_of_the_other_method_cannot_be_wrong(study: Study) -> None:
    for method, wrong in (
        ("neighbours", {"teachers": 0, "learner": "oracle", "aggregator-confident_gnmax-sigma": "", "batch_size": ""}),
        ("pate", {"asking-sigma": -1, "asking-rounds": "", "asking-representation": "embedding"}),
        ("neighbours", {"asking-rounds": 1, "asking-first_queries": -4, "asking-embedded": "on"}),
    ):
        page = as_("operator").post(url("run_new", study), filled_in(study, method=method, **wrong))
        assert page.status_code == 200, page.context["form"].errors
    choices = page.context["form"].run_fields()["choices"]
    assert "embedded" not in choices, "a single round has no student to compare by"


# --- Watching -------------------------------------------------------------------------------------------------------


def test_noisy_counts_are_listed_and_taken_away_with_the_labels(finished: Run) -> None:
    client, classes = as_("researcher"), finished.public_dataset.classes
    assert "or download them with their noisy counts:" in client.get(url("run", finished)).text
    heading, *lines = csv.reader(io.StringIO(client.get(url("run_labels_file", finished, "csv")).text))
    assert heading == ["row", "label", *(f"count_{name}" for name in classes)]
    queries = finished.queries.order_by("row")
    assert lines == [[str(query.row), classes[query.label or 0], *map(str, query.counts)] for query in queries]
    (taken,) = Release.objects.filter(study=finished.study, kind=Release.Kind.DOWNLOAD)
    assert (taken.content["what"], taken.recorded_by.username) == ("labels", "researcher")
    page = client.get(url("run_labels", finished)).text
    for query in queries:
        cells = "".join(f'<td class="number">{count}</td>' for count in query.counts)
        assert f'<td class="number">{query.batch.index}</td>{cells}</tr>' in page


def test_a_picture_shows_by_how_much_labels_lead_and_a_table_says_it(study: Study) -> None:
    asking = {"sigma": 3.0, "radius_share": 0.5, "rounds": 2, "first_queries": 5}
    run = batch_ask(run_start(study, **CLEAR_RUN | {"choices": asking}, share=0.5))
    page = as_("auditor").get(url("run", run))
    (first,) = page.context["leads"].series
    counts = np.sort([query.counts for query in run.queries.all()], axis=1)
    leads = (counts[:, -1] - counts[:, -2]) / 3.0
    edges = [0, 1, 2, 3, 5, 10, 20, np.inf]
    expected = [((low <= leads) & (leads < high)).mean() for low, high in pairwise(edges)]
    assert first.values == pytest.approx(expected)
    assert sum(first.values) == pytest.approx(1)
    for (lead, _shares), share in zip(page.context["leads"].rows, expected, strict=True):
        assert f'<th scope="row">{lead}</th><td class="number">{100 * share:.1f} %</td>' in page.text
    page = as_("auditor").get(url("run", study, run_ask(run).pk))
    assert [series.name for series in page.context["leads"].series] == ["round 1", "round 2"]
    assert "a large lead then says that few contradicted" in page.text
    assert page.context["leads"].series[0].values == first.values
    second = run.rounds.get(index=1)
    question, counts = question_load(second), {query.row: query.counts for query in run.queries.all()}
    standing = np.array([counts[row] for row in question.rows.tolist()], dtype=float)
    assert question.predicted is not None
    standing[np.arange(len(standing)), question.predicted] += question.voters
    standing.sort(axis=1)
    small = ((standing[:, -1] - standing[:, -2]) / second.sigma < 1).mean()
    assert page.context["leads"].series[1].values[0] == pytest.approx(small)


@pytest.mark.parametrize(
    ("form", "chosen", "words"),
    [
        (filled_in, {"asking-sigma": 3, "asking-radius_share": 50}, "of 3"),
        (steps_form, {"steps-steps": 4, "steps-sigma": 2}, "noise alone"),
    ],
    ids=["neighbours", "sgd"],
)
def test_a_rehearsal_is_shown_with_what_levels_would_have_spent(form: Any, chosen: dict[str, int], words: str) -> None:
    rehearsal = rehearsal_with_table(holders=60)
    levels = dict.fromkeys(("HIGH-share", "AVERAGE-share", "LOW-share"), 1)
    rehearsal_is_shown(rehearsal, form(rehearsal, seed=3, **levels, **chosen), words)


# --- Where public points come from ----------------------------------------------------------------------------------


def test_operators_and_stewards_state_where_public_points_come_from(study: Study) -> None:
    public, private = study.datasets.get(kind="public"), study.datasets.get(kind="private")
    message = "Nobody has stated where the public points come from."
    assert message in as_("operator").post(url("run_new", study), filled_in(study)).text
    for role, expected in (("operator", 302), ("steward", 302), ("auditor", 403), ("committee", 403)):
        answer = as_(role).post(url("dataset", study, public.pk), {"provenance": f"As {role} says."})
        assert answer.status_code == expected, role
        shown = as_(role).get(url("dataset", study, public.pk)).text
        assert ('name="provenance"' in shown) == (expected == 302)
        assert as_(role).post(url("dataset", study, private.pk), {"provenance": "x"}).status_code == 403
    public.refresh_from_db()
    assert public.provenance == "As steward says." and public.provenance in shown
    assert as_("steward").post(url("dataset", study, public.pk), {"provenance": "x" * 2001}).status_code == 422
    assert message not in as_("operator").post(url("run_new", study), filled_in(study)).text


@pytest.fixture
@built_once
def stepped() -> Run:
    return run_ask(run_start(study_with_roles(holders=60), **STEPS_RUN, share=0.5))


# --- Everybody's gradients ------------------------------------------------------------------------------------------


def test_choices_of_steps_are_saved_and_offered_again(study: Study) -> None:
    client, new = as_("operator"), url("run_new", study)
    everybody = {"steps-steps": 9, "steps-sigma": 4.5, "steps-clip_norm": 0.7, "steps-ridge": 0.5, "steps-rounds": 2}
    everybody |= {"steps-publish": "model", "steps-batch_size": 4}
    samples = ALL | {"steps-network": "mlp", "steps-momentum": 0.5, "steps-publish": "student"}
    for title, variant, chosen in (("A", "individual", everybody), ("B", "scale", samples)):
        client.post(new, steps_form(study, **chosen, title=title, confirmed="1"))
        run = Run.objects.get(title=title)
        assert (run.method, run.variant, run.batch_size) == ("sgd", variant, chosen["steps-batch_size"])
        expected = {name.removeprefix("steps-"): value for name, value in chosen.items() if "batch" not in name}
        expected.pop("variant", None)
        assert run.choices == run.choices | expected
        form = client.get(new, {"like": run.pk}).context["form"]
        assert {name: form[name].value() for name in chosen} == chosen
        assert f"Steps in a chunk</dt><dd>{run.batch_size}" in client.get(url("run", run)).text
    assert "sigma" not in run.choices and "rounds" not in run.choices, "these are of the other variant"


def test_steps_taken_are_shown_while_the_model_learns(study: Study) -> None:
    run = batch_ask(run_start(study, **STEPS_RUN, share=0.5))
    assert (run.status, run.position) == ("asking", 2)
    for name in ("run", "run_live"):
        page = as_("researcher").get(url(name, run))
        for words in ('<span class="number">33 %</span>', "of 6", "Asking begun", "Taken so far", "noise alone"):
            assert words in page.text, words
        assert page.context["curves"].x == [1, 2]
        assert all(len(series.values) == 2 for series in page.context["curves"].series)
        assert "See the labels" not in page.text and "Labels released" not in page.text
    page = as_("operator").get(url("run_cancel", run)).text
    assert "The 2 gradient steps released so far stay released" in page and "labels released" not in page


@pytest.mark.parametrize(
    ("made", "planned", "kind", "entry"),
    [
        ("finished", "Round 1: 12 queries, noise σ = 3 on each count", Release.Kind.COUNTS, "noisy counts"),
        ("stepped", "Round 1: 6 full steps", Release.Kind.STEPS, "gradient steps: 2 steps"),
    ],
)
def test_a_finished_run_shows_public_charges_and_the_card(
    made: str, planned: str, kind: str, entry: str, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(made)
    assert run.status == Run.Status.FINISHED, run.message
    page = as_("committee").get(url("run", run))
    charged = "the most that anybody of a level can have been charged"
    for words in (charged, planned, "promised and kept: ε 1, over all that the study releases"):
        assert words in page.text, words
    for group in page.context["groups"]:
        assert 0 < group.spent_share <= group.allowed_share
        assert f'<td class="number">{100 * group.spent_share:.1f} %</td>' in page.text
    page = as_("auditor").get(url("ledger", run.study), {"kind": kind})
    assert page.text.count(f"<td>{entry}</td>") == run.batches.count() == 3
    assert planned in as_("auditor").get(url("ledger_report", run)).text


def test_a_run_of_steps_has_a_model_and_no_page_of_labels(stepped: Run) -> None:
    """Its steps are no queries, of which some would be rejected, and nobody has taken labels of it."""
    researcher = as_("researcher")
    assert researcher.get(url("run_labels", stepped)).status_code == 404
    assert researcher.get(url("run_labels_file", stepped, "csv")).status_code == 404
    assert researcher.get(reverse("api:run-labels", args=[stepped.pk])).json()["results"] == []
    assert not Release.objects.filter(study=stepped.study, kind=Release.Kind.DOWNLOAD).exists()
    assert researcher.get(url("run_student_model", stepped, 1)).status_code == 200


# --- Samples --------------------------------------------------------------------------------------------------------


def test_without_public_points_only_the_model_itself_can_be_published(study: Study) -> None:
    sent = steps_form(study, **ALL, public_dataset="", **{"steps-sigma": "much"})
    page = as_("operator").post(url("run_new", study), sent)
    assert page.status_code == 200, "a field of the other variant does not count"
    for words in ("Charge μ²", f"{page.context['plan'].sampled.charges[2]:.4f}", "there is no student"):
        assert words in page.text, words
    as_("operator").post(url("run_new", study), sent | {"confirmed": "1"})
    run = Run.objects.get()
    assert (run.public_dataset, run.student_learner) == (None, "")


def test_a_run_over_samples_shows_its_charge_before_its_first_step(study: Study) -> None:
    run = batch_ask(run_start(study, **SAMPLED_RUN, share=0.5))
    assert (run.status, run.position) == ("asking", 0)
    page = as_("researcher").get(url("run", run))
    assert "for the whole run, before its first step" in page.text
    for group in page.context["groups"]:
        assert 0.49 < group.spent_share <= group.allowed_share
    assert "charged for all of its steps" in as_("operator").get(url("run_cancel", run)).text
    run = run_ask(run)
    assert run.status == Run.Status.FINISHED, run.message
    assert "6 steps over 60 holders on average" in as_("committee").get(url("run", run)).text
    page = as_("auditor").get(url("ledger", study), {"kind": Release.Kind.STEPS}).text
    assert page.count("gradient steps: 2 steps") == 3
    assert page.count("gradient steps: the charge for all steps of the run") == 1
    assert "Noise, rates and norms" in as_("auditor").get(url("ledger_report", run)).text
