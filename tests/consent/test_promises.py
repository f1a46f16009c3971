"""Changing promises: old and new odds, keeping a promise, and a separate yes to a weaker one."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from accounting.group_budgets import people_promised_more
from consent import selectors, services
from consent.models import ConsentEvent, DataHolder, Mail, Role, Study
from consent.people.exports import decisions
from consent.promises.status import level_changes
from consent.services.mail import mail_render
from consent.services.replays import _decisions_apply
from tests import factories
from tests.consent.conftest import Decide, answer, epsilon_of
from tests.factories import user_create
from tests.pages import as_, text
from training.services.drawings import head_counts_draw, head_counts_enter

pytestmark = pytest.mark.django_db


@pytest.fixture
def high(study: Study, holder: DataHolder, give: Decide) -> DataHolder:
    """Return someone who was promised odds of 56 in 100 at high protection, which now means 60 for new decisions."""
    give(holder, "HIGH")
    factories.policy_approve(study, 2, 4, 8)
    return holder


def send(browser: Client, holder: DataHolder, name: str, choice: str, **more: str):
    promise = {"promise": repr(selectors.promise_last(holder).epsilon)}
    return browser.post(reverse(f"consent:{name}", args=["digits"]), answer(holder.study, choice, **promise | more))


def test_pages_say_before_and_now_in_odds(high: DataHolder, hanna: User) -> None:
    for name in ("choice", "study"):
        page = text(as_(hanna).get(reverse(f"consent:{name}", args=["digits"])))
        assert "Did you take part? at most 56 in 100 at most 60 in 100" in page
        assert "Which of two records is yours? at most 61 in 100 at most 70 in 100" in page
        assert "You can keep what you were promised." in page
        sentence = "For people who choose this level now, a guess can be right at most 60 times in 100." in page
        assert sentence is (name == "choice"), "the study page says it only in the table"
    assert "up to 4 times (average) or 12 times (low)" in page, "one more answer does not change the others"


def test_weaker_promises_need_a_separate_yes(high: DataHolder, hanna: User) -> None:
    browser = as_(hanna)
    assert send(browser, high, "study", "HIGH").status_code == 302
    check = text(browser.get(reverse("consent:check", args=["digits"])))
    assert "Yes, I accept weaker protection: a guess about whether I took part can be right 60 times in 100" in check
    assert "Before, it could be right at most 56 times. A guess about which of two possible" in check
    assert "can be right 70 times in 100. Before, it could be right at most 61 times." in check, "harder question"
    assert send(browser, high, "decide", "HIGH").status_code == 422
    assert (epsilon_of(high), high.consent_events.count()) == (1, 1)
    send(browser, high, "decide", "HIGH", weaker="on")
    assert (epsilon_of(high), selectors.consent_current(high).epsilon_before) == (2, 1)


def test_the_promise_is_kept_after_a_form_that_has_to_be_answered(high: DataHolder, hanna: User) -> None:
    factories.form_publish(high.study, {"en": "More."}, renewal="required")
    browser = as_(hanna)
    assert "You can keep what you were promised" in text(browser.get(reverse("consent:choice", args=["digits"])))
    send(browser, high, "decide", "KEEP")
    event = selectors.consent_current(high)
    assert (event.level, event.policy.version, event.epsilon_before, epsilon_of(high)) == ("HIGH", 1, None, 1)
    assert list(selectors.promise_faults(high.study)) == []


def test_a_service_weakens_nothing_without_the_argument(high: DataHolder) -> None:
    form = selectors.consent_form_in_force(high.study)
    for wrong in (None, 0.5, 2.0):
        with pytest.raises(ValidationError):
            services.consent_give(holder=high, level="HIGH", form=form, acting_user=None, accepts_weaker_than=wrong)
    with pytest.raises(ValidationError, match="promise made to you has changed"):
        services.consent_keep(holder=high, epsilon=2.0, form=form, acting_user=None)
    assert epsilon_of(high) == 1
    services.consent_withdraw(holder=high, acting_user=None)
    with pytest.raises(ValidationError, match="agree to it separately"):
        services.consent_give(holder=high, level="HIGH", form=form, acting_user=None)
    services.consent_keep(holder=high, epsilon=1.0, form=form, acting_user=None)
    assert epsilon_of(high) == 1, "people who return keep their earlier promise"
    assert [row["policy_version"] for row in decisions(high.study)] == [1, None, 2], "no export reveals a kept promise"


def test_an_answer_from_an_outdated_tab_accepts_no_changed_promise(high: DataHolder, hanna: User) -> None:
    browser = as_(hanna)
    send(browser, high, "decide", "HIGH", weaker="on")
    assert send(browser, high, "decide", "KEEP", promise="1.0").status_code == 422
    assert send(browser, high, "decide", "LOW", promise="1.0", weaker="on").status_code == 422
    assert epsilon_of(high) == 2
    assert send(browser, high, "decide", "NONE", promise="1.0").status_code == 302, "withdrawing needs no promise"


def test_mails_say_what_every_level_meant_before(high: DataHolder, hanna: User) -> None:
    hanna.emailaddress_set.create(email="hanna@example.org", verified=True, primary=True)
    policy = selectors.policy_in_force(high.study)
    for kind, about in (("new_policy", policy.pk), ("new_form", selectors.consent_form_in_force(high.study).pk)):
        body = mail_render(Mail(user=hanna, kind=kind, study=high.study, about=str(about))).body
        assert "high protection: before at most 56 times in 100, now at most 60 times in 100" in body
        assert "high protection: before at most 61 times in 100, now at most 70 times in 100" in body
        assert "If two answers are equally likely beforehand" in body, "odds are given with their condition"
        assert "Their protection becomes weaker only if they agree to" in body
    assert [change.now.right_guesses for change in level_changes(high.study)] == [60, 68, 80]


@pytest.mark.parametrize("yes", [None, 1.5])
def test_a_weaker_promise_written_without_the_services_is_found(high: DataHolder, yes: float | None) -> None:
    form, policy = selectors.consent_form_in_force(high.study), selectors.policy_in_force(high.study)
    fields = {"kind": "changed", "level": "HIGH", "form": form, "policy": policy, "epsilon_before": yes}
    ConsentEvent.append([ConsentEvent(study=high.study, holder=high, **fields)])
    (fault,) = selectors.promise_faults(high.study)
    assert fault.startswith("decision 2: weakens the promise")


def test_a_replay_weakens_nothing(study: Study, holder: DataHolder, give: Decide) -> None:
    """A weaker answer to outdated pages does not replace a stronger promise that a restored database forgot."""
    give(holder, "LOW")
    lost = ConsentEvent.from_act(give(factories.holder_create(study, "P-2"), "HIGH").as_act())
    lost.holder = holder
    lost.recorded_at = holder.consent_events.get().recorded_at - timedelta(minutes=1)
    _decisions_apply([lost])
    assert epsilon_of(holder) == 1
    assert list(selectors.promise_faults(study)) == []


def test_accepting_one_promise_does_not_give_up_a_lost_one(study: Study, holder: DataHolder, give: Decide) -> None:
    """Someone agreed to less than low protection on a page that had forgotten their high protection."""
    give(holder, "LOW")
    lost = ConsentEvent.from_act(give(factories.holder_create(study, "P-2"), "HIGH").as_act())
    lost.holder = holder
    factories.policy_approve(study, 2, 4, 8)
    since = give(holder, "LOW")
    assert since.epsilon_before == 3 and since.recorded_at > lost.recorded_at
    _decisions_apply([lost])
    assert epsilon_of(holder) == 1, "they accepted 3, but 1 was promised"
    assert list(selectors.promise_faults(study)) == []


def test_the_committee_sees_only_released_counts(study: Study, give: Decide) -> None:
    proposer = factories.member(study, "carla", Role.COMMITTEE)
    carla = as_(proposer)
    values = {"high": 2, "average": 2.5, "low": 2.9, "reason": "More is learned."}
    policy = services.epsilon_policy_propose(study=study, acting_user=proposer, **values)
    page = reverse("staff:policy_new", args=[study.slug])
    assert "how many, because no head counts were taken" in text(carla.post(page, values))
    olga = user_create("olga")
    head_counts_enter(study=study, acting_user=olga, counts={"HIGH": 1300, "AVERAGE": 2, "LOW": 70})
    shown = text(carla.post(page, values))
    assert "About 1,302 people would be asked to accept a weaker promise." in shown
    give(factories.holder_create(study, "one more"), "HIGH")
    assert text(carla.post(page, values)) == shown, "consents are ignored"
    services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))
    form = factories.form_propose(study, {"en": "More."})
    page = text(carla.get(reverse("staff:consent_form_proposal", args=[study.slug, form.sequence])))
    assert "About 1,302 people would be asked to accept a weaker promise." in page, "also for a form that asks again"
    head_counts_draw(study=study, acting_user=olga)
    assert people_promised_more(study, policy).sigma > 0
