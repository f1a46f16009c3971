"""Tests of what the ethics committee decides: quorum, conditions, conflicts of interest, example of harm, names."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from consent import selectors, services
from consent.committee import committee_state, conditions_in_force
from consent.models import ConflictOfInterest, EpsilonPolicy, Remark, Role, Study
from consent.services import proposal_approve
from tests import factories

pytestmark = pytest.mark.django_db

VALUES = {"high": 0.5, "average": 1.0, "low": 2.0, "reason": "Stricter."}


def person(study: Study, name: str, role: str = Role.COMMITTEE) -> User:
    user = factories.user_create(name)
    services.membership_add(study=study, user=user, role=role, acting_user=None)
    return user


def proposed(study: Study, **fields: Any) -> EpsilonPolicy:
    return services.epsilon_policy_propose(
        study=study, acting_user=factories.user_create("carla"), **{**VALUES, **fields}
    )


def test_a_policy_counts_with_the_last_approval_that_the_quorum_asks_for() -> None:
    study = factories.study_open()
    before = selectors.policy_in_force(study)
    services.quorum_set(study=study, acting_user=factories.user_create("chris"), quorum=2)
    policy = proposed(study)
    with pytest.raises(ValidationError, match="0 of 2 approvals are there"):
        services.epsilon_policy_approve(policy=policy, acting_user=factories.user_create("conrad"))
    assert proposal_approve(proposal=policy, acting_user=factories.user_create("conrad")) is None
    assert selectors.policy_in_force(study) == before and selectors.is_waiting(policy)
    with pytest.raises(ValidationError, match="approved this already"):
        proposal_approve(proposal=policy, acting_user=factories.user_create("conrad"))
    assert proposal_approve(proposal=policy, acting_user=factories.user_create("cleo")) is not None
    assert selectors.policy_in_force(study) == policy


def test_a_form_is_published_with_the_last_approval_that_the_quorum_asks_for() -> None:
    study = factories.study_open()
    services.quorum_set(study=study, acting_user=factories.user_create("chris"), quorum=2)
    proposal = factories.form_propose(study, {"en": "Read more.", "de": "Mehr lesen."})
    assert proposal_approve(proposal=proposal, acting_user=factories.user_create("conrad")) is None
    assert proposal_approve(proposal=proposal, acting_user=factories.user_create("cleo")) is not None
    form = selectors.consent_form_in_force(study)
    assert form is not None and form.proposal == proposal


def test_what_somebody_did_whose_account_is_gone_stands_and_counts() -> None:
    study = factories.study_open()
    services.quorum_set(study=study, acting_user=factories.user_create("chris"), quorum=2)
    policy = services.epsilon_policy_propose(study=study, acting_user=factories.user_create("paula"), **VALUES)
    conrad = factories.user_create("conrad")
    proposal_approve(proposal=policy, acting_user=conrad, conditions="A report after six months.")
    conrad.delete()
    assert committee_state(study).waiting[0].given == 1
    assert proposal_approve(proposal=policy, acting_user=factories.user_create("cleo")) is not None
    User.objects.get(username="paula").delete()
    assert [remark.text for remark in conditions_in_force(study)] == ["A report after six months."]
    history = committee_state(study).history
    assert "A report after six months." in [entry.text for entry in history]
    assert "Stricter." in [entry.text for entry in history]


def test_the_quorum_does_not_change_while_something_waits() -> None:
    study = factories.study_open()
    policy = proposed(study)
    with pytest.raises(ValidationError, match="waits for approval"):
        services.quorum_set(study=study, acting_user=factories.user_create("chris"), quorum=2)
    services.proposal_remark(
        proposal=policy, acting_user=factories.user_create("conrad"), kind=Remark.Kind.REJECTION, text="No."
    )
    assert services.quorum_set(study=study, acting_user=factories.user_create("chris"), quorum=2).quorum == 2


def test_a_proposer_is_none_of_the_quorum() -> None:
    study = factories.study_open()
    services.quorum_set(study=study, acting_user=factories.user_create("chris"), quorum=2)
    policy = proposed(study)
    with pytest.raises(ValidationError, match="not by the one who proposed it"):
        proposal_approve(proposal=policy, acting_user=factories.user_create("carla"))
    assert not selectors.approvals_of(policy)


def test_member_with_a_conflict_of_interest_approves_nothing_in_that_study() -> None:
    study, other = factories.study_open(), factories.study_open("other")
    conrad = factories.user_create("conrad")
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


def test_the_committee_page_shows_the_conditions_in_force_alone() -> None:
    study = factories.study_open()
    policy = proposed(study)
    proposal_approve(
        proposal=policy, acting_user=factories.user_create("conrad"), conditions="A report after six months."
    )
    assert [remark.text for remark in conditions_in_force(study)] == ["A report after six months."]
    factories.policy_approve(study)
    assert conditions_in_force(study) == []
    assert "A report after six months." in [entry.text for entry in committee_state(study).history]


def test_a_level_whose_name_says_too_much_needs_a_reason() -> None:
    study = factories.study_open()
    proposed(study, low=5.0)
    with pytest.raises(ValidationError, match="low protection"):
        proposed(study, low=8.0)
    policy = proposed(study, low=8.0, name_reason="The records are of machines.")
    assert policy.name_reason == "The records are of machines."


def test_a_study_opens_only_with_an_example_of_harm() -> None:
    study = factories.study_create(harm="")
    factories.form_publish(study)
    policy = proposed(study)
    with pytest.raises(ValidationError, match="no example of harm"):
        services.epsilon_policy_approve(policy=policy, acting_user=factories.user_create("conrad"))
    assert committee_state(study).missing[0] == "an example of harm"
    services.harm_write(study=study, acting_user=factories.user_create("carla"), texts=factories.HARM)
    services.epsilon_policy_approve(policy=policy, acting_user=factories.user_create("conrad"))
    study.refresh_from_db()
    assert committee_state(study).is_open
    with pytest.raises(ValidationError, match="cannot change any more"):
        services.harm_write(study=study, acting_user=factories.user_create("carla"), texts={"en": "Nothing happens."})


def test_the_example_of_harm_is_written_in_every_language_and_short() -> None:
    study = factories.study_create(harm="", languages=["en", "de"])
    carla = factories.user_create("carla")
    with pytest.raises(ValidationError, match="Deutsch"):
        services.harm_write(study=study, acting_user=carla, texts={"en": "An insurer."})
    with pytest.raises(ValidationError, match="at most 240"):
        services.harm_write(study=study, acting_user=carla, texts={"en": "An insurer.", "de": "x" * 241})


def test_an_approval_is_made_by_approving_alone() -> None:
    study = factories.study_open()
    with pytest.raises(ValidationError):
        services.proposal_remark(
            proposal=proposed(study),
            acting_user=factories.user_create("conrad"),
            kind=Remark.Kind.APPROVAL,
            text="Yes.",
        )
