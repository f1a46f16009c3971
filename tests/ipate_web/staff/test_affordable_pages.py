"""The committee sees, while it sets ε, what a policy affords: from public values alone."""

import re
from typing import Any

import pytest
from django.template.defaultfilters import floatformat

from accounting.models import HeadCount
from accounting.shares import share_free
from consent import services
from consent.models import EpsilonPolicy, Role, Study
from learning.mechanisms.neighbours.choices import NeighbourChoices
from tests import factories
from tests.pages import as_, text, url
from tests.snapshots import built_once
from tests.training.asking import CLEAR_RUN
from tests.training.runs import run_start, study_with_table
from training.methods import method_of
from training.models import Run
from training.services.head_counts import head_counts_enter

pytestmark = pytest.mark.django_db

SAME = {"high": "1", "average": "2", "low": "3"}
SMALLER = {"high": "0.2", "average": "0.3", "low": "0.4"}
HOLDERS = {"holders-HIGH": "300", "holders-AVERAGE": "400", "holders-LOW": "200"}


@pytest.fixture
@built_once
def study() -> Study:
    study = study_with_table(holders=60, points=40)
    for name in ("carla", "conrad"):
        services.membership_add(study=study, user=factories.user_create(name), role=Role.COMMITTEE, acting_user=None)
    return study


def forecast_page(study: Study, values: dict[str, str], *, htmx: bool = True, **changes: str) -> Any:
    sent = {"public_dataset": str(study.datasets.get(kind="public").pk), **HOLDERS, **values, **changes}
    return as_("carla").post(url("policy_affordable", study), sent, headers={"HX-Request": "true"} if htmx else {})


@pytest.mark.slow
def test_the_values_in_force_stand_beside_the_proposed_ones(study: Study) -> None:
    page = forecast_page(study, SMALLER)
    now, proposed = page.context["forecasts"]
    for each in (now, proposed):
        forecast = each["affordable"].forecast.labels
        low, expected, high = forecast.low, forecast.value, forecast.high
        assert f"{100 * expected:.1f} % {100 * low:.1f} to {100 * high:.1f} %" in text(page)
        assert each["affordable"].forecast.queries == 40
        for row in each["levels"]:
            assert 0 <= row["left"] <= share_free(study)
            votes = (floatformat(row["forecast"].votes_cast, 1), floatformat(row["forecast"].votes_asked, 1))
            assert "{} of {}".format(*votes) in text(page)
    assert now["affordable"].forecast.margin > 2 * proposed["affordable"].forecast.margin
    for words in ("1 / 2 / 3", "0.2 / 0.3 / 0.4", "High protection", "labelled points of the test dataset"):
        assert words in text(page)
    assert "<html" not in page.text, "a part of the page"
    page = forecast_page(study, SMALLER, htmx=False)
    assert "<html" in page.text and "0.2 / 0.3 / 0.4" in text(page)
    assert EpsilonPolicy.objects.count() == 1


def test_it_is_what_the_plan_of_a_run_of_one_round_says(study: Study) -> None:
    counts = {level: int(HOLDERS[f"holders-{level}"]) for level in ("HIGH", "AVERAGE", "LOW")}
    head_counts_enter(study=study, acting_user=factories.user_create("olga"), counts=counts)
    datasets = {f"{kind}_dataset": study.datasets.get(kind=kind) for kind in ("private", "public", "test")}
    run = Run(study=study, method="neighbours", choices=NeighbourChoices().to_json(), wanted_labels=25, **datasets)
    plan = method_of(run).plan(run, 1.0)
    now, proposed = forecast_page(study, SAME, wanted_labels="25").context["forecasts"]
    for each in (now, proposed):
        assert each["affordable"].forecast.labels == plan.forecasts[0]
        assert each["affordable"].forecast.queries == 25
        assert [row["forecast"].spent for row in each["levels"]] == [level.spent for level in plan.turnout.levels]
        assert [row["left"] for row in each["levels"]] == [1 - level.spent for level in plan.turnout.levels]


