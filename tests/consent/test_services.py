"""Tests of the consent services."""

import math
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import Settings

from consent import selectors, services
from consent.models import (
    ConsentEvent,
    ConsentFormDraft,
    DataHolder,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Membership,
    Renewal,
    Study,
)
from tests import factories
from tests.consent.conftest import Decide

Kind = ConsentEvent.Kind


def events(holder: DataHolder) -> list[tuple[str, str]]:
    return list(ConsentEvent.objects.filter(holder=holder).order_by("sequence").values_list("kind", "level"))


# --- Decisions ------------------------------------------------------------------------------------------------------


def test_first_consent_is_given_the_next_level_is_a_change(holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    give(holder, "LOW")
    assert events(holder) == [(Kind.GIVEN, "HIGH"), (Kind.CHANGED, "LOW")]


def test_consent_names_the_form_the_policy_and_who_recorded_it(holder: DataHolder, hanna: User) -> None:
    form = selectors.consent_form_in_force(holder.study)
    event = services.consent_give(holder=holder, level="HIGH", form=form, acting_user=hanna)
    assert (event.form, event.policy) == (form, selectors.policy_in_force(holder.study))
    assert (event.recorded_by_id, event.channel) == (hanna.pk, ConsentEvent.Channel.FORM)


def test_giving_what_stands_changes_nothing(holder: DataHolder, give: Decide) -> None:
    assert give(holder, "HIGH") == give(holder, "HIGH")
    assert events(holder) == [(Kind.GIVEN, "HIGH")]


def test_the_same_level_under_a_new_policy_is_a_new_consent(study: Study, holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    factories.policy_approve(study, 2, 3, 4)
    give(holder, "HIGH")
    assert events(holder) == [(Kind.GIVEN, "HIGH"), (Kind.CHANGED, "HIGH")]


def test_the_same_level_on_a_new_form_is_a_new_consent(study: Study, holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    form = factories.form_publish(study, {"en": "More is asked now."})
    assert give(holder, "HIGH").form == form
    assert len(events(holder)) == 2


def test_withdrawal_and_a_later_consent(holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    services.consent_withdraw(holder=holder, acting_user=None)
    give(holder, "AVERAGE")
    assert events(holder) == [(Kind.GIVEN, "HIGH"), (Kind.WITHDRAWN, ""), (Kind.GIVEN, "AVERAGE")]


def test_there_must_be_something_to_withdraw(holder: DataHolder, give: Decide) -> None:
    with pytest.raises(ValidationError, match="no consent to withdraw"):
        services.consent_withdraw(holder=holder, acting_user=None)
    give(holder, "HIGH")
    services.consent_withdraw(holder=holder, acting_user=None)
    with pytest.raises(ValidationError, match="no consent to withdraw"):
        services.consent_withdraw(holder=holder, acting_user=None)


def test_refusing_is_on_record_once(holder: DataHolder) -> None:
    form = selectors.consent_form_in_force(holder.study)
    for _ in range(2):
        services.consent_refuse(holder=holder, acting_user=None, form=form)
    assert events(holder) == [(Kind.REFUSED, "")]


def test_refusing_where_consent_stands_withdraws_it(holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    form = selectors.consent_form_in_force(holder.study)
    for _ in range(2):
        services.consent_refuse(holder=holder, acting_user=None, form=form)
    assert events(holder) == [(Kind.GIVEN, "HIGH"), (Kind.WITHDRAWN, "")]


def test_an_earlier_form_cannot_be_consented_to(study: Study, holder: DataHolder) -> None:
    earlier = selectors.consent_form_in_force(study)
    factories.form_publish(study, {"en": "More is asked now."})
    with pytest.raises(ValidationError, match="read the new one"):
        services.consent_give(holder=holder, level="HIGH", form=earlier, acting_user=None)
    assert events(holder) == []


def test_odds_that_no_longer_hold_cannot_be_consented_to(study: Study, holder: DataHolder) -> None:
    form, shown = selectors.consent_form_in_force(study), selectors.policy_in_force(study)
    factories.policy_approve(study, 2, 3, 4)
    with pytest.raises(ValidationError, match="read it again"):
        services.consent_give(holder=holder, level="HIGH", form=form, policy=shown, acting_user=None)
    assert events(holder) == []


def test_a_form_of_another_study_is_refused(study: Study, holder: DataHolder) -> None:
    other = selectors.consent_form_in_force(factories.study_open("other"))
    with pytest.raises(ValidationError, match="read the new one"):
        services.consent_give(holder=holder, level="HIGH", form=other, acting_user=None)


@pytest.mark.django_db
def test_without_an_approved_policy_nobody_can_consent() -> None:
    study = factories.study_create()
    form = factories.form_publish(study)
    with pytest.raises(ValidationError, match="approved no policy"):
        services.consent_give(holder=factories.holder_create(study), level="HIGH", form=form, acting_user=None)


@pytest.mark.parametrize("level", ["", "NONE", "high", "HIGHEST"])
def test_there_are_three_levels(holder: DataHolder, give: Decide, level: str) -> None:
    with pytest.raises(ValidationError, match="three levels"):
        give(holder, level)


# --- Forms ----------------------------------------------------------------------------------------------------------


def test_a_draft_is_kept_until_it_is_published(study: Study, hanna: User) -> None:
    for text in ("First", "Second"):
        draft = services.consent_form_draft_save(study=study, acting_user=hanna, texts={"en": text, "de": " "})
    assert (draft.texts, draft.saved_by_id) == ({"en": "Second"}, hanna.pk)
    proposal = services.consent_form_propose(study=study, acting_user=hanna, texts=draft.texts)
    form = services.consent_form_approve(proposal=proposal, acting_user=factories.user_create("conrad"))
    assert (form.texts, form.renewal) == ({"en": "Second"}, Renewal.NOT_ASKED)
    assert not ConsentFormDraft.objects.exists()


def test_the_same_words_are_not_published_twice(study: Study) -> None:
    with pytest.raises(ValidationError, match="what the version in force says"):
        factories.form_publish(study)


def test_there_are_three_decisions_about_earlier_consents(study: Study) -> None:
    with pytest.raises(ValidationError, match="renewal"):
        factories.form_publish(study, {"en": "More"}, renewal="perhaps")


def test_the_hash_of_a_form_covers_its_meaning_for_earlier_consents(study: Study) -> None:
    form = factories.form_publish(study, {"en": "More"}, renewal=Renewal.REQUIRED)
    form.renewal = Renewal.NOT_ASKED
    assert form.computed_hash() != form.hash


def test_form_versions_count_up_and_have_their_own_digest(study: Study) -> None:
    first = selectors.consent_form_in_force(study)
    second = factories.form_publish(study, {"en": " Other words. ", "de": "  "})
    assert (first.version, second.version) == (1, 2)
    assert second.texts == {"en": "Other words."}
    assert first.digest != second.digest
    assert selectors.consent_form_in_force(study) == second


def test_a_form_needs_english(study: Study) -> None:
    with pytest.raises(ValidationError, match="English"):
        factories.form_publish(study, {"de": "Hallo", "en": " "})


# --- ε policies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [(2, 1, 3), (1, 3, 2), (1, 1, 2), (1, 2, 2), (0, 1, 2), (-1, 1, 2), (math.nan, 1, 2), (1, 2, math.nan)]
)
def test_values_must_rise_from_high_to_low_protection(study: Study, values: tuple[float, float, float]) -> None:
    with pytest.raises(ValidationError, match="must rise"):
        factories.policy_approve(study, *values)


def test_values_stay_under_the_cap(study: Study, settings: Settings) -> None:
    settings.EPSILON_CAP = 4
    factories.policy_approve(study, 1, 2, 4)
    for low in (4.001, math.inf):
        with pytest.raises(ValidationError, match="above this installation's cap of 4"):
            factories.policy_approve(study, 1, 2, low)


def test_a_policy_needs_a_reason(study: Study, hanna: User) -> None:
    with pytest.raises(ValidationError, match="reason"):
        services.epsilon_policy_propose(study=study, acting_user=hanna, high=1, average=2, low=3, reason="  ")


def test_a_second_person_approves(study: Study, hanna: User) -> None:
    policy = services.epsilon_policy_propose(study=study, acting_user=hanna, high=1, average=2, low=3, reason="Why not")
    with pytest.raises(ValidationError, match="second person"):
        services.epsilon_policy_approve(policy=policy, acting_user=hanna)
    with pytest.raises(IntegrityError), transaction.atomic():
        EpsilonPolicyApproval.objects.create(policy=policy, proposed_by=hanna, approved_by=hanna, sequence=9)
    assert selectors.policy_in_force(study) != policy


def test_a_policy_is_approved_once(study: Study) -> None:
    policy = factories.policy_approve(study, 1, 2, 4)
    with pytest.raises(ValidationError, match="already approved"):
        services.epsilon_policy_approve(policy=policy, acting_user=factories.user_create("conrad"))


def test_an_older_policy_cannot_overtake_a_newer_one(study: Study, hanna: User) -> None:
    older = services.epsilon_policy_propose(study=study, acting_user=hanna, high=1, average=2, low=5, reason="Why not")
    newer = factories.policy_approve(study, 1, 2, 4)
    with pytest.raises(ValidationError, match="newer policy"):
        services.epsilon_policy_approve(policy=older, acting_user=factories.user_create("conrad"))
    assert selectors.policy_in_force(study) == newer


def test_a_policy_counts_from_its_date_on(study: Study) -> None:
    now, soon = selectors.policy_in_force(study), timezone.now() + timedelta(days=7)
    later = factories.policy_approve(study, 1, 2, 4, effective_from=soon)
    assert selectors.policy_in_force(study) == now
    assert selectors.policy_in_force(study, soon) == later


def test_a_policy_that_was_to_come_gives_way_to_a_newer_one(study: Study, holder: DataHolder, give: Decide) -> None:
    """A larger ε is approved for next week; then the committee thinks better of it."""
    soon = timezone.now() + timedelta(days=7)
    factories.policy_approve(study, 2, 4, 8, effective_from=soon)
    newest = factories.policy_approve(study, 0.5, 1, 1.5)
    assert selectors.policy_in_force(study, soon) == newest
    give(holder, "LOW")
    assert selectors.consent_snapshot(study, soon).epsilons.tolist() == [1.5]
    assert max(promise.epsilon for promise in selectors.promises_possible(study, soon)) == 1.5
    later = factories.policy_approve(study, 1, 2, 3, effective_from=soon)
    assert [selectors.policy_in_force(study), selectors.policy_in_force(study, soon)] == [newest, later]


def test_a_policy_never_counts_before_its_approval(study: Study) -> None:
    before = timezone.now()
    policy = factories.policy_approve(study, 1, 2, 4, effective_from=before - timedelta(days=7))
    assert policy.approval.effective_from >= before


def test_the_database_knows_the_order_of_the_values(study: Study, hanna: User) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        EpsilonPolicy.objects.create(
            study=study, version=99, sequence=99, high=2, average=1, low=3, reason="Why not", proposed_by=hanna
        )


def test_the_database_wants_a_level_with_each_consent(holder: DataHolder, give: Decide) -> None:
    event = give(holder, "HIGH")
    form, policy = event.form, event.policy
    for kind, level in ((Kind.GIVEN, ""), (Kind.WITHDRAWN, "HIGH")):
        with pytest.raises(IntegrityError), transaction.atomic():
            ConsentEvent.objects.create(
                study=holder.study, holder=holder, kind=kind, level=level, form=form, policy=policy, sequence=9
            )


# --- People ---------------------------------------------------------------------------------------------------------


def test_registering_again_finds_the_same_holders(study: Study) -> None:
    first = services.holders_register(study=study, pseudonyms=["A", "B", "A"])
    second = services.holders_register(study=study, pseudonyms=["B", "C"])
    assert set(first) == {"A", "B"}
    assert second["B"] == first["B"]
    assert DataHolder.objects.filter(study=study).count() == 3


def test_a_user_is_one_holder_of_a_study(study: Study, holder: DataHolder, hanna: User) -> None:
    with pytest.raises(ValidationError, match="user"):
        factories.holder_create(study, "P-2", hanna)
    assert factories.holder_create(factories.study_open("other"), "P-2", hanna).user == hanna


def test_a_role_is_given_once(study: Study, hanna: User) -> None:
    for _ in range(2):
        services.membership_add(study=study, user=hanna, role="auditor", acting_user=None)
    assert Membership.objects.filter(study=study, user=hanna).count() == 1
    with pytest.raises(ValidationError, match="role"):
        services.membership_add(study=study, user=hanna, role="emperor", acting_user=None)


@pytest.mark.django_db
def test_creator_of_a_study_operates_it(hanna: User) -> None:
    fields = {"title": "T", "purpose": "P", "controller": "C", "contact": "c@example.org"}
    study = services.study_create(acting_user=hanna, slug="first", delta=1e-6, **fields)
    assert hanna.has_perm("training.propose_run", study)
    with pytest.raises(ValidationError, match="delta"):
        services.study_create(acting_user=hanna, slug="second", delta=0.5, **fields)
