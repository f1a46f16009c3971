"""Guardians, proxies, deaths, consents that end at a day, and what becomes of links and accounts."""

from datetime import date, timedelta

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from consent import selectors, services
from consent.counts import holders_per_level
from consent.models import Circumstance, ConsentEvent, DataHolder, Invitation, Mail, Study
from consent.services import Valid
from consent.services.handover import circumstance_record, hand_overs
from consent.services.invitations import Invited, invitation_open, invitations_create, invitees_read
from consent.standing import standing
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide

OF_AGE = date(2026, 6, 1)


@pytest.fixture
def study(clock: Clock, db: None) -> Study:
    return factories.study_open()


def record(holder: DataHolder, kind: str, until: date | None = None) -> Circumstance:
    olga = factories.user_create("olga")
    return circumstance_record(
        study=holder.study, pseudonym=holder.pseudonym, kind=kind, until=until, reason="Register.", acting_user=olga
    )


def takes_part(holder: DataHolder) -> bool:
    """Whether training would use the records; every way of asking says the same."""
    study = Study.objects.get(pk=holder.study_id)
    found = holder.pk in selectors.consent_snapshot(study).holders
    assert standing(holder).counts is found
    current = selectors.consent_current(holder)
    counts = holders_per_level(study)
    assert bool(counts["SUSPENDED"]) is bool(current and current.grants and not found)
    assert (holder.pk in selectors.lapses_at(study, current.recorded_at)) is False
    return found


def reached(holder: DataHolder) -> DataHolder:
    return DataHolder.objects.get(pk=holder.pk)


# --- Minors ---------------------------------------------------------------------------------------------------------


def test_a_guardians_consent_counts_until_the_person_comes_of_age(study, holder, give: Decide, clock: Clock) -> None:
    record(holder, "guardian", OF_AGE)
    assert give(holder, "LOW").answered_by == "guardian"
    assert takes_part(holder)
    clock.moment = clock.moment.replace(month=5, day=31, hour=23)
    state = selectors.consent_state(study)
    assert takes_part(holder)
    before = clock.now()
    clock.days_pass(2 / 24)
    assert not takes_part(holder), "though nobody has recorded anything"
    assert selectors.consent_state(study) != state, "a running vote looks again"
    assert selectors.holders_lapsed_since(study, before).tolist() == [holder.pk]
    assert selectors.consent_snapshot(study, before).holders.tolist() == [holder.pk], "the past stays as it was"
    assert "somebody else decided" in str(standing(holder))
    hand_overs()
    assert not takes_part(holder)
    assert give(holder, "HIGH").answered_by == "person"
    assert takes_part(holder)


def test_the_day_that_somebody_comes_of_age_begins_in_the_sites_zone(study, holder, give, clock, settings) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    record(holder, "guardian", OF_AGE)
    give(holder, "LOW")
    clock.moment = clock.moment.replace(month=5, day=31, hour=21, minute=59)
    assert takes_part(holder)
    clock.days_pass(2 / 24 / 60)
    assert not takes_part(holder)


def test_coming_of_age_ends_link_and_account_of_the_guardian(study, holder, hanna, give, clock: Clock) -> None:
    record(holder, "guardian", OF_AGE)
    services.holder_link(holder=reached(holder), user=hanna)
    give(reached(holder), "LOW")
    mails = Mail.objects.filter(kind="handed_over", user=hanna).count()
    clock.moment = clock.moment.replace(month=6, day=2)
    hand_overs()
    hand_overs()
    assert list(Circumstance.objects.filter(holder=holder).values_list("kind", "recorded_by_id")) == [
        ("guardian", factories.user_create("olga").pk),
        ("person", None),
    ]
    assert reached(holder).user is None
    assert Mail.objects.filter(kind="handed_over", user=hanna).count() == mails + 1
    (issued,) = invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    assert invitation_open(code=issued.code, address="1.2.3.4").holder == holder


def test_coming_of_age_ends_the_old_link_and_issues_a_new_one(study, clock: Clock) -> None:
    (old,) = invitations_create(study=study, acting_user=None, pseudonyms=[Invited("P-9", "guardian", OF_AGE)])
    clock.moment = clock.moment.replace(month=6, day=1, hour=1)
    assert invitation_open(code=old.code, address="1.2.3.4") is None
    assert Circumstance.objects.filter(holder__pseudonym="P-9").last().kind == "person"
    (new,) = invitations_create(study=study, acting_user=None, pseudonyms=["P-9"])
    assert invitation_open(code=new.code, address="1.2.3.4") is not None


def test_another_day_for_the_same_guardian_changes_nothing_else(study, holder, give, clock: Clock) -> None:
    record(holder, "guardian", OF_AGE)
    invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    give(holder, "LOW")
    record(holder, "guardian", date(2026, 3, 1))
    assert takes_part(holder)
    clock.moment = clock.moment.replace(month=3, day=2)
    assert not takes_part(holder)


