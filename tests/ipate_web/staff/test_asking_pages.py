"""Proposing, approving and watching runs in which every holder votes."""

import csv
import io
import re
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from accounting.models import Release
from consent.models import Study
from tests.pages import (
    as_,
    proposal_is_refused,
    rehearsal_is_shown,
    run_form_filled,
    study_with_finished_run,
    study_with_roles,
    url,
)
from tests.snapshots import built_once
from tests.training.asking import CLEAR_RUN, batch_ask, run_ask
from tests.training.runs import rehearsal_with_table, run_draft, run_start
from training.methods.neighbours.rounds import question_load
from training.models import Run

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

#: Data that a browser sends for the form as it was opened.
filled_in = partial(run_form_filled, title="Asked", method="neighbours")


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
    for words in (
        '<td class="number">6</td>',
        "Every holder votes",
        "50.0 %</td>",
        "The columns, standardised by the public points.",
        "Votes of the first round",
        "labelled points of the test dataset",
        "Low protection",
        f'<td class="number">{plan.turnout.levels[0].votes_allowed}</td>',
        "Numbers of holders are head counts",
    ):
        assert words in page.text, words
    assert "Teachers" not in re.sub(r"(?s)<form.*?</form>", "", page.text)
    unlabelled = as_("operator").post(url("run_new", study), filled_in(study, test_dataset=None)).text
    assert "An assumption, since no public points are labelled" in unlabelled


def test_choices_are_saved_and_proposed_again(study: Study) -> None:
    client = as_("operator")
    changes = {
        "asking-representation": "embedding", "asking-stated-embedding": "on", "asking-rounds": 2,
        "asking-first_queries": 4, "asking-embedded": "on",
        "asking-sigma": 7.5, "asking-radius_share": 2.5, "asking-kernel": "epanechnikov", "asking-records": 1.5,
        "asking-batch_size": 40, "wanted_labels": 9,
    }  # fmt: skip
    page = client.post(url("run_new", study), filled_in(study, **changes))
    assert page.status_code == 200, page.context["form"].errors
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?', page.text))
    client.post(url("run_new", study), {**hidden, "confirmed": "1"})
    run = Run.objects.get()
    assert (run.method, run.variant) == ("neighbours", "")
    assert (run.batch_size, run.wanted_labels) == (40, 9)
    assert run.choices == {
        "representation": "embedding", "representation_parameters": {}, "stated": True, "rounds": 2,
        "first_queries": 4, "embedded": True, "sigma": 7.5, "radius_share": 0.025, "kernel": "epanechnikov",
        "records": 1.5, "encoder": "",
    }  # fmt: skip
    page = client.get(url("run", study, run.pk)).text
    for words in (
        "Embedding columns", "The representation was made without the private data</dt><dd>Yes",
        "Points of the first round</dt><dd>4", "the student&#x27;s inner layer</dt><dd>Yes",
        "Radius, in per cent of the public points</dt><dd>2.5 %", "Queries in a batch</dt><dd>40",
    ):  # fmt: skip
        assert words in page, words
    form = client.get(url("run_new", study), {"like": str(run.pk)}).context["form"]
    for name, value in changes.items():
        assert form[name].value() == {"asking-stated-embedding": None, "asking-embedded": True}.get(name, value), name


def test_rounds_can_be_left_to_the_planner_which_says_what_it_chose(study: Study) -> None:
    client = as_("operator")
    sent = filled_in(study, **{"asking-rounds": "", "asking-embedded": "on", "wanted_labels": 8})
    page = client.post(url("run_new", study), sent)
    assert page.status_code == 200, page.context["form"].errors
    assert sum(each.queries for each in page.context["plan"].rounds) == 8
    assert "The number of rounds was left to the planner. It chose" in page.text
    client.post(url("run_new", study), {**sent, "confirmed": "1"})
    run = Run.objects.get()
    assert run.choices["rounds"] is None and run.choices["embedded"]
    assert client.get(url("run_new", study), {"like": str(run.pk)}).context["form"]["asking-rounds"].value() is None


def test_a_single_round_has_no_student_to_compare_by(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, **{"asking-embedded": "on"}))
    assert page.status_code == 200, page.context["form"].errors
    assert page.context["form"].proposal().choices["rounds"] == 1
    assert "embedded" not in page.context["form"].run_fields()["choices"]


def test_the_page_shows_errors_beside_their_fields(study: Study) -> None:
    for changes, field, message in (
        ({"asking-representation": "embedding"}, "asking-stated-embedding", "only if you state this"),
        ({"asking-representation": "wavelets"}, "asking-representation", "is for images"),
        ({"asking-rounds": 2, "asking-first_queries": 12}, "asking-first_queries", "ask for fewer"),
        ({"asking-rounds": 5}, "asking-rounds", "5"),
        ({"asking-sigma": 16_385}, "asking-sigma", "less than or equal to 16384"),
        ({"asking-radius_share": 101}, "asking-radius_share", "less than"),
        ({"asking-records": ""}, "asking-records", "required"),
        ({"asking-batch_size": 0}, "asking-batch_size", "greater than"),
        ({"method": "guessing"}, "method", "guessing"),
    ):
        proposal_is_refused(study, filled_in(study, **changes), field, message)


