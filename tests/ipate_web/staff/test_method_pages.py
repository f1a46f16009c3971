"""Proposing, approving and watching runs in which every holder votes, or that take private gradient steps."""

import re
from functools import partial

import pytest

from consent.models import Study
from tests.pages import as_, run_form_filled, study_with_roles, url
from training.models import Run

pytestmark = pytest.mark.django_db

#: Data that a browser sends for the form as it was opened.
filled_in = partial(run_form_filled, title="Asked", method="neighbours")


@pytest.fixture
def study() -> Study:
    return study_with_roles(holders=60)


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
    for words in ("Votes in the first round", "labelled points of the test dataset", votes):
        assert words in page.text, words
    unlabelled = as_("operator").post(url("run_new", study), filled_in(study, test_dataset=None)).text
    assert "This is an assumption, because no public points are" in unlabelled


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
    assert "Radius, in percent of the public points</dt><dd>2.5 %" in client.get(url("run", run)).text
    form = client.get(new, {"like": str(run.pk)}).context["form"]
    offered = changes | {"asking-stated-embedding": None, "asking-embedded": True}
    assert {name: form[name].value() for name in offered} == offered


def test_operators_and_stewards_state_where_public_points_come_from(study: Study) -> None:
    public, private = study.datasets.get(kind="public"), study.datasets.get(kind="private")
    message = "The source of the public points is missing"
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