# --- Proxies, incapacity, death -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["ends", "stands"])
@pytest.mark.parametrize(("kind", "setting"), [("died", "after_death"), ("incapable", "after_incapacity")])
def test_the_study_says_what_death_and_incapacity_do(db, give, kind, setting, policy) -> None:
    holder = factories.holder_create(factories.study_open("says", **{setting: policy}))
    give(holder, "LOW")
    record(holder, kind)
    assert takes_part(holder) is (policy == "stands")
    with pytest.raises(ValidationError, match="cannot decide"):
        give(holder, "HIGH")
    assert services.consent_withdraw(holder=holder, acting_user=None).kind == "withdrawn"
    assert not takes_part(holder)


def test_an_ended_circumstance_does_not_return_by_itself(study, holder, give) -> None:
    give(holder, "LOW")
    record(holder, "died")
    record(holder, "person")
    assert not takes_part(holder)
    assert "somebody else decided" in str(standing(holder)), "nobody is told that they have died"
    give(holder, "LOW")
    assert takes_part(holder)


@pytest.mark.parametrize(("policy", "counts"), [("ends", False), ("stands", True)])
def test_a_proxy_decides_again_unless_consents_stand(db, give, policy, counts) -> None:
    holder = factories.holder_create(factories.study_open("says", after_incapacity=policy))
    give(holder, "LOW")
    record(holder, "incapable")
    record(holder, "proxy")
    assert takes_part(holder) is counts
    assert give(holder, "AVERAGE").answered_by == "proxy"
    assert takes_part(holder)
    assert services.consent_withdraw(holder=holder, acting_user=None).answered_by == "proxy"
    record(holder, "person")
    assert services.consent_refuse(holder=holder, acting_user=None).answered_by == "person"


def test_a_consent_of_the_person_ends_where_a_guardian_has_to_decide(study, holder, give) -> None:
    give(holder, "LOW")
    record(holder, "guardian", OF_AGE)
    assert not takes_part(holder)


def test_links_end_where_somebody_else_answers_and_stay_where_nobody_does(study, holder) -> None:
    services.holder_link(holder=holder, user=None)
    invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    record(holder, "incapable")
    assert Invitation.objects.filter(revoked_at=None).count() == 1, "the person can withdraw"
    record(holder, "proxy")
    assert not Invitation.objects.filter(revoked_at=None).exists()
    invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    record(holder, "died")
    assert not Invitation.objects.filter(revoked_at=None).exists()


@pytest.mark.parametrize(
    ("history", "kind", "until", "message"),
    [
        ([], "guardian", None, "come of age"),
        ([], "guardian", date(2025, 1, 1), "not to come"),
        ([], "died", OF_AGE, "Leave it empty"),
        (["died"], "proxy", None, "has died"),
        (["proxy"], "incapable", None, "answers for this person already"),
    ],
)
def test_impossible_values_are_refused(study, holder, history, kind, until, message) -> None:
    for each in history:
        record(holder, each)
    with pytest.raises(ValidationError, match=message):
        record(holder, kind, until)
    assert Circumstance.objects.count() == len(history)


def test_same_circumstance_is_not_recorded_again(study, holder) -> None:
    assert record(holder, "proxy") == record(holder, "proxy")
    assert Circumstance.objects.count() == 1


# --- Consents that end at a day -------------------------------------------------------------------------------------


def test_a_consent_counts_for_the_months_that_its_form_says(study, holder, give, clock: Clock) -> None:
    factories.form_publish(study, texts={"en": "A year."}, valid=Valid(months=12))
    event = give(holder, "LOW")
    assert event.renew_by.isoformat().startswith("2027-01-02T00:00"), "the day a year later counts, too"
    assert give(holder, "LOW") == event, "a second click"
    clock.days_pass(340)
    stands = standing(holder)
    assert stands.counts and stands.asks
    assert "1 January 2027" in str(stands)
    state = selectors.consent_state(study)
    clock.days_pass(26)
    assert not takes_part(holder)
    assert selectors.consent_state(study) != state
    assert "ended with" in str(standing(holder))
    again = give(holder, "LOW")
    assert (again.kind, again.renew_by.year) == ("changed", 2028)
    assert takes_part(holder)


def test_nobody_is_asked_to_renew_where_only_a_new_form_helps(study, holder, hanna, give, clock: Clock) -> None:
    """A form that counts up to a fixed day: who decides again is answered that nothing changes, or an error."""
    from consent.services.letters import letters_due
    from consent.services.reminders import reminders_send

    def asked() -> tuple[bool, int, int]:
        return standing(holder).asks, reminders_send(), len(letters_due(study, "renewal"))

    factories.form_publish(study, texts={"en": "Till spring."}, valid=Valid(until=date(2026, 3, 31)))
    event = give(holder, "LOW")
    give(factories.holder_create(study, "P-9"), "LOW")
    clock.moment = clock.moment.replace(month=3, day=20)
    assert give(holder, "LOW") == event
    assert asked() == (False, 0, 0)
    assert "Decide again" not in str(standing(holder)) and "31 March 2026" in str(standing(holder))
    clock.moment = clock.moment.replace(month=4, day=2)
    assert asked() == (False, 0, 0)
    assert "You can decide again when there is a new form." in str(standing(holder))
    assert "Read it and decide" not in str(standing(holder))
    factories.form_publish(study, texts={"en": "Till autumn."}, valid=Valid(until=date(2026, 9, 30)))
    assert asked() == (True, 0, 2)
    assert "Read it and decide again." in str(standing(holder))
    assert give(holder, "LOW").renew_by > clock.now()
    factories.form_publish(study, texts={"en": "A year."}, valid=Valid(months=12))
    clock.moment = clock.moment.replace(month=9, day=10)
    assert asked()[:2] == (True, 1), "a form without an asking of its own, to which a consent counts longer"


