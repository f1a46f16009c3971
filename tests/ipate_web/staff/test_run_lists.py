"""The list of runs, and the page on which some of them are compared."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from consent.models import Study
from ipate_web.accounts import idle
from tests import factories
from tests.pages import as_, study_with_roles
from tests.training.asking import CLEAR_RUN, SAMPLED_RUN, STEPS_RUN, run_ask
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, run_finish, run_start, study_with_table
from training.models import Run, StudentModel

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
def study() -> Study:
    return study_with_roles()


@pytest.fixture
def runs(study: Study) -> dict[str, Run]:
    """Drafts of two people on three days, the middle one with a model."""
    found = {}
    for day, (title, fields) in enumerate(
        {
            "Alpha vote": TABLE_RUN | {"purpose": "Few labels."},
            "beta steps": STEPS_RUN,
            "Gamma vote": TABLE_RUN,
        }.items(),
        start=10,
    ):
        found[title] = run_draft(study, title=title, **fields)
        Run.objects.filter(pk=found[title].pk).update(created_at=datetime(2026, 3, day, 12, tzinfo=UTC), labels=0)
    Run.objects.filter(pk=found["Gamma vote"].pk).update(created_by=factories.user_create("researcher"))
    for title, accuracy in (("beta steps", 0.5), ("Alpha vote", 0.75)):
        model = StudentModel.objects.create(
            run=found[title],
            artifact="none",
            learner="shares",
            digest="0" * 64,
            accuracy=accuracy,
            card={},
            calibration={"scale": 1.0, "offsets": []},
        )
        Run.objects.filter(pk=found[title].pk).update(student=model)
    return found


def browse(address: str, user: str = "researcher") -> Any:
    return as_(user).get(address)


FOUND = {
    "": ["Gamma vote", "beta steps", "Alpha vote"],
    "search=VOTE": ["Gamma vote", "Alpha vote"],
    "search=few+labels": ["Alpha vote"],
    "search=few+steps": [],
    "method=sgd": ["beta steps"],
    "status=finished": [],
    "proposer=researcher": ["Gamma vote"],
    "since=2026-03-11": ["Gamma vote", "beta steps"],
    "until=2026-03-11": ["beta steps", "Alpha vote"],
    "since=2026-03-11&until=2026-03-11": ["beta steps"],
    "sort=title": ["Alpha vote", "beta steps", "Gamma vote"],
    "sort=proposed&method=pate": ["Alpha vote", "Gamma vote"],
    "sort=-accuracy": ["Alpha vote", "beta steps", "Gamma vote"],
}


def test_the_list_and_the_api_find_the_same(study: Study, runs: dict[str, Run]) -> None:
    for query, titles in FOUND.items():
        page = browse(f"{reverse('staff:runs', args=[study.slug])}?{query}")
        assert page.status_code == 200, query
        assert [run.title for run in page.context["page"]] == titles, query
        answer = browse(f"{reverse('api:runs')}?{query}").json()
        assert [run["title"] for run in answer["results"]] == titles, query
        assert ("No run is like this" in page.text) is (not titles)


def test_the_list_tells_accuracy_proposer_and_method(study: Study, runs: dict[str, Run]) -> None:
    run_draft(study, **CLEAR_RUN)
    run_draft(study, **SAMPLED_RUN)
    address = reverse("staff:runs", args=[study.slug])
    page = browse(address).text
    for words in (
        '<td class="number">75.0 %</td>',
        '<option value="otto">otto</option>',
        "<td>teachers vote, weighting</td>",
        "<td>every holder votes</td>",
        "<td>private gradient steps, everyone is charged for their own gradients</td>",
        "<td>private gradient steps, samples, each level clipped to its own norm</td>",
    ):
        assert words in page, words
    found = {
        run["title"]: (run["accuracy"], run["created_by"]) for run in browse(reverse("api:runs")).json()["results"]
    }
    assert found | {"Alpha vote": (0.75, "otto"), "Gamma vote": (None, "researcher")} == found
    assert "model withdrawn" not in page
    StudentModel.objects.filter(run=runs["Alpha vote"]).update(withdrawn_at=timezone.now(), withdrawal_reason="Wrong.")
    page = browse(address).text
    cells = next(row for row in page.split("<tr>") if "Alpha vote" in row)
    assert "75.0 %" in cells and "model withdrawn" in cells and page.count("model withdrawn") == 1


def test_a_malformed_filter_is_said(study: Study) -> None:
    for query in ("since=yesterday", "until=2026-02-30", "status=gone", "sort=secret", "method=x", "search=a%00b"):
        name = query.partition("=")[0]
        page = browse(f"{reverse('staff:runs', args=[study.slug])}?{query}")
        assert page.status_code == 422 and name in page.context["form"].errors, query
        answer = browse(f"{reverse('api:runs')}?{query}")
        assert answer.status_code == 400 and {error["field"] for error in answer.json()["errors"]} == {name}, query
    answer = browse(f"{reverse('api:runs')}?owner=otto")
    assert answer.status_code == 400 and "proposer" in answer.json()["errors"][0]["message"]


def test_the_number_of_queries_does_not_grow_with_the_list(
    study: Study, runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "_PRECISION", 3600)  # else a slow machine notes again when the last request came
    client = as_("researcher")
    client.get(reverse("staff:runs", args=[study.slug]))  # the first request of a session notes when it came
    for address in (reverse("staff:runs", args=[study.slug]), reverse("api:runs")):
        counts = []
        for query in ("search=vote", "search=alpha", ""):  # two runs, one, three
            with CaptureQueriesContext(connection) as request:
                client.get(f"{address}?{query}")
            counts.append(len(request))
        assert len(set(counts)) == 1, (address, counts)


def test_pages_keep_the_filter(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN)
    copies = [
        Run(**{f.attname: getattr(run, f.attname) for f in Run._meta.fields if f.name != "id"}) for _ in range(24)
    ]
    Run.objects.bulk_create(copies)
    page = browse(f"{reverse('staff:runs', args=[study.slug])}?method=pate&page=2")
    assert len(page.context["page"]) == 5
    assert 'href="?method=pate&amp;page=1"' in page.text


# --- Comparison -------------------------------------------------------------------------------------------------------


def compared(study: Study, *runs: Run, user: str = "researcher") -> Any:
    query = "&".join(f"run={run.pk}" for run in runs)
    return browse(f"{reverse('staff:run_compare', args=[study.slug])}?{query}", user)


def test_runs_side_by_side(study: Study) -> None:
    cheap = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 20.0}}
    first = run_finish(run_start(study, title="First", share=0.5, **cheap))
    second = run_finish(
        run_start(study, title="Second", share=0.2, **cheap | {"aggregator": {"name": "gnmax", "sigma": 25.0}})
    )
    Run.objects.filter(pk=first.pk).update(
        approved_at=datetime(2026, 3, 1, 12, 0, 59, tzinfo=UTC), ended_at=datetime(2026, 3, 1, 12, 2, 1, tzinfo=UTC)
    )
    steps = run_ask(run_start(study, title="Steps", share=0.1, **STEPS_RUN))
    page = compared(study, second, first, steps)
    assert page.status_code == 200
    assert [title for title, _each in page.context["compared"]] == ["Second", "First", "Steps"], "in that order"
    parameters = dict(page.context["parameters"])
    assert parameters["σ, noise of the vote"] == ["25.0", "20.0", "–"]
    assert parameters["Method"][0] == parameters["Method"][1] == "teachers vote"
    assert "Private dataset" not in parameters, "the same in all of them"
    assert page.context["compared"][1][1].minutes == 2, "as between the times that are told"
    (labels, chart), (_steps, other) = page.context["charts"][:2]
    assert labels == "Share of the cap used against labels released"
    assert [series.name for series in chart.series] == ["Second", "First"]
    for each in (first, second):
        series = next(series for series in chart.series if series.name == each.title)
        assert max(value for value in series.values if value is not None) == pytest.approx(
            max(spent / budget["cap"] for spent, budget in zip(each.spent, each.plan["budgets"], strict=True))
        )
    assert [series.name for series in other.series] == ["Steps"]

    document = browse(f"{reverse('api:run-comparison')}?runs={second.pk},{first.pk}").json()
    assert document["parameters"] == [{"name": "choices.aggregator.sigma", "values": [25.0, 20.0]}]
    assert [each["run"]["title"] for each in document["runs"]] == ["Second", "First"]
    assert document["runs"][1]["minutes"] == 2 and document["runs"][1]["share"] == 0.5
    evaluation = StudentModel.objects.get(run=first).card["evaluation"]
    assert document["runs"][1]["interval"] == list(evaluation["interval"])


def test_runs_of_the_same_title_are_told_apart(study: Study) -> None:
    twins = [run_draft(study, **TABLE_RUN) for _ in range(2)]
    page = compared(study, *twins)
    assert [title for title, _each in page.context["compared"]] == ["A small run (1)", "A small run (2)"]
    assert "the same was asked for of all of them" in page.text


def test_a_rehearsal_tells_what_it_would_have_cost() -> None:
    study = rehearsal_with_table()
    done = run_finish(run_start(study, seed=1, **TABLE_RUN))
    draft = run_draft(study, **CLEAR_RUN)
    page = compared(study, done, draft, user="olga")
    assert page.status_code == 200
    assert f"ε {done.outcome['epsilons'][0]['spent']:.3f}" in page.text


def test_a_choice_that_cannot_be_compared_says_what_to_do(study: Study) -> None:
    runs = [run_draft(study, **TABLE_RUN) for _ in range(7)]
    page, api = reverse("staff:run_compare", args=[study.slug]), reverse("api:run-comparison")
    assert "No run is chosen" in compared(study).text
    assert "One run alone" in compared(study, runs[0]).text
    assert "One run alone" in compared(study, runs[0], runs[0]).text
    too_many = compared(study, *runs)
    assert too_many.status_code == 404 and "Choose at most 6" in too_many.text
    assert compared(study, *runs[:6]).status_code == 200
    wrong = browse(f"{page}?run={runs[0].pk}&run=x")
    assert wrong.status_code == 404 and "not there" in wrong.text
    one, other = runs[0].pk, run_draft(study_with_table("other"), **TABLE_RUN)
    for sent in ("", "x", f"{one}", f"{one},{one}", f"{one},{one}x", ",".join([str(one)] * 7)):
        answer = browse(f"{api}?runs={sent}")
        assert answer.status_code == 400 and answer.json()["errors"][0]["field"] == "runs", sent
    assert compared(study, runs[0], other).status_code == 404, "a run of another study"
    assert browse(f"{api}?runs={one},{other.pk}").status_code == 404
