"""Pages of policies and of the ethics committee: odds, consequences, forecasts, quorum, conflicts, harm."""

from typing import Any

import pytest

from accounting.shares import share_free
from consent import selectors, services
from consent.models import ConflictOfInterest, EpsilonPolicy, Study
from learning.mechanisms.neighbours.rounds import NeighbourChoices
from tests import factories
from tests.pages import as_, text, url
from tests.snapshots import built_once
from tests.training.asking import CLEAR_RUN
from tests.training.runs import run_start, study_with_consents, study_with_table
from training.methods import method_of
from training.models import Run
from training.services.drawings import head_counts_enter

pytestmark = pytest.mark.django_db

BASE, COMMITTEE = "/studies/digits/policies/", "/studies/digits/committee/"
APPROVE = BASE + "2/approve/"
EPSILONS = {"high": "0.5", "average": "2", "low": "5"}
SENT = EPSILONS | {"reason": "High should mean more.", "confirmed": "1"}


@pytest.fixture
@built_once
def study() -> Study:
    """Return nine holders, three each at ε 1, 2 and 3; ``carla`` and ``conrad`` decide, and ``chris`` is the chair."""
    return factories.members_add(study_with_consents(), carla="committee", conrad="committee", chris="chair")


def propose(study: Study, **fields: Any) -> EpsilonPolicy:
    values = {name: float(value) for name, value in EPSILONS.items()} | {"reason": "Better so."} | fields
    return services.epsilon_policy_propose(study=study, acting_user=factories.user_create("carla"), **values)


def test_odds_are_shown_while_typing_and_before_a_policy_is_proposed(study: Study) -> None:
    carla = as_("carla")
    page = text(carla.post(BASE + "odds/", EPSILONS))
    assert "High protection now 56 → proposed 53 applies immediately now 61 → proposed 56 now 1 → proposed 0.5" in page
    assert "Low protection now 65 → proposed 72 only after they consent again now 77 → proposed 87 now 3" in page
    page = carla.post(BASE + "new/", EPSILONS | {"reason": "High should mean more."})
    rows = page.context["comparison"]
    guesses = [(row["before"].right_guesses, row["after"].right_guesses) for row in rows]
    assert guesses == [(56, 53), (60, 60), (65, 72)]
    for consequence in ("applies immediately", "no change", "only after they consent again"):
        assert consequence in page.text
    assert EpsilonPolicy.objects.count() == 1, "nothing is saved"
    carla.post(BASE + "new/", SENT)
    assert EpsilonPolicy.objects.count() == 2
    assert selectors.policy_in_force(study).version == 1, "it takes effect only after a second person approves it"


def test_a_revealing_level_name_is_warned_of(study: Study) -> None:
    message = "The name “average protection” promises too much for ε = 4."
    assert message not in text(as_("carla").post(BASE + "odds/", {"high": "1", "average": "3", "low": "5"}))
    shown = text(as_("carla").post(BASE + "odds/", {"high": "1", "average": "4", "low": "5"}))
    assert message in shown
    assert "could be right 68 times in 100; under this name it should be at most 66" in shown
    assert "“high protection” says" not in shown
    assert "times in 100; under this name it should be" not in text(as_("carla").get(BASE))
    factories.policy_approve(study, 1, 4, 5)
    assert message in text(as_("carla").get(BASE))


def test_consequences_count_the_affected_holders(study: Study) -> None:
    factories.policy_approve(study, 0.5, 1.5, 4)  # HIGH and AVERAGE become smaller at once, LOW stays at 3
    holder, form = study.holders.get(pseudonym="P-2"), selectors.consent_form_in_force(study)
    factories.consent_choose(holder=holder, level="LOW", form=form)  # and one person consents to 4
    policy = EpsilonPolicy(high=0.5, average=2, low=3.5)
    assert selectors.policy_consequences(study, policy) == {
        "HIGH": selectors.Consequence(at_once=0, protected=0, unchanged=3),
        "AVERAGE": selectors.Consequence(at_once=0, protected=3, unchanged=0),
        "LOW": selectors.Consequence(at_once=1, protected=2, unchanged=0),
    }


