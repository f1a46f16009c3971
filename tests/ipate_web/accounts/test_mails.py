"""Mails through a real SMTP server: their recipients, what they never say, and what happens if the server fails."""

from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from consent import services
from consent.models import (
    Checkpoint,
    ConsentForm,
    DataHolder,
    EpsilonPolicy,
    Level,
    Mail,
    MailWishes,
    News,
    Role,
    Study,
)
from consent.services import mail
from consent.services.invitations import link_reissue
from consent.services.mail import MAILS
from ipate_web.accounts.adapters import CHANGES
from tests import factories
from tests.factories import decide
from tests.ipate_web.accounts.conftest import Mailbox, subject, words
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, run_approve, run_draft, run_finish, study_with_table
from training.models import Alliance, Run, RunResult, StudentModel, Verification
from training.services.erasures import study_close
from training.services.runs import run_cancel, run_fail

pytestmark = pytest.mark.django_db


def person(name: str, *, confirmed: bool = True, **wishes: object) -> User:
    """Return someone with an address."""
    address = f"{name}@example.org"
    user = factories.user_create(name, email=address)
    EmailAddress.objects.create(user=user, email=address, verified=confirmed, primary=True)
    if wishes:
        MailWishes.objects.create(user=user, **{"language": "en", **wishes})
    return user


@pytest.fixture
@built_once
def study() -> Study:
    study = factories.study_open(title="Reading digits")
    Mail.objects.all().delete()  # to the proposers of what was approved
    return study


@pytest.fixture
def holder(study: Study) -> DataHolder:
    return factories.holder_create(study, user=person("hanna"))


def test_a_receipt_comes_after_each_decision(mailbox: Mailbox, holder: DataHolder) -> None:
    decide(holder, "LOW")
    services.consent_withdraw(holder=holder, acting_user=holder.user)
    first, second = mailbox.deliver()
    assert first["To"] == "hanna@example.org"
    assert subject(first) == "Your decision on “Reading digits” is recorded"
    assert "http://127.0.0.1:8000/my/digits/choice/" in words(first)
    assert words(first) == words(second)
    assert list(Mail.objects.values_list("state", "tries")) == [("sent", 1)] * 2
    assert mailbox.deliver() == []


def test_mails_are_in_the_language_of_their_reader_or_page(mailbox, holder, client) -> None:
    client.cookies["django_language"] = "de"
    client.post(reverse("account_reset_password"), {"email": "hanna@example.org"})
    assert list(map(subject, mailbox.deliver())) == ["Wählen Sie ein neues Passwort"]
    MailWishes.objects.create(user=holder.user, language="de")
    decide(holder, "LOW")
    (receipt,) = mailbox.deliver()
    assert subject(receipt) == "Ihre Entscheidung über „Reading digits“ ist festgehalten"
    assert "steht nicht darin, was Sie entschieden haben" in words(receipt)


def test_nothing_goes_to_an_address_that_is_not_confirmed(mailbox: Mailbox, study: Study) -> None:
    decide(factories.holder_create(study, user=person("hanna", confirmed=False)), "HIGH")
    assert mailbox.deliver() == []
    assert Mail.objects.get().state == "dropped"


@pytest.fixture
def people() -> dict[str, User]:
    return people_with_mails()


def people_with_mails() -> dict[str, User]:
    """Return holders of every level, of none, and undecided ones, with every kind of mail sent to each."""
    study_with_every_mail()
    return {answer: User.objects.get(username=f"hanna-{answer.lower()}") for answer in ANSWERS}


ANSWERS = (*Level.values, "NONE", "UNDECIDED")