def test_a_consent_counts_until_the_day_that_its_form_says(study, holder, give, clock: Clock) -> None:
    valid = Valid(until=date(2026, 3, 31))
    factories.form_publish(study, texts={"en": "Till spring."}, valid=valid)
    give(holder, "LOW")
    clock.moment = clock.moment.replace(month=3, day=31, hour=23)
    assert takes_part(holder)
    clock.days_pass(2 / 24)
    assert not takes_part(holder)
    with pytest.raises(ValidationError, match="a day that is over"):
        give(holder, "HIGH")


def test_a_consent_up_to_the_last_day_of_all_counts_for_good(study, holder, give) -> None:
    factories.form_publish(study, texts={"en": "For ever."}, valid=Valid(until=date.max))
    assert give(holder, "LOW").renew_by is None
    assert takes_part(holder)


def test_a_version_with_the_same_words_and_another_validity_is_another_version(study) -> None:
    olga = factories.user_create("olga")
    form = factories.form_publish(study, texts=factories.FORM, valid=Valid(months=6))
    assert (form.version, form.valid_months) == (2, 6)
    with pytest.raises(ValidationError, match="version in force"):
        factories.form_publish(study, texts=factories.FORM, valid=Valid(months=6))
    proposal = services.consent_form_propose(
        study=study, acting_user=olga, texts=factories.FORM, renewal="required", valid=Valid(months=3)
    )
    approved = services.consent_form_approve(proposal=proposal, acting_user=factories.user_create("conrad"))
    assert approved.valid_months == 3


# --- Lists, exports -------------------------------------------------------------------------------------------------


def test_a_list_of_people_to_invite_can_say_who_answers() -> None:
    assert invitees_read(["P-1", " P-2 ", "", "P-1", "Doe, Jane"]) == [
        Invited("P-1"),
        Invited("P-2"),
        Invited("Doe, Jane"),
    ]
    rows = invitees_read(["pseudonym,answers,until", "P-1,guardian,2031-05-04", '"Doe, Jane",proxy', "P-3"])
    assert rows == [Invited("P-1", "guardian", date(2031, 5, 4)), Invited("Doe, Jane", "proxy"), Invited("P-3")]
    with pytest.raises(ValidationError) as refused:
        invitees_read(["pseudonym,answers,until", "P-1,aunt", "P-2,guardian,soon"])
    assert len(refused.value.messages) == 2


def test_a_refused_entry_stops_all_invitations_of_a_list(study) -> None:
    with pytest.raises(ValidationError, match="P-2"):
        invitations_create(study=study, acting_user=None, pseudonyms=[Invited("P-1"), Invited("P-2", "guardian")])
    assert not Invitation.objects.exists()


def test_a_decision_by_somebody_who_did_not_answer_is_found(study, holder, give, tmp_path) -> None:
    from consent.exports import export_json

    record(holder, "proxy")
    give(holder, "LOW")
    file = tmp_path / "consents.json"
    file.write_text("".join(export_json(study)))
    call_command("verify_consents", study.slug, file)
    assert '"kind": "proxy"' in file.read_text()
    assert "Register." not in file.read_text(), "reasons name people"
    forged = ConsentEvent(
        study=study,
        holder=holder,
        kind="changed",
        level="HIGH",
        form=selectors.consent_form_in_force(study),
        policy=selectors.policy_in_force(study),
    )
    ConsentEvent.append([forged])
    with pytest.raises(CommandError, match="decision 2: person decided, but by the record proxy answered"):
        call_command("verify_consents", study.slug, file)
    file.write_text(file.read_text().replace('"kind": "proxy"', '"kind": "guardian"'))
    with pytest.raises(CommandError, match="circumstance 1: kind"):
        call_command("verify_consents", study.slug, file)


def test_holders_of_an_ending_form_get_one_reminder(study, holder, hanna, give, clock: Clock) -> None:
    from consent.services.reminders import reminders_send

    factories.form_publish(study, texts={"en": "A year."}, valid=Valid(months=12))
    give(holder, "LOW")
    refuser = factories.holder_create(study, "P-2", user=factories.user_create("rita"))
    form = selectors.consent_form_in_force(study)
    services.consent_refuse(holder=refuser, acting_user=None, form=form)
    assert reminders_send() == 0
    clock.days_pass(340)
    assert reminders_send() == 2
    assert reminders_send() == 0
    give(holder, "LOW")
    clock.days_pass(timedelta(days=340).days)
    assert reminders_send() == 1, "anew for the renewed one"