def test_a_second_person_sees_who_is_affected_and_approves(study: Study) -> None:
    propose(study)
    proposer, conrad = as_("carla"), as_("conrad")
    page = proposer.get(APPROVE).text
    assert "You proposed this policy yourself, so another" in page and "Approve policy" not in page
    assert "You proposed this policy, so a second person" in proposer.post(APPROVE, follow=True).text
    assert selectors.policy_in_force(study).version == 1
    assert "Version 2 is waiting for a second person" in conrad.get(BASE).text
    page = text(conrad.get(APPROVE))
    for message in ("applies immediately", "no change", "only after they consent again", "Better so."):
        assert message in page
    assert "3: " not in page, "no exact number"
    late = conrad.post(APPROVE, {"effective_from": "2020-01-01T00:00"})
    assert late.status_code == 422 and "This time is in the past" in text(late)
    assert selectors.policy_in_force(study).version == 1
    conrad.post(APPROVE)
    assert selectors.policy_in_force(study).version == 2
    assert "waiting for a second person" not in conrad.get(BASE).text


def test_a_declared_conflict_blocks_the_members_next_approval(study: Study) -> None:
    page = text(as_("conrad").post(COMMITTEE, {"reason": "I own shares.", "conflict": "1"}, follow=True))
    assert "I own shares." in page and "Declare a conflict of interest" not in page
    assert as_("olga").post(COMMITTEE, {"reason": "Mine.", "conflict": "1"}).status_code == 403
    assert ConflictOfInterest.objects.count() == 1
    propose(study)
    assert "conflict of interest" in text(as_("conrad").post(APPROVE, {"effective_from": ""}, follow=True))
    assert selectors.policy_in_force(study).version == 1


SAME = {"high": "1", "average": "2", "low": "3"}
SMALLER = {"high": "0.2", "average": "0.3", "low": "0.4"}
HOLDERS = {"holders-HIGH": "300", "holders-AVERAGE": "400", "holders-LOW": "200"}


@pytest.fixture
@built_once
def table() -> Study:
    return factories.committee_fill(study_with_table())


def forecast_page(study: Study, values: dict[str, str], *, htmx: bool = True, **changes: str) -> Any:
    sent = {"public_dataset": str(study.datasets.get(kind="public").pk), **HOLDERS, **values, **changes}
    return as_("carla").post(url("policy_affordable", study), sent, headers={"HX-Request": "true"} if htmx else {})


def test_the_forecast_for_policies_equals_a_plan_with_one_round(table: Study) -> None:
    counts = {level: int(HOLDERS[f"holders-{level}"]) for level in ("HIGH", "AVERAGE", "LOW")}
    head_counts_enter(study=table, acting_user=factories.user_create("olga"), counts=counts)
    datasets = {f"{kind}_dataset": table.datasets.get(kind=kind) for kind in ("private", "public", "test")}
    run = Run(study=table, method="neighbours", choices=NeighbourChoices().to_json(), wanted_labels=9, **datasets)
    plan = method_of(run).plan(run, 1.0)
    for each in forecast_page(table, SAME, wanted_labels="9").context["forecasts"]:
        assert each["affordable"].forecast.labels == plan.forecasts[0]
        assert each["affordable"].forecast.queries == 9
        assert [row["forecast"].spent for row in each["levels"]] == [level.spent for level in plan.turnout.levels]
        assert [row["left"] for row in each["levels"]] == [1 - level.spent for level in plan.turnout.levels]
    curve, *marks, together = forecast_page(table, SAME).context["chart"].series
    right = [value for value in curve.values if value is not None]
    assert [len(set(mark.values) - {None}) for mark in marks] == [1, 1, 1], "the three values are on the curve"
    assert min(right) <= together.limit <= max(right)


def test_forecasts_report_too_few_people_and_missing_levels_and_use_the_whole_cap(table: Study) -> None:
    few = forecast_page(table, SMALLER, **dict.fromkeys(HOLDERS, "9"))
    assert "There are too few people for these promises" in text(few)
    assert "too few people" not in text(forecast_page(table, {"high": "5", "average": "6", "low": "7"}))
    assert "no one takes part" in text(forecast_page(table, SMALLER, **dict.fromkeys(HOLDERS, "0")))
    page = forecast_page(table, SMALLER, **{"holders-HIGH": "0"})
    assert [row["forecast"] is None for row in page.context["forecasts"][1]["levels"]] == [True, False, False]
    for values, changes, message in (
        ({**SAME, "high": ""}, {}, "Enter all three values of ε, increasing from"),
        (SAME, {"holders-LOW": ""}, "Holders at low protection: This field is required."),
        (SAME, {"wanted_labels": "0"}, "Number of labels needed"),
        (SAME, {"public_dataset": "0"}, "Public dataset"),
    ):
        page = forecast_page(table, values, **changes)
        assert message in text(page) and "forecasts" not in page.context, message
    before = text(forecast_page(table, SAME))
    run_start(table, **CLEAR_RUN, share=1.0)
    assert share_free(table) == 0 and text(forecast_page(table, SAME)) == before
