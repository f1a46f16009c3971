"""Day until which an answer to a proposal is wanted: public, one mail to the chair when it is over, and no decision."""

from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.urls import reverse

from consent import services
from consent.circumstances import day_of
from consent.committee import committee_state
from consent.models import ConsentFormProposal, EpsilonPolicy, Mail, Role, Study
from consent.selectors import is_waiting
from consent.services.deadlines import overdue_mails_send
from consent.services.mail import mail_render
from ipate_web.waiting import waiting_for
from tests import factories
from tests.clock import Clock
from tests.pages import as_, roles_fill, text, url

pytestmark = pytest.mark.django_db


@pytest.fixture
def staffed(clock: Clock, study: Study) -> Study:
    clock.days_pass(40)
    Mail.objects.all().delete()
    return roles_fill(study)


def propose(study: Study, days: int | None = None, *, clock: Clock) -> EpsilonPolicy:
    committee, day = factories.user_create("committee"), day_of(clock.moment)
    fields = {"high": 0.5, "average": 1.0, "low": 2.0, "reason": "Less."}
    answer_by = None if days is None else day + timedelta(days=days)
    return services.epsilon_policy_propose(study=study, acting_user=committee, answer_by=answer_by, **fields)


def propose_form(study: Study, days: int, *, clock: Clock) -> ConsentFormProposal:
    texts = {"en": "# Other words", "de": "# Andere Worte"}
    committee, day = factories.user_create("committee"), day_of(clock.moment) + timedelta(days=days)
    return services.consent_form_propose(study=study, acting_user=committee, texts=texts, answer_by=day)


def mails() -> list[tuple[str, str]]:
    found = Mail.objects.filter(kind__endswith="_overdue").order_by("pk")
    return list(found.values_list("kind", "user__username"))


def test_two_weeks_are_given_unless_a_proposal_names_a_day_to_come(staffed: Study, clock: Clock) -> None:
    today = day_of(clock.moment)
    for act, days in ((propose, -1), (propose, 366), (propose_form, -1), (propose_form, 366)):
        with pytest.raises(ValidationError, match="from today on"):
            act(staffed, days, clock=clock)
    assert not EpsilonPolicy.objects.filter(version=2).exists()
    assert propose(staffed, clock=clock).answer_by == today + timedelta(days=14)
    assert propose(staffed, 3, clock=clock).answer_by == today + timedelta(days=3)
    assert propose_form(staffed, 5, clock=clock).answer_by == today + timedelta(days=5)


def test_chairs_get_one_mail_and_silence_decides_nothing(staffed: Study, clock: Clock) -> None:
    chair, second = User.objects.get(username="chair"), factories.user_create("second")
    services.membership_add(study=staffed, user=second, role=Role.CHAIR, acting_user=None)
    EmailAddress.objects.create(user=chair, email="chair@example.org", verified=True, primary=True)
    EmailAddress.objects.create(user=second, email="second@example.org", verified=True, primary=True)
    policy, form = propose(staffed, 3, clock=clock), propose_form(staffed, 4, clock=clock)
    clock.days_pass(3)
    assert overdue_mails_send() == 0, "the day itself still counts"
    clock.days_pass(1)
    assert [overdue_mails_send(), overdue_mails_send()] == [2, 0]
    clock.days_pass(1)
    assert [overdue_mails_send(), overdue_mails_send()] == [2, 0]
    assert sorted(mails()) == [
        (kind, name) for kind in ("form_overdue", "policy_overdue") for name in ("chair", "second")
    ]
    for mail in Mail.objects.filter(kind__endswith="_overdue"):
        assert "Nothing is approved or rejected by silence." in " ".join(mail_render(mail).body.split())
    clock.days_pass(400)
    assert is_waiting(policy) and is_waiting(form)
    services.proposal_approve(proposal=policy, acting_user=chair)


def test_no_mail_is_sent_about_decided_corrected_or_closed(staffed: Study, clock: Clock) -> None:
    policy = propose(staffed, 1, clock=clock)
    services.proposal_approve(proposal=policy, acting_user=factories.user_create("chair"))
    shorter = (("handwriting", "writing"), ("Handschrift", "Schrift"))
    texts = {code: words.replace(*shorter[code == "de"]) for code, words in factories.FORM.items()}
    committee = factories.user_create("committee")
    correction = services.consent_form_correct(study=staffed, acting_user=committee, texts=texts)
    assert correction.answer_by is None
    assert "14 days left" in text(as_("chair").get(url("committee", staffed))), "to object"
    clock.days_pass(30)
    assert overdue_mails_send() == 0
    propose_form(staffed, 1, clock=clock)
    clock.days_pass(5)
    Study.objects.update(closed_at=clock.now())
    assert overdue_mails_send() == 0


@pytest.mark.slow
def test_the_committee_and_home_sort_by_the_day_and_say_what_is_left(staffed: Study, clock: Clock) -> None:
    policy, form = propose(staffed, 9, clock=clock), propose_form(staffed, 2, clock=clock)
    chair = factories.user_create("chair")
    assert [each.proposal for each in committee_state(staffed).waiting] == [form, policy]
    assert [each.answer_by for each in waiting_for(chair)][:2] == [form.answer_by, policy.answer_by]
    for address in (url("committee", staffed), reverse("home")):
        page = text(as_("chair").get(address))
        assert page.index("2 days left") < page.index("9 days left")
    clock.days_pass(2)
    assert "last day" in text(as_("chair").get(url("committee", staffed)))
    clock.days_pass(1)
    assert "1 day overdue" in text(as_("chair").get(url("committee", staffed)))
    assert "6 days left" in text(as_("operator").get(url("committee", staffed))), "public in the study"


def test_the_forms_ask_for_the_day_and_refuse_one_that_is_over(staffed: Study, clock: Clock) -> None:
    member, today = as_("committee"), day_of(clock.moment)
    page = member.get(url("policy_new", staffed)).content.decode()
    assert f'name="answer_by" value="{today + timedelta(days=14)}"' in page
    values = {"high": "0.5", "average": "1", "low": "2", "reason": "Less.", "confirmed": "1"}
    late = member.post(url("policy_new", staffed), {**values, "answer_by": "2020-01-01"})
    assert (late.status_code, "Give a day from today on" in text(late)) == (422, True)
    member.post(url("policy_new", staffed), {**values, "answer_by": str(today + timedelta(days=7))})
    assert EpsilonPolicy.objects.get(version=2).answer_by == today + timedelta(days=7)

    services.consent_form_draft_save(
        study=staffed, acting_user=factories.user_create("committee"), texts={"en": "# New", "de": "# Neu"}
    )
    seen = member.get(url("consent_form_publish", staffed)).context["form"].digest
    sent = {"seen": seen, "renewal": "not_asked", "answer_by": str(today + timedelta(days=6))}
    member.post(url("consent_form_publish", staffed), sent)
    assert ConsentFormProposal.objects.latest("pk").answer_by == today + timedelta(days=6)
