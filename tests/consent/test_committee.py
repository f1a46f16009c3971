"""Decisions of the ethics committee: quorum, conditions and deadlines."""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from consent import selectors, services
from consent.committee import committee_state, conditions_in_force
from consent.models import ConflictOfInterest, ConsentFormProposal, EpsilonPolicy, Mail, Remark, Role, Study
from consent.people.circumstances import day_of
from consent.selectors import is_waiting
from consent.services import proposal_approve
from consent.services.committee import overdue_mails_send
from consent.services.mail import mail_render
from tests import factories
from tests.clock import Clock
from tests.factories import user_create
from tests.pages import as_, roles_fill, text, url

pytestmark = pytest.mark.django_db

VALUES = {"high": 0.5, "average": 1.0, "low": 2.0, "reason": "Stricter."}


def proposed(study: Study, by: str = "carla", **fields: Any) -> EpsilonPolicy:
    return services.epsilon_policy_propose(study=study, acting_user=user_create(by), **{**VALUES, **fields})


def quorum_of_two(study: Study) -> Study:
    return services.quorum_set(study=study, acting_user=user_create("chris"), quorum=2)


def test_a_policy_takes_effect_with_the_last_approval_of_its_quorum() -> None:
    study = quorum_of_two(factories.study_open())
    before, policy, conrad = selectors.policy_in_force(study), proposed(study), user_create("conrad")
    with pytest.raises(ValidationError, match="0 of 2 approvals so far"):
        services.epsilon_policy_approve(policy=policy, acting_user=conrad)
    with pytest.raises(ValidationError, match="You proposed this"):
        proposal_approve(proposal=policy, acting_user=user_create("carla"))
    with pytest.raises(ValidationError):
        services.proposal_remark(proposal=policy, acting_user=conrad, kind=Remark.Kind.APPROVAL, text="Yes.")
    assert not selectors.approvals_of(policy)
    assert proposal_approve(proposal=policy, acting_user=conrad) is None
    assert selectors.policy_in_force(study) == before and selectors.is_waiting(policy)
    with pytest.raises(ValidationError, match="You have already approved this, perhaps with"):
        proposal_approve(proposal=policy, acting_user=conrad)
    assert proposal_approve(proposal=policy, acting_user=user_create("cleo")) is not None
    assert selectors.policy_in_force(study) == policy


def test_the_quorum_does_not_change_while_something_waits() -> None:
    study = factories.study_open()
    policy = proposed(study)
    with pytest.raises(ValidationError, match="approval"):
        quorum_of_two(study)
    rejection = Remark.Kind.REJECTION
    services.proposal_remark(proposal=policy, acting_user=user_create("conrad"), kind=rejection, text="No.")
    assert quorum_of_two(study).quorum == 2


def test_a_form_is_published_with_the_last_approval_of_its_quorum() -> None:
    study = quorum_of_two(factories.study_open())
    proposal = factories.form_propose(study, {"en": "Read more.", "de": "Mehr lesen."})
    assert proposal_approve(proposal=proposal, acting_user=user_create("conrad")) is None
    assert proposal_approve(proposal=proposal, acting_user=user_create("cleo")) is not None
    form = selectors.consent_form_in_force(study)
    assert form is not None and form.proposal == proposal


def test_decisions_of_deleted_accounts_stay_valid() -> None:
    study = quorum_of_two(factories.study_open())
    policy = proposed(study, by="paula")
    conrad = user_create("conrad")
    proposal_approve(proposal=policy, acting_user=conrad, conditions="A report after six months.")
    conrad.delete()
    assert committee_state(study).waiting[0].given == 1
    assert proposal_approve(proposal=policy, acting_user=user_create("cleo")) is not None
    User.objects.get(username="paula").delete()
    assert [remark.text for remark in conditions_in_force(study)] == ["A report after six months."]
    history = committee_state(study).history
    assert {"A report after six months.", "Stricter."} <= {entry.text for entry in history}
    services.quorum_set(study=study, acting_user=user_create("chris"), quorum=1)
    factories.policy_approve(study)
    assert conditions_in_force(study) == [], "conditions belong to the earlier policy"


def test_member_with_a_conflict_of_interest_approves_nothing_in_that_study() -> None:
    study, other = factories.study_open(), factories.study_open("other")
    conrad = user_create("conrad")
    services.conflict_declare(study=study, acting_user=conrad, reason="I own shares of the controller.")
    with pytest.raises(ValidationError, match="conflict of interest"):
        services.epsilon_policy_approve(policy=proposed(study), acting_user=conrad)
    form = factories.form_propose(study, {"en": "Read more.", "de": "Mehr lesen."})
    with pytest.raises(ValidationError, match="conflict of interest"):
        services.consent_form_approve(proposal=form, acting_user=conrad)
    services.epsilon_policy_approve(policy=proposed(other), acting_user=conrad)
    with pytest.raises(ValidationError, match="already"):
        services.conflict_declare(study=study, acting_user=conrad, reason="Again.")
    assert [conflict.user for conflict in committee_state(study).conflicts] == [conrad]
    assert list(ConflictOfInterest.chain_faults(study.pk)) == []