@built_once
def study_with_every_mail() -> Study:
    study = study_with_table("digits", title="Reading digits")
    form = ConsentForm.objects.filter(study=study).latest("version")
    people = {answer: person(f"hanna-{answer.lower()}", uses=True) for answer in ANSWERS}
    for answer, user in people.items():
        holder = factories.holder_create(study, f"P-{answer}", user=user)
        if answer in Level.values:
            services.consent_give(holder=holder, level=answer, form=form, acting_user=user)
        elif answer == "NONE":
            services.consent_refuse(holder=holder, acting_user=user, form=form)
        else:
            mail.mails_send("receipt", [user.pk], study=study)
    factories.form_publish(study, {"en": "New.", "de": "Neu."}, renewal="required")
    factories.form_publish(study, {"en": "Newer.", "de": "Neuer."}, renewal="asked")
    factories.policy_approve(study, 0.5, 1.0, 2.0)
    run = run_draft(study, **TABLE_RUN)
    run_approve(run=run, acting_user=factories.user_create("otto2"))
    student = StudentModel.objects.create(
        run=run, artifact="none", learner="none", digest="0" * 64, card={}, calibration={"scale": 1.0, "offsets": []}
    )
    Run.objects.filter(pk=run.pk).update(student=student)
    RunResult.objects.create(run=run, content={}, digest="0" * 64, card={})
    news = [News.objects.create(study=study, kind=kind, about=key) for kind, key in (("result", run.pk), ("year", ""))]
    factories.form_publish(study, {"en": "A year."}, valid=services.Valid(months=12))
    form = ConsentForm.objects.filter(study=study).latest("version")
    for answer, user in people.items():  # last, for all: a renewal goes to everyone who answered such a form
        holder = DataHolder.objects.get(study=study, user=user)
        if answer in Level.values:
            event = services.consent_give(holder=holder, level=answer, form=form, acting_user=user)
        else:
            event = services.consent_refuse(holder=holder, acting_user=user, form=form)
        mail.mails_send("renewal", [user.pk], study=study, about=event.pk)
        for kind in ("handed_over", "decide_later"):
            mail.mails_send(kind, [user.pk], study=study)
        mail.mails_send("address_left", [user.pk])  # which is not about an account
        for each in news:
            mail.mails_send(MAILS[News.Kind(each.kind)], [user.pk], study=study, about=each.pk)
    signed = {"content": "", "signature": ""}
    told = {"terms": {"hub": "Clinic"}, "proposals": {"ab": signed | {"told": "{}"}}, "offered": [signed]}
    told |= {"name": "Wards", "own_name": "A", "address": "https://hub.example.org"}
    alliance = Alliance.objects.create(study=study, **told)
    Run.objects.filter(pk=run.pk).update(alliance=alliance)
    olga, conrad = factories.user_create("olga"), factories.user_create("conrad")
    note = "hospital.example/checkpoints\n1\n#\n\n\u2014 hospital.example/checkpoints #\n"
    checkpoint = Checkpoint.objects.create(number=1, day=timezone.localdate(), entry="{}", note=note)
    policy = services.epsilon_policy_propose(study=study, acting_user=conrad, high=1, average=2, low=4, reason="More.")
    approved = EpsilonPolicy.objects.filter(approval__isnull=False).latest("version")
    texts = {"en": "Ask again."}
    proposal = services.consent_form_propose(study=study, acting_user=conrad, texts=texts, renewal="required")
    services.membership_add(study=study, user=conrad, role=Role.COMMITTEE, acting_user=None)
    services.consent_form_correct(study=study, acting_user=olga, texts={"en": "One year."})
    # Most mails are for staff; this test sends them to holders, too.
    about: list[tuple[object, tuple[str, ...]]] = [
        (run.pk, ("run_waiting", "approval_failed", "run_approved", "run_ended", "share_used", "result_withdrawn")),
        (policy.pk, ("policy_waiting", "policy_overdue")),
        (approved.pk, ("policy_approved",)),
        (proposal.pk, ("form_overdue", "form_waiting")),
        (form.pk, ("form_approved",)),
        (study.role_changes.first().pk, ("role_changed",)),
        (student.pk, ("model_withdrawn",)),
        (alliance.pk, ("joint_proposed", "key_waiting", "site_silent")),
        ("", ("budget_low", "fault_found", "fault_found_committee", "installation_fault", "alarm")),
    ]
    for answer, user in people.items():
        link_reissue(study=study, pseudonym=f"P-{answer}", reason="Lost.", acting_user=olga)
        other = EmailAddress.objects.create(user=user, email=f"{user.username}@example.com")
        mail.mails_send("confirm_address", [user.pk], about=other.pk)
        for kind in ("password_reset", "account_made"):
            mail.mails_send(kind, [user.pk])
        for change in CHANGES:
            mail.mails_send("account_changed", [user.pk], about=change)
        for key, kinds in about:
            for kind in kinds:
                mail.mails_send(kind, [user.pk], study=study, about=key)
        mail.mails_send("checkpoint", [user.pk], about=checkpoint.pk)
    Verification.objects.create(study=study, faults=1, fault_for_deciders=True)
    run_cancel(run=run, acting_user=olga)
    study_close(study=study, reason="Done.", acting_user=olga, erase_after=timezone.localdate())
    return study


