"""Tests of what the ethics committee decides: quorum, conditions, conflicts of interest, example of harm, names."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from consent import selectors, services
from consent.committee import committee_state, conditions_in_force
from consent.models import ConflictOfInterest, EpsilonPolicy, Remark, Study
from consent.services import proposal_approve
from tests import factories
from tests.factories import user_create

pytestmark = pytest.mark.django_db

VALUES = {"high": 0.5, "average": 1.0, "low": 2.0, "reason": "Stricter."}


def proposed(study: Study, **fields: Any) -> EpsilonPolicy:
    return services.epsilon_policy_propose(study=study, acting_user=user_create("carla"), **{**VALUES, **fields})


def quorum_of_two(study: Study) -> Study:
    return services.quorum_set(study=study, acting_user=user_create("chris"), quorum=2)


def test_a_policy_counts_with_the_last_approval_that_the_quorum_asks_for() -> None:
    study = quorum_of_two(factories.study_open())
    before, policy, conrad = selectors.policy_in_force(study), proposed(study), user_create("conrad")
    with pytest.raises(ValidationError, match="0 of 2 approvals are there"):
        services.epsilon_policy_approve(policy=policy, acting_user=conrad)
    with pytest.raises(ValidationError, match="not by the one who proposed it"):
        proposal_approve(proposal=policy, acting_user=user_create("carla"))
    with pytest.raises(ValidationError):
        services.proposal_remark(proposal=policy, acting_user=conrad, kind=Remark.Kind.APPROVAL, text="Yes.")
    assert not selectors.approvals_of(policy)
    assert proposal_approve(proposal=policy, acting_user=conrad) is None
    assert selectors.policy_in_force(study) == before and selectors.is_waiting(policy)
    with pytest.raises(ValidationError, match="approved this already"):
        proposal_approve(proposal=policy, acting_user=conrad)
    assert proposal_approve(proposal=policy, acting_user=user_create("cleo")) is not None
    assert selectors.policy_in_force(study) == policy


def test_the_quorum_does_not_change_while_something_waits() -> None:
    study = factories.study_open()
    policy = proposed(study)
    with pytest.raises(ValidationError, match="waits for approval"):
        quorum_of_two(study)
    rejection = Remark.Kind.REJECTION
    services.proposal_remark(proposal=policy, acting_user=user_create("conrad"), kind=rejection, text="No.")
    assert quorum_of_two(study).quorum == 2


def test_a_form_is_published_with_the_last_approval_that_the_quorum_asks_for() -> None:
    study = quorum_of_two(factories.study_open())
    proposal = factories.form_propose(study, {"en": "Read more.", "de": "Mehr lesen."})
    assert proposal_approve(proposal=proposal, acting_user=user_create("conrad")) is None
    assert proposal_approve(proposal=proposal, acting_user=user_create("cleo")) is not None
    form = selectors.consent_form_in_force(study)
    assert form is not None and form.proposal == proposal


def test_what_somebody_did_whose_account_is_gone_stands_and_counts() -> None:
    study = quorum_of_two(factories.study_open())
    policy = services.epsilon_policy_propose(study=study, acting_user=user_create("paula"), **VALUES)
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
    assert conditions_in_force(study) == [], "they were of the policy before"


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
    with pytest.raises(ValidationError, match="no example of harm"):
        services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))
    assert committee_state(study).missing[0] == "an example of harm"
    services.harm_write(study=study, acting_user=carla, texts=factories.HARM)
    services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))
    study.refresh_from_db()
    assert committee_state(study).is_open
    with pytest.raises(ValidationError, match="cannot change any more"):
        services.harm_write(study=study, acting_user=carla, texts={"en": "Nothing happens."})
    bilingual = factories.study_create("bilingual", harm="", languages=["en", "de"])
    for german, says in (("", "Deutsch"), ("x" * 241, "at most 240")):
        with pytest.raises(ValidationError, match=says):
            services.harm_write(study=bilingual, acting_user=carla, texts={"en": "An insurer.", "de": german})
