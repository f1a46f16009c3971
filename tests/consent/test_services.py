"""The consent services."""

import math
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import Settings

from consent import selectors, services
from consent.models import ConsentEvent, DataHolder, EpsilonPolicy, EpsilonPolicyApproval, Renewal, Study
from consent.people import pseudonyms
from consent.services import holders
from tests import factories
from tests.consent.conftest import Decide, events
from tests.factories import user_create

Kind = ConsentEvent.Kind


def test_each_decision_is_recorded_once_with_its_kind(study: Study, holder: DataHolder, hanna: User) -> None:
    def give(level: str) -> ConsentEvent:
        form = selectors.consent_form_in_force(study)
        return factories.consent_choose(holder=holder, level=level, form=form, acting_user=hanna)

    form = selectors.consent_form_in_force(study)
    with pytest.raises(ValidationError, match="no consent to withdraw"):
        services.consent_withdraw(holder=holder, acting_user=None)
    for _ in range(2):
        services.consent_refuse(holder=holder, acting_user=None, form=form)
    event = give("HIGH")
    assert (event.form, event.policy) == (form, selectors.policy_in_force(study))
    assert (event.recorded_by_id, event.channel) == (hanna.pk, ConsentEvent.Channel.FORM)
    assert give("HIGH") == event, "an unchanged decision is not recorded again"
    give("LOW")
    for _ in range(2):
        services.consent_refuse(holder=holder, acting_user=None, form=form)
    with pytest.raises(ValidationError, match="no consent to withdraw"):
        services.consent_withdraw(holder=holder, acting_user=None)
    give("AVERAGE")
    factories.policy_approve(study, 2, 3, 4)
    give("AVERAGE")
    newer = factories.form_publish(study, {"en": "More is asked now."})
    assert give("AVERAGE").form == newer
    assert events(holder) == [
        *((Kind.REFUSED, ""), (Kind.GIVEN, "HIGH"), (Kind.CHANGED, "LOW"), (Kind.WITHDRAWN, "")),
        *((Kind.GIVEN, "AVERAGE"), (Kind.CHANGED, "AVERAGE"), (Kind.CHANGED, "AVERAGE")),
    ]


def test_consent_is_given_only_to_what_is_in_force_in_the_study(study: Study, holder: DataHolder) -> None:
    earlier, shown = selectors.consent_form_in_force(study), selectors.policy_in_force(study)
    young = factories.study_create("young")
    nothing_approved = factories.form_publish(young)
    factories.policy_approve(study, 2, 3, 4)
    elsewhere = selectors.consent_form_in_force(factories.study_open("other"))
    attempts = [
        (holder, earlier, shown, "read it again"),
        (holder, elsewhere, None, "The consent form has changed since you opened"),
        (factories.holder_create(young), nothing_approved, None, "This study cannot accept consents yet, because"),
    ]
    factories.form_publish(study, {"en": "More is asked now."})
    attempts[0] = (holder, selectors.consent_form_in_force(study), shown, "read it again")
    attempts.append((holder, earlier, None, "The consent form has changed since you opened"))
    for person, form, policy, says in attempts:
        with pytest.raises(ValidationError, match=says):
            services.consent_give(holder=person, level="HIGH", form=form, policy=policy, acting_user=None)
    assert not ConsentEvent.objects.exists()


def test_versions_of_a_form_differ_and_are_hashed_with_their_meaning_for_consents(study: Study) -> None:
    for texts, renewal, says in (
        (factories.FORM, "asked", "This is the same as the current version"),
        ({"en": "More"}, "perhaps", "renewal"),
        ({"de": "Hallo", "en": " "}, "asked", "English"),
    ):
        with pytest.raises(ValidationError, match=says):
            factories.form_publish(study, texts, renewal=renewal)
    first = selectors.consent_form_in_force(study)
    second = factories.form_publish(study, {"en": " Other words. ", "de": "  "}, renewal=Renewal.REQUIRED)
    assert (first.version, second.version, second.texts) == (1, 2, {"en": "Other words."})
    assert first.digest != second.digest
    assert selectors.consent_form_in_force(study) == second
    second.renewal = Renewal.NOT_ASKED
    assert second.computed_hash() != second.hash


def test_values_rise_from_high_to_low_protection_up_to_the_cap(study: Study, hanna: User, settings: Settings) -> None:
    settings.EPSILON_CAP = 4
    nan, inf = math.nan, math.inf
    unordered = [(2, 1, 3), (1, 3, 2), (1, 1, 2), (1, 2, 2), (0, 1, 2), (-1, 1, 2), (nan, 1, 2), (1, 2, nan)]
    above = "above this installation's limit of 4"
    wrong = [(each, "The values must increase from high to low") for each in unordered]
    for values, says in [*wrong, ((1, 2, 4.001), above), ((1, 2, inf), above)]:
        with pytest.raises(ValidationError, match=says):
            factories.policy_approve(study, *values)
    with pytest.raises(ValidationError, match="reason"):
        services.epsilon_policy_propose(study=study, acting_user=hanna, high=1, average=2, low=3, reason="  ")
    unordered = {"version": 99, "sequence": 99, "high": 2, "average": 1, "low": 3, "reason": "Why not"}
    with pytest.raises(IntegrityError), transaction.atomic():
        EpsilonPolicy.objects.create(study=study, proposed_by=hanna, **unordered)
    policy = factories.policy_approve(study, 1, 2, 4)
    with pytest.raises(ValidationError, match="policy has already been approved"):
        services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))