def test_no_kind_of_mail_reveals_a_level(people: dict[str, User]) -> None:
    def mails_of(user: User) -> set[tuple[str, str]]:
        """Return the text of each kind of mail, without the name and links, which must differ."""
        texts = set()
        for row in Mail.objects.filter(user=user).select_related("study"):
            message = mail.mail_render(row)
            if message is not None:
                text = f"{message.subject}\n{message.body}".replace(user.username, "NAME")
                texts.add((row.kind, "\n".join(line for line in text.splitlines() if "/account/" not in line)))
        return texts

    first, *others = (mails_of(user) for user in people.values())
    assert {kind for kind, _text in first} >= {
        *("receipt", "new_form", "new_policy", "new_use", "new_link", "run_ended"),
        *("policy_waiting", "form_waiting", "handed_over", "renewal", "study_closed", "confirm_address"),
        *MAILS.values(),
    }
    for other in others:
        assert other == first
    for _kind, text in first:
        named = [level for level in Level.values if level.lower() + " protection" in text.lower()]
        assert named in ([], Level.values), "all or none of them mean it"
        assert "ε =" not in text
    assert set(Mail.objects.values_list("kind", flat=True)) == set(mail.KINDS), "send the new kind above"


def test_a_server_that_does_not_answer_is_tried_again_later(mailbox, holder, caplog) -> None:
    decide(holder, "LOW")
    mailbox.refuses = True
    waits = []
    for _ in range(mail.TRIES):
        before = timezone.now()
        Mail.objects.update(due_at=before)
        assert mailbox.deliver() == []
        waits.append((Mail.objects.get().due_at - before) / timedelta(minutes=1))
    # A quarter is random, and the test itself takes a moment.
    assert all(2**number <= wait <= 1.25 * 2**number + 0.5 for number, wait in enumerate(waits[:-1]))
    assert len(waits) == mail.TRIES
    row = Mail.objects.get()
    assert (row.state, row.fault) == ("failed", "SMTPDataError")
    logged = " ".join(record.getMessage() for record in caplog.records if record.name == "consent.services.mail")
    assert "SMTPDataError" in logged and "hanna" not in logged

    Mail.objects.all().delete()
    decide(holder, "HIGH")
    mailbox.deliver()
    mailbox.refuses = False
    assert mailbox.deliver() == [], "it is not due yet"
    Mail.objects.update(due_at=timezone.now())
    assert len(mailbox.deliver()) == 1
    assert Mail.objects.get().state == "sent"