def test_fields_of_the_other_method_cannot_be_wrong(study: Study) -> None:
    for method, wrong in (
        ("neighbours", {"teachers": 0, "learner": "oracle", "aggregator-confident_gnmax-sigma": "", "batch_size": ""}),
        ("pate", {"asking-sigma": -1, "asking-rounds": "", "asking-representation": "embedding"}),
        ("neighbours", {"asking-rounds": 1, "asking-first_queries": -4}),
    ):
        page = as_("operator").post(url("run_new", study), filled_in(study, method=method, **wrong))
        assert page.status_code == 200, page.context["form"].errors


# --- Approving ------------------------------------------------------------------------------------------------------


def test_an_operator_sees_the_plan_for_a_share_and_starts_the_run(study: Study) -> None:
    run, client = run_draft(study, **CLEAR_RUN), as_("operator")
    allowed = {}
    for per_cent in ("20", "80"):
        page = client.post(url("run_approve", study, run.pk), {"per_cent": per_cent, "look": "1"})
        allowed[per_cent] = [level.votes_allowed for level in page.context["plan"].turnout.levels]
        assert all(f'<td class="number">{number}</td>' in page.text for number in allowed[per_cent])
    assert sum(allowed["20"]) < sum(allowed["80"])
    page = client.post(url("run_approve", study, run.pk), {"per_cent": "40"}, follow=True).text
    run.refresh_from_db()
    assert (run.status, run.share) == (Run.Status.APPROVED, 0.4)
    for words in ("The run is approved.", "The plan that it follows", "Forecast of each level", "not begun"):
        assert words in page, words


# --- Watching -------------------------------------------------------------------------------------------------------


def test_rounds_and_stages_are_shown_while_holders_are_asked(study: Study) -> None:
    run = batch_ask(run_start(study, **CLEAR_RUN, share=0.5))
    assert (run.status, run.position) == ("asking", 5)
    for name in ("run", "run_live"):
        page = as_("researcher").get(url(name, study, run.pk)).text
        for words in ("Every holder votes</label>", '<span class="number">42 %</span>', "of 12", "Asking begun"):
            assert words in page, words
        assert re.search(r'<th scope="row">1</th><td class="number">12</td><td class="number">5</td>', page)
        assert "Training teachers" not in page and "Queries rejected" not in page
    assert "Teachers and their predictions" not in as_("operator").get(url("run_cancel", study, run.pk)).text


def test_a_finished_run_shows_public_charges_counts_and_the_card(finished: Run) -> None:
    assert finished.status == Run.Status.FINISHED, finished.message
    page = as_("committee").get(url("run", finished))
    for group in page.context["groups"]:
        assert 0 < group.spent_share <= group.allowed_share
        assert f'<td class="number">{100 * group.spent_share:.1f} %</td>' in page.text
    for words in (
        "the most that anybody of a level can have been charged",
        "Round 1: 12 queries, noise σ = 3 on each count, radius 50 % of the public points.",
        "A public register of measurements.",
        "every public point was put to the vote",
        "The plan that it followed",
        "promised and kept: ε 1, over all that the study releases",
    ):
        assert words in page.text, words
    assert '<th scope="col" class="number">Teachers</th>' not in page.text
    page = as_("auditor").get(url("ledger", finished.study), {"kind": Release.Kind.COUNTS})
    assert page.text.count("<td>noisy counts</td>") == finished.batches.count() == 3
    report = as_("auditor").get(url("ledger_report", finished)).text
    for words in ("Every holder votes", "Round 1: 12 queries, noise σ = 3 on each count", "noisy counts"):
        assert words in report


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
    page = as_("auditor").get(url("run", study, run.pk))
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


def test_a_rehearsal_is_shown_with_what_levels_would_have_spent() -> None:
    rehearsal = rehearsal_with_table(holders=60)
    sent = filled_in(rehearsal, seed=3, **{"asking-sigma": 3, "asking-radius_share": 50})
    sent |= {"HIGH-share": 1, "AVERAGE-share": 1, "LOW-share": 1}
    rehearsal_is_shown(rehearsal, sent, "of 3")


def test_a_run_of_teachers_has_no_rounds() -> None:
    study = study_with_finished_run()
    page = as_("operator").get(url("run", study.runs.get()))
    assert page.context["rounds"] == [] and "lead-chart" not in page.text
    assert "Asked so far" not in page.text and "Queries rejected" in page.text


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