def test_a_second_person_approves_and_nothing_older_than_what_is_in_force(study: Study, hanna: User) -> None:
    policy = services.epsilon_policy_propose(study=study, acting_user=hanna, high=1, average=2, low=3, reason="Why not")
    with pytest.raises(ValidationError, match="second person"):
        services.epsilon_policy_approve(policy=policy, acting_user=hanna)
    with pytest.raises(IntegrityError), transaction.atomic():
        EpsilonPolicyApproval.objects.create(policy=policy, proposed_by=hanna, approved_by=hanna, sequence=9)
    assert selectors.policy_in_force(study) != policy
    newer = factories.policy_approve(study, 1, 2, 4)
    with pytest.raises(ValidationError, match="newer policy"):
        services.epsilon_policy_approve(policy=policy, acting_user=user_create("conrad"))
    assert selectors.policy_in_force(study) == newer


def test_a_policy_counts_from_its_date_on_and_never_before_its_approval(study: Study) -> None:
    now, soon = selectors.policy_in_force(study), timezone.now() + timedelta(days=7)
    later = factories.policy_approve(study, 1, 2, 4, effective_from=soon)
    assert selectors.policy_in_force(study) == now
    assert selectors.policy_in_force(study, soon) == later
    before = timezone.now()
    policy = factories.policy_approve(study, 1, 2, 4, effective_from=before - timedelta(days=7))
    assert policy.approval.effective_from >= before


def test_a_newer_policy_replaces_a_future_one(study: Study, holder: DataHolder, give: Decide) -> None:
    """A larger ε is approved for next week, and then the committee changes its mind."""
    soon = timezone.now() + timedelta(days=7)
    factories.policy_approve(study, 2, 4, 8, effective_from=soon)
    newest = factories.policy_approve(study, 0.5, 1, 1.5)
    assert selectors.policy_in_force(study, soon) == newest
    give(holder, "LOW")
    assert selectors.consent_snapshot(study, soon).epsilons.tolist() == [1.5]
    assert max(promise.epsilon for promise in selectors.promises_possible(study, soon)) == 1.5
    later = factories.policy_approve(study, 1, 2, 3, effective_from=soon)
    assert [selectors.policy_in_force(study), selectors.policy_in_force(study, soon)] == [newest, later]


def test_there_are_three_levels_and_the_database_wants_one_with_each_consent(holder: DataHolder, give: Decide) -> None:
    for level in ("", "NONE", "high", "HIGHEST"):
        with pytest.raises(ValidationError, match="three levels"):
            give(holder, level)
    event = give(holder, "HIGH")
    fields = {"study": holder.study, "holder": holder, "form": event.form, "policy": event.policy, "sequence": 9}
    for kind, level in ((Kind.GIVEN, ""), (Kind.WITHDRAWN, "HIGH")):
        with pytest.raises(IntegrityError), transaction.atomic():
            ConsentEvent.objects.create(kind=kind, level=level, **fields)


def test_a_pseudonym_and_a_user_are_one_holder_of_a_study(study: Study, hanna: User) -> None:
    first = services.holders_register(study=study, pseudonyms=["A", "B", "A"])
    second = services.holders_register(study=study, pseudonyms=["B", "C"])
    assert set(first) == {"A", "B"} and second["B"] == first["B"]
    assert DataHolder.objects.filter(study=study).count() == 3
    factories.holder_create(study, "A", hanna)
    with pytest.raises(ValidationError, match="user"):
        factories.holder_create(study, "P-2", hanna)
    assert factories.holder_create(factories.study_open("other"), "P-2", hanna).user == hanna


@pytest.mark.parametrize("before", [[], ["A", "7.0"]], ids=["empty", "known"])
def test_owners_of_records_are_registered_in_parts(study, monkeypatch, before) -> None:
    monkeypatch.setattr(holders, "_REGISTERED_AT_ONCE", 2)
    old = services.holders_register(study=study, pseudonyms=before)
    steps: list[tuple[int, int]] = []
    names = ["A", "B", "C", "A", "7", "7.0", "D", " D ", "B"]
    owners = services.owners_register(study=study, pseudonyms=names, progress=lambda *step: steps.append(step))
    registered = dict(DataHolder.objects.filter(study=study).values_list("pseudonym", "pk"))
    assert registered.keys() == {"A", "B", "C", "7", "D"}
    assert owners.tolist() == [registered[name] for name in ["A", "B", "C", "A", "7", "7", "D", "D", "B"]]
    assert steps == [(2, 9), (4, 9), (6, 9), (8, 9), (9, 9)]
    assert all(pk == owners[names.index(name)] for name, pk in old.items())
    with pytest.raises(ValidationError, match="starts like a spreadsheet formula"):
        services.owners_register(study=study, pseudonyms=["E", "F", "=1"])
    assert DataHolder.objects.filter(study=study).count() == 5


def test_look_alikes_are_found_in_parts(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudonyms, "_HASHED_AT_ONCE", 2)
    services.holders_register(study=study, pseudonyms=["P-1", "p1", "Q-2"])
    names = ["R-1", "Q-2", "q2", "R-3", "S-4", "R-3", "r03", "S-4"]
    assert pseudonyms.look_alikes_in(study, names) == [("Q-2", "q2"), ("R-3", "r03")]
    assert pseudonyms.look_alikes_in(study, ["P-1", "p1", "Q-2"]) == [], "no new pseudonyms"


@pytest.mark.django_db
def test_creator_of_a_study_operates_it(hanna: User) -> None:
    fields = {"title": "T", "purpose": "P", "controller": "C", "contact": "c@example.org"}
    study = services.study_create(acting_user=hanna, slug="first", delta=1e-6, **fields)
    assert hanna.has_perm("training.propose_run", study)
    with pytest.raises(ValidationError, match="role"):
        services.membership_add(study=study, user=hanna, role="emperor", acting_user=None)
    with pytest.raises(ValidationError, match="delta"):
        services.study_create(acting_user=hanna, slug="second", delta=0.5, **fields)