def test_sent_mails_are_recorded_without_texts_and_links(mailbox: Mailbox, holder: DataHolder) -> None:
    decide(holder, "LOW")
    mail.mails_send("password_reset", [holder.user.pk])
    sent = mailbox.deliver()
    recorded = str(list(Mail.objects.values()))
    lines = [line for one in sent for line in words(one).split("\n") if line]
    for part in ("LOW", "hanna", "Reading", "/account/", *lines):
        assert part not in recorded


def test_news_goes_to_every_account_of_the_study(study: Study, holder: DataHolder) -> None:
    decide(holder, "HIGH")
    services.consent_refuse(holder=factories.holder_create(study, "P-2", user=person("rita")), acting_user=None)
    factories.holder_create(study, "P-3", user=person("undecided"))
    factories.holder_create(study, "P-4")
    factories.holder_create(factories.study_open("other"), user=person("stranger"))
    Mail.objects.all().delete()
    form = factories.form_publish(study, {"en": "New.", "de": "Neu."}, renewal="asked")
    factories.policy_approve(study, 0.5, 1.0, 2.0)
    policy = study.epsilon_policies.latest("version")
    mails = set(Mail.objects.filter(kind__startswith="new_").values_list("kind", "user__username", "about"))
    everybody = ("hanna", "rita", "undecided")
    about = (("new_form", form), ("new_policy", policy))
    assert mails == {(kind, name, str(row.pk)) for kind, row in about for name in everybody}


def test_mails_about_uses_go_to_those_who_wish_them(study: Study) -> None:
    study = study_with_table("table")
    factories.holder_create(study, "wishes", user=person("wishes", uses=True))
    factories.holder_create(study, "not", user=person("not", uses=False))
    run_approve(run=run_draft(study, **TABLE_RUN), acting_user=factories.user_create("otto2"))
    assert list(Mail.objects.filter(kind="new_use").values_list("user__username", flat=True)) == ["wishes"]


def test_staff_hear_of_proposals_approvals_and_ends_as_they_wish(mailbox: Mailbox) -> None:
    study = study_with_table("table")
    services.holder_link(holder=study.holders.earliest("pk"), user=person("hanna"))
    person("olga", approvals=False, shares=False)
    _otto, _conrad, _clara, second = *map(person, ("otto", "conrad", "clara")), person("second", shares=False)
    factories.members_add(study, otto="operator", conrad="committee", clara="chair", second="operator")

    def sent() -> set[tuple[str, str]]:
        mails = mailbox.deliver()
        assert not any("No disk" in words(each) for each in mails)
        return {(each["To"].partition("@")[0], subject(each).removeprefix(f"“{study.title}”: ")) for each in mails}

    sent()
    run = run_draft(study, title="First vote", **TABLE_RUN)
    conrad = User.objects.get(username="conrad")
    policy = services.epsilon_policy_propose(study=study, acting_user=conrad, high=1, average=2, low=4, reason="More.")
    waiting = "is waiting for your approval"
    assert sent() == {("second", f"a run {waiting}"), ("clara", f"an ε policy {waiting}")}
    run_approve(run=run, acting_user=second, share=0.5)
    assert ("otto", "your run is approved") in sent()
    assert run_finish(run).status == "finished"
    finished = sent()
    of_hanna = {each for each in finished if each[0] == "hanna"}
    assert finished - of_hanna == {
        ("otto", "Run “First vote”: a group has used most of its share"),
        ("otto", "Run “First vote”: finished"),
        ("second", "Run “First vote”: finished"),
    }
    assert [heading.rpartition(" – ")[2].endswith("what was learned") for _, heading in of_hanna] == [True]
    services.epsilon_policy_approve(policy=policy, acting_user=User.objects.get(username="clara"))
    assert ("conrad", "your ε policy is approved") in sent()
    other = run_draft(study, title="Second vote", **TABLE_RUN)
    run_approve(run=other, acting_user=second, share=0.5)
    sent()
    run_fail(other.pk, "No disk.")
    assert sent() == {("otto", "Run “Second vote”: failed"), ("second", "Run “Second vote”: failed")}
