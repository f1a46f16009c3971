"""Policy pages: the consequences of a policy, before and during its approval."""

from datetime import timedelta

import pytest
from django.utils import timezone

from consent import selectors, services
from consent.models import EpsilonPolicy, Study
from tests import factories
from tests.pages import as_, text
from tests.snapshots import built_once
from tests.training.runs import study_with_consents

pytestmark = pytest.mark.django_db

BASE = "/studies/digits/policies/"
EPSILONS = {"high": "0.5", "average": "2", "low": "5"}


@pytest.fixture
@built_once
def study() -> Study:
    """Nine holders, three at each level, at ε 1, 2, 3."""
    return factories.committee_fill(study_with_consents())


def propose(study: Study) -> EpsilonPolicy:
    values = {name: float(value) for name, value in EPSILONS.items()}
    return services.epsilon_policy_propose(
        study=study, acting_user=factories.user_create("carla"), reason="Better so.", **values
    )


def test_odds_are_shown_while_typing_and_nothing_is_saved(study: Study) -> None:
    page = text(as_("carla").post(BASE + "odds/", EPSILONS))
    assert "High protection now 56 → proposed 53 applies at once now 61 → proposed 56 now 1 → proposed 0.5" in page
    assert "Low protection now 65 → proposed 72 only after they consent anew now 77 → proposed 87 now 3" in page
    assert EpsilonPolicy.objects.count() == 1


def test_a_revealing_level_name_is_warned_of(study: Study) -> None:
    message = "The name “average protection” says too much for ε = 4."
    assert message not in text(as_("carla").post(BASE + "odds/", {"high": "1", "average": "3", "low": "5"}))
    shown = text(as_("carla").post(BASE + "odds/", {"high": "1", "average": "4", "low": "5"}))
    assert message in shown
    assert "could be right 68 times in 100; under this name it should be at most 66" in shown
    assert "“high protection” says" not in shown
    assert "says too much" not in text(as_("carla").get(BASE))
    factories.policy_approve(study, 1, 4, 5)
    assert message in text(as_("carla").get(BASE))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**EPSILONS, "high": "3"}, "must rise from high to low protection"),
        ({**EPSILONS, "low": "11"}, "cap of 10"),
        ({**EPSILONS, "low": ""}, "Give all three values"),
        ({**EPSILONS, "low": "many"}, "Give all three values"),
    ],
)
def test_values_that_cannot_be_say_why_while_typing(study: Study, values: dict[str, str], message: str) -> None:
    assert message in text(as_("carla").post(BASE + "odds/", values))


def test_consequences_count_the_holders_whom_a_policy_reaches(study: Study) -> None:
    factories.policy_approve(study, 0.5, 1.5, 4)  # HIGH and AVERAGE have less at once, LOW stays at 3
    factories.consent_choose(
        holder=study.holders.get(pseudonym="P-2"),
        level="LOW",
        form=selectors.consent_form_in_force(study),
        acting_user=None,
    )  # and one consents to 4
    policy = EpsilonPolicy(high=0.5, average=2, low=3.5)
    assert selectors.policy_consequences(study, policy) == {
        "HIGH": selectors.Consequence(at_once=0, protected=0, unchanged=3),
        "AVERAGE": selectors.Consequence(at_once=0, protected=3, unchanged=0),
        "LOW": selectors.Consequence(at_once=1, protected=2, unchanged=0),
    }


def test_the_second_person_sees_whom_it_reaches_and_no_exact_number(study: Study) -> None:
    propose(study)
    page = text(as_("conrad").get(BASE + "2/approve/"))
    for message in ("applies at once", "no change", "only after they consent anew", "Better so."):
        assert message in page
    assert "3: " not in page


def test_a_policy_is_approved_for_a_later_date(study: Study) -> None:
    propose(study)
    tomorrow = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    page = text(as_("conrad").post(BASE + "2/approve/", {"effective_from": tomorrow}, follow=True))
    assert "counts from the date that you gave" in page
    assert "not yet" in page
    assert selectors.policy_in_force(study).version == 1
    assert selectors.policy_in_force(study, timezone.now() + timedelta(days=2)).version == 2


def test_a_policy_for_a_later_date_is_told_to_give_way_to_a_newer_one(study: Study) -> None:
    tomorrow = timezone.now() + timedelta(days=1)
    factories.policy_approve(study, 1, 2, 4, effective_from=tomorrow)
    assert "ε policy, version 2, comes into force" in text(as_("conrad").get("/studies/digits/committee/"))
    factories.policy_approve(study, 0.5, 1, 1.5)
    assert "ε policy, version 2, comes into force" not in text(as_("conrad").get("/studies/digits/committee/"))
    page = text(as_("conrad").get(BASE))
    assert "never: a newer one took its place" in page
    assert "not yet" not in page


def test_a_date_in_the_past_is_refused(study: Study) -> None:
    propose(study)
    page = as_("conrad").post(BASE + "2/approve/", {"effective_from": "2020-01-01T00:00"})
    assert page.status_code == 422
    assert "This moment has passed" in text(page)
    assert selectors.policy_in_force(study).version == 1