@pytest.mark.slow
def test_too_few_people_are_warned_of(study: Study) -> None:
    page = forecast_page(study, SMALLER, **dict.fromkeys(HOLDERS, "9"))
    assert "Too few people for these promises" in text(page)
    assert "Too few people" not in text(forecast_page(study, {"high": "5", "average": "6", "low": "7"}))
    assert "nobody takes part" in text(forecast_page(study, SMALLER, **dict.fromkeys(HOLDERS, "0")))


def test_a_level_without_anybody_and_a_first_policy_are_ordinary(study: Study) -> None:
    page = forecast_page(study, SMALLER, **{"holders-HIGH": "0"})
    assert [row["forecast"] is None for row in page.context["forecasts"][1]["levels"]] == [True, False, False]
    new = factories.study_create("first")
    services.membership_add(study=new, user=factories.user_create("carla"), role=Role.COMMITTEE, acting_user=None)
    study.datasets.filter(kind="public").update(study=new)
    page = forecast_page(new, SMALLER)
    assert [each["title"] for each in page.context["forecasts"]] == ["ε proposed"]
    assert "An assumption, since no public points" in text(page), "no test dataset"


@pytest.mark.parametrize(
    ("values", "changes", "message"),
    [
        ({**SAME, "high": ""}, {}, "Give all three values of ε"),
        ({**SAME, "high": "3"}, {}, "Give all three values of ε"),
        (SAME, {"holders-LOW": ""}, "Holders at low protection: This field is required."),
        (SAME, {"wanted_labels": "0"}, "Labels wanted"),
        (SAME, {"public_dataset": "0"}, "Public dataset"),
    ],
)
def test_the_page_names_what_is_missing(
    study: Study, values: dict[str, str], changes: dict[str, str], message: str
) -> None:
    page = forecast_page(study, values, **changes)
    assert message in text(page) and "forecasts" not in page.context


def test_all_pages_of_a_proposal_offer_it(study: Study) -> None:
    counts = {"HIGH": 31, "AVERAGE": 41, "LOW": 51}
    head_counts_enter(study=study, acting_user=factories.user_create("olga"), counts=counts)
    why = {"reason": "Better so."}
    pages = [as_("carla").get(url("policy_new", study)), as_("carla").post(url("policy_new", study), SMALLER | why)]
    values = {name: float(value) for name, value in SMALLER.items()}
    policy = services.epsilon_policy_propose(study=study, acting_user=factories.user_create("carla"), **values, **why)
    pages.append(as_("conrad").get(url("policy_approve", study, policy.version)))
    for page in pages:
        assert "Show what is affordable" in page.text and "A forecast from public points and head counts" in page.text
        for level, count in counts.items():
            assert re.search(rf'name="holders-{level}" value="{count}"', page.text)
    for page in pages[1:]:
        assert '<input type="hidden" name="high" value="0.2">' in page.text


def test_without_points_or_head_counts_it_says_what_to_do(study: Study) -> None:
    HeadCount.objects.all().delete()
    page = as_("carla").get(url("policy_new", study))
    assert "There are no head counts yet. Give how many people you expect" in page.text
    new = factories.study_create("first")
    services.membership_add(study=new, user=factories.user_create("carla"), role=Role.COMMITTEE, acting_user=None)
    page = as_("carla").get(url("policy_new", new))
    assert "ask a data steward to import a public dataset" in page.text and "Show what is affordable" not in page.text


def test_a_share_that_is_taken_affords_nothing(study: Study) -> None:
    run_start(study, **CLEAR_RUN, share=1.0)
    assert "used or held for other runs" in text(forecast_page(study, SAME))


@pytest.mark.slow
def test_nobodys_consent_is_looked_at(study: Study) -> None:
    before = forecast_page(study, SMALLER).text
    for holder in study.holders.all()[:30]:
        services.consent_withdraw(holder=holder, acting_user=None)
    assert forecast_page(study, SMALLER).text == before