def test_a_level_whose_name_says_too_much_needs_a_reason() -> None:
    study = factories.study_open()
    proposed(study, low=5.0)
    with pytest.raises(ValidationError, match="low protection"):
        proposed(study, low=8.0)
    policy = proposed(study, low=8.0, name_reason="The records are of machines.")
    assert policy.name_reason == "The records are of machines."


def test_a_study_opens_only_with_an_example_of_harm() -> None:
    study, carla = factories.study_create(harm=""), user_create("carla")
    factories.form_publish(study)
    policy = proposed(study)
    with pytest.raises(ValidationError, match="The ethics committee has not written an example"):
        services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))
    assert committee_state(study).missing[0] == "an example of harm"
    services.harm_write(study=study, acting_user=carla, texts=factories.HARM)
    services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))
    study.refresh_from_db()
    assert committee_state(study).is_open
    with pytest.raises(ValidationError, match="Data holders base their decisions on this"):
        services.harm_write(study=study, acting_user=carla, texts={"en": "Nothing happens."})
    bilingual = factories.study_create("bilingual", harm="", languages=["en", "de"])
    for german, says in (("", "Deutsch"), ("x" * 241, "at most 240")):
        with pytest.raises(ValidationError, match=says):
            services.harm_write(study=bilingual, acting_user=carla, texts={"en": "An insurer.", "de": german})


@pytest.fixture
def staffed(clock: Clock, study: Study) -> Study:
    clock.days_pass(40)
    Mail.objects.all().delete()
    return roles_fill(study)


def propose(study: Study, days: int | None = None, *, clock: Clock) -> EpsilonPolicy:
    answer_by = None if days is None else day_of(clock.moment) + timedelta(days=days)
    return proposed(study, by="committee", answer_by=answer_by)


def propose_form(study: Study, days: int, *, clock: Clock) -> ConsentFormProposal:
    texts = {"en": "# Other words", "de": "# Andere Worte"}
    committee, day = user_create("committee"), day_of(clock.moment) + timedelta(days=days)
    return services.consent_form_propose(study=study, acting_user=committee, texts=texts, answer_by=day)


def test_the_deadline_is_two_weeks_unless_a_proposal_names_a_day(staffed: Study, clock: Clock) -> None:
    today = day_of(clock.moment)
    for act, days in ((propose, -1), (propose, 366), (propose_form, -1), (propose_form, 366)):
        with pytest.raises(ValidationError, match="Enter today or a day within the next"):
            act(staffed, days, clock=clock)
    assert not EpsilonPolicy.objects.filter(version=2).exists()
    assert propose(staffed, clock=clock).answer_by == today + timedelta(days=14)
    assert propose(staffed, 3, clock=clock).answer_by == today + timedelta(days=3)
    assert propose_form(staffed, 5, clock=clock).answer_by == today + timedelta(days=5)


def test_chairs_get_one_mail_and_silence_decides_nothing(staffed: Study, clock: Clock) -> None:
    chair, second = user_create("chair"), factories.member(staffed, "second", Role.CHAIR)
    for user in (chair, second):
        EmailAddress.objects.create(user=user, email=f"{user}@example.org", verified=True, primary=True)
    policy, form = propose(staffed, 3, clock=clock), propose_form(staffed, 4, clock=clock)
    clock.days_pass(3)
    assert overdue_mails_send() == 0, "the day itself is not overdue"
    clock.days_pass(1)
    assert [overdue_mails_send(), overdue_mails_send()] == [2, 0]
    clock.days_pass(1)
    assert [overdue_mails_send(), overdue_mails_send()] == [2, 0]
    mails = Mail.objects.filter(kind__endswith="_overdue")
    recipients = {(mail.kind, mail.user.username) for mail in mails}
    assert recipients == {*itertools.product(("form_overdue", "policy_overdue"), ("chair", "second"))}
    for mail in mails:
        assert "stays pending until someone approves or rejects it" in " ".join(mail_render(mail).body.split())
    clock.days_pass(400)
    assert is_waiting(policy) and is_waiting(form)
    services.proposal_approve(proposal=policy, acting_user=chair)


def test_no_mail_is_sent_about_decided_corrected_or_closed(staffed: Study, clock: Clock) -> None:
    policy = propose(staffed, 1, clock=clock)
    services.proposal_approve(proposal=policy, acting_user=user_create("chair"))
    shorter = (("handwriting", "writing"), ("Handschrift", "Schrift"))
    texts = {code: words.replace(*shorter[code == "de"]) for code, words in factories.FORM.items()}
    committee = user_create("committee")
    correction = services.consent_form_correct(study=staffed, acting_user=committee, texts=texts)
    assert correction.answer_by is None
    assert "14 days left" in text(as_("chair").get(url("committee", staffed))), "days left to object"
    clock.days_pass(30)
    assert overdue_mails_send() == 0
    propose_form(staffed, 1, clock=clock)
    clock.days_pass(5)
    Study.objects.update(closed_at=clock.now())
    assert overdue_mails_send() == 0
