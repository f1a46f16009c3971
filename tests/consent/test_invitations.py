"""Only the link gives a holder access, and guessing neither works nor reveals anything."""

import csv
import hashlib
import io
import json
import re
from urllib.parse import unquote

import pytest
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client, RequestFactory
from django.urls import reverse

from common.models import ThrottleEntry
from common.throttle import TooManyTriesError, entries_sweep
from consent import services
from consent.documents.codes import code_in_groups, code_new
from consent.models import ConsentEvent, DataHolder, Invitation, LinkReissue, Mail, Role, Study
from consent.services import invitations
from consent.services.erasures import erasure_ask
from consent.services.invitations import IssuedInvitation, code_hashes
from tests import factories
from tests.consent.conftest import Decide, answer, circumstance, events
from tests.factories import user_create
from tests.pages import as_, person_confirm, text, url
from training.services.erasures import records_erase

HERE = "203.0.113.7"


def invite(study: Study, *pseudonyms: str, **options: object) -> list[IssuedInvitation]:
    olga = user_create("olga")
    return invitations.invitations_create(study=study, acting_user=olga, pseudonyms=pseudonyms, **options)


def page(client: Client, name: str, study: Study) -> str:
    return client.get(reverse(f"consent:{name}", args=[study.slug])).content.decode()


def join(client: Client, code: str):
    return client.post(reverse("join"), {"code": code})


def test_everyone_not_yet_invited_is_invited_at_once(study: Study, client: Client) -> None:
    services.holders_register(study=study, pseudonyms=["P-1", "P-2", "P-3", "P-4", "P-5"])
    invite(study, "P-1")
    services.holder_link(holder=DataHolder.objects.get(study=study, pseudonym="P-2"), user=user_create("petra"))

    circumstance(study, "died", pseudonym="P-5")
    client.force_login(factories.member(study, "sven", Role.STEWARD))
    page = client.get(f"/studies/{study.slug}/invitations/").content.decode()
    assert "2 people have not been invited yet" in page
    url = f"/studies/{study.slug}/invitations/everyone/"
    assert "2 letters will be created" in client.get(url).content.decode()
    assert Invitation.objects.count() == 1
    made = client.post(url).context["letters"]
    assert [new.pseudonym for new, _qr in made] == ["P-3", "P-4"]
    assert "Everyone in the data has been invited, has an account," in client.get(url).content.decode()
    assert "not been invited yet" not in client.get(f"/studies/{study.slug}/invitations/").content.decode()


@pytest.fixture
def invited(study: Study) -> IssuedInvitation:
    """Return P-1, who has a link and no account."""
    return invite(study, "P-1")[0]


def link(code: str) -> str:
    return reverse("open_link", args=[code])


def test_a_code_is_unguessable_and_only_its_hash_is_kept(study: Study) -> None:
    issued = invite(study, *(f"P-{n}" for n in range(50)))
    assert len({new.code for new in issued}) == 50
    chosen = [new.code[start : start + 4] for new in issued for start in range(0, len(new.code), 5)]
    # base 32: five bits per letter, every fifth is a check letter
    assert len(chosen) * 20 == 50 * 80 and len(set(chosen)) > 195
    for row in Invitation.objects.values():
        assert not any(new.code in str(row) for new in issued)


def test_no_one_is_invited_twice_unless_their_code_is_to_be_replaced(study, holder, client) -> None:
    first, open_place = invite(study, holder.pseudonym, "P-2", open_places=1)
    assert first.pseudonym == "P-2", "P-1 has an account"
    assert invite(study, "P-2") == []
    assert not DataHolder.objects.filter(pseudonym__startswith="new-").exists()
    opened = [invitations.invitation_open(code=open_place.code, address=HERE) for _ in range(2)]
    assert opened[0] == opened[1] and opened[0].holder.pseudonym.startswith("new-"), "one code, one new holder"
    (second,) = invite(study, "P-2", replace=True)
    assert invitations.invitation_open(code=first.code, address=HERE) is None
    assert invitations.invitation_open(code=second.code, address=HERE) == second.invitation
    answer = join(client, first.spelled)
    assert answer.status_code == 422 and "This invitation doesn" in answer.text
    assert f'value="{first.spelled}"' in answer.text, "the form keeps the typed code"
    with pytest.raises(ValidationError, match="201 characters"):
        invite(study, "P" * 201)


def test_erased_people_can_be_invited_again(study: Study, invited: IssuedInvitation) -> None:
    assert invited.invitation.holder is not None
    erasure_ask(holder=invited.invitation.holder, acting_user=None)
    records_erase(study.pk)
    again, new = invite(study, "P-1", "P-2", replace=True)
    opened = invitations.invitation_open(code=again.code, address=HERE)
    assert opened is not None and opened.holder == invited.invitation.holder
    assert (again.pseudonym, new.pseudonym) == ("P-1", "P-2")
    olga = user_create("olga")
    assert invitations.link_reissue(study=study, pseudonym="P-1", reason="Lost.", acting_user=olga).pseudonym == "P-1"


def test_the_command_writes_what_can_be_printed(study: Study, tmp_path) -> None:
    def written(*arguments: str) -> list[dict[str, str]]:
        out = io.StringIO()
        call_command("invite", study.slug, *arguments, stdout=out)
        return list(csv.DictReader(io.StringIO(out.getvalue())))

    names = tmp_path / "names.txt"
    names.write_text("P-1\n\nP-2\n")
    rows = written("--pseudonyms", str(names), "--open", "1")
    assert [row["pseudonym"] for row in rows] == ["P-1", "P-2", ""]
    assert all(row["link"].endswith(link(row["code"])) for row in rows)
    assert invitations.invitation_open(code=rows[1]["code"], address=HERE).holder.pseudonym == "P-2"
    services.holders_register(study=study, pseudonyms=["P-3"])
    assert [row["pseudonym"] for row in written("--everyone")] == ["P-3"]
    with pytest.raises(CommandError, match="Say whom to invite"):
        written()


def test_the_link_alone_suffices_to_decide_look_up_change_and_withdraw(client, study, invited) -> None:
    opened = client.get(link(invited.code))
    assert opened.url == reverse("consent:study", args=[study.slug])  # the address no longer contains the code
    for sent in (answer(study, "HIGH"), answer(study, "LOW", promise="1.0", weaker="on")):
        client.post(reverse("consent:decide", args=[study.slug]), sent)
    assert "You take part: low protection." in page(client, "choice", study)
    client.post(reverse("consent:withdraw", args=[study.slug]))
    assert events(invited.invitation.holder) == [("given", "HIGH"), ("changed", "LOW"), ("withdrawn", "")]
    assert set(ConsentEvent.objects.values_list("recorded_by", flat=True)) == {None}
    elsewhere = Client().get(link(invited.code))
    assert elsewhere.url == reverse("consent:choice", args=[study.slug]), "it works a year later elsewhere"


def test_a_link_begins_a_session_that_ends_by_leaving_or_with_the_link(client, study, invited, hanna, give) -> None:
    client.force_login(hanna)
    before = client.session.session_key
    client.get(link(invited.code))
    assert client.session.session_key != before
    assert "_auth_user_id" not in client.session
    choice = reverse("consent:choice", args=[study.slug])
    give(factories.holder_create(factories.study_open("other"), "P-9"), "LOW")
    give(factories.holder_create(study, "P-2"), "LOW")
    assert client.get(reverse("consent:study", args=["other"])).status_code == 404, "it gives access to one study only"
    assert "You have not decided yet" in page(client, "choice", study)
    assert "Study other" not in client.get(reverse("consent:my_studies")).text
    client.post(reverse("leave"))
    assert client.get(choice).url.startswith(reverse("account_login"))
    client.get(link(invited.code))
    invitations.invitation_revoke(invitation=invited.invitation, acting_user=user_create("olga"))
    assert client.get(choice).status_code == 302


def take_account(client: Client, email: str = "Hanna@example.org", password: str = factories.PASSWORD, again: str = ""):
    fields = {"email": email, "password": password, "password_again": again or password}
    return client.post(reverse("account"), fields)


def test_a_confirmed_account_replaces_the_link(client, study, invited) -> None:
    client.get(link(invited.code))
    assert take_account(client).url == reverse("consent:choice", args=[study.slug])
    assert client.get(reverse("consent:choice", args=[study.slug])).status_code == 200
    bearer = Client()
    assert bearer.get(link(invited.code)).url == reverse("consent:study", args=[study.slug])
    again = Client()
    assert again.login(username="hanna@example.org", password=factories.PASSWORD)
    address = EmailAddress.objects.get(email="hanna@example.org")
    again.post(reverse("account_confirm_email", args=[EmailConfirmationHMAC.create(address).key]))
    assert Client().get(link(invited.code)).url == reverse("join")
    assert bearer.get(reverse("consent:choice", args=[study.slug])).status_code == 302  # that visit ends, too
    assert again.get(reverse("consent:choice", args=[study.slug])).status_code == 200


def test_mistyped_address_or_password_locks_nobody_out(client, study, invited, give) -> None:
    give(invited.invitation.holder, "LOW")
    client.get(link(invited.code))
    take_account(client, email="hana@example.org")
    later = Client()
    later.get(link(invited.code))
    shown = page(later, "choice", study)
    assert "You have set up an account with hana@example.org, but it is not confirmed yet" in shown
    assert take_account(later, password="another pass phrase").status_code == 302
    assert [user.email for user in User.objects.filter(username__contains="@")] == ["hanna@example.org"]
    last = Client()
    last.get(link(invited.code))
    assert last.post(reverse("consent:withdraw", args=[study.slug])).status_code == 302
    assert ConsentEvent.objects.order_by("-sequence")[0].kind == "withdrawn"


def test_an_account_needs_a_link_an_address_and_a_good_password_twice(client, study, invited) -> None:
    assert client.get(reverse("account")).url.startswith(reverse("account_login"))
    client.get(link(invited.code))
    for fields, says in (
        ({"again": "something else"}, "The passwords do not match"),
        ({"password": "12345"}, "too short"),
        ({"email": "hanna"}, "Enter a valid email address, such as name"),
    ):
        answer = take_account(client, **fields)
        assert answer.status_code == 422 and says in answer.text
    assert not User.objects.filter(username__contains="hanna").exists()
    factories.holder_create(study, "P-2", user=user_create("hanna@example.org"))
    assert "already decides" in take_account(client).text, "an account decides for one holder per study"


def test_a_misdirected_mail_confirms_nothing(client: Client, study: Study, invited: IssuedInvitation) -> None:
    """Someone else has the mistyped address: they know the link in the email, but not the password."""
    client.get(link(invited.code))
    take_account(client, email="hana@example.org")
    confirmation = reverse("account_confirm_email", args=[EmailConfirmationHMAC.create(EmailAddress.objects.get()).key])
    stranger = Client()
    assert stranger.post(confirmation).url.startswith(reverse("account_login"))
    stranger.force_login(user_create("stranger"))
    assert stranger.post(confirmation).status_code == 403
    stranger.post(reverse("account_reset_password"), {"email": "hana@example.org"})
    assert not Mail.objects.filter(kind="password_reset").exists()
    assert not EmailAddress.objects.get().verified
    assert Client().get(link(invited.code)).url == reverse("consent:study", args=[study.slug])


def test_an_existing_account_needs_its_password_and_second_factor(client: Client, invited: IssuedInvitation) -> None:
    theirs = user_create("hanna@example.org")
    client.get(link(invited.code))
    assert take_account(client, password="something else 9").status_code == 422
    assert DataHolder.objects.get().user is None
    TOTP.activate(theirs, generate_totp_secret())
    codes = iter(RecoveryCodes.activate(theirs).get_unused_codes())
    factor = take_account(client).url
    assert factor.startswith(reverse("mfa_authenticate"))
    assert "_auth_user_id" not in client.session
    assert DataHolder.objects.get().user is None, "the password alone is not enough"
    other = factories.holder_create(invited.invitation.study, "P-9", user=theirs)
    client.post(factor, {"code": next(codes)})
    assert DataHolder.objects.exclude(pk=other.pk).get().user is None, "the account now decides for someone else"
    other.delete()
    client = Client()
    client.get(link(invited.code))
    answer = client.post(take_account(client).url, {"code": next(codes)})
    assert answer.url == reverse("consent:choice", args=[invited.invitation.study.slug])
    assert DataHolder.objects.get().user == theirs


@pytest.fixture
def steward(study: Study) -> Client:
    """Return someone whose only role is data steward."""
    return as_(factories.member(study, "stella", Role.STEWARD))


def new_link(client: Client, study: Study, pseudonym: str = "P-1", reason: str = "Lost the letter; called back."):
    address = reverse("staff:link_new", args=[study.slug])
    return person_confirm(client, address, {"pseudonym": pseudonym, "reason": reason})


def test_a_new_link_ends_the_old_one_and_is_on_record(steward, study, invited, give) -> None:
    give(invited.invitation.holder, "LOW")
    visitor = Client()
    visitor.get(link(invited.code))
    issued = new_link(steward, study)
    assert "protection" not in issued.text.lower().replace("how strongly your records are protected", "")
    (code,) = set(re.findall(r"/join/([0-9a-z]{20})/", issued.text))
    assert Client().get(link(invited.code)).url == reverse("join")
    assert visitor.get(reverse("consent:choice", args=[study.slug])).status_code == 302
    holder = Client()
    holder.get(link(code))
    assert "You take part: low protection." in page(holder, "choice", study)
    assert "New links made for you" in page(holder, "choice", study)
    record = LinkReissue.objects.get()
    assert (record.holder.pseudonym, record.issued_by.username) == ("P-1", "stella")
    assert list(LinkReissue.chain_faults(study.pk)) == []
    assert ConsentEvent.objects.count() == 1
    overseer = as_(factories.member(study, "ada", Role.AUDITOR))
    looks = reverse("staff:holder_looks", args=[study.slug]) + "?record=links"
    assert "Lost the letter; called back." in overseer.get(looks).text


def test_a_new_link_needs_a_person_a_reason_and_a_steward_and_notifies(steward, study, invited) -> None:
    for pseudonym, reason in (("P-1", " "), ("nobody", "They called.")):
        assert new_link(steward, study, pseudonym, reason).status_code == 422
    assert new_link(as_(factories.member(study, "otto", Role.OPERATOR)), study).status_code == 403
    assert not LinkReissue.objects.exists()
    assert Client().get(link(invited.code)).url == reverse("consent:study", args=[study.slug])
    holder = factories.holder_create(study, "P-7", user=user_create("hanna"))
    new_link(steward, study, holder.pseudonym)
    assert list(Mail.objects.filter(kind="new_link").values_list("study", "user")) == [(study.pk, holder.user.pk)]


def test_a_steward_sees_who_has_not_answered_reminds_them_and_has_a_page_of_each(clock, steward, study, give) -> None:
    silent, decided = invite(study, "P-1", "P-2")
    give(decided.invitation.holder, "LOW")
    reminders, listed = reverse("staff:invitations_remind", args=[study.slug]), url("invitations", study)
    assert "has answered, or has an account" in text(steward.get(reminders))
    one = reverse("staff:person", args=[study.slug, silent.invitation.holder.public_id])
    for _again in range(2):
        assert "Correct the address" in text(steward.post(one, follow=True))
    assert "1 letter came back" in text(steward.get(url("letters", study)))
    assert Invitation.objects.filter(returned_by__username="stella").count() == 1
    assert steward.get(reminders).context["now"] == 1, "a returned letter does not count as sent"
    assert "has answered, or has an account" not in text(steward.get(reminders))
    (silent,) = invite(study, "P-1", replace=True)
    assert "came back." not in text(steward.get(url("letters", study))) and steward.get(reminders).context["now"] == 0
    clock.days_pass(15)
    steward = as_("stella")
    assert "1 person has not answered for two weeks" in text(steward.get(listed))
    assert "P-1" in (found := steward.get(listed, {"answered": "no"}).text) and "P-2" not in found
    search = reverse("staff:people_search", args=[study.slug])
    answer = steward.post(search, {"page": "invitations", "name": "p-1", "answered": "no"})
    assert "p-1" not in answer.url, "URLs contain no names"
    found = steward.get(answer.url)
    assert "P-1" in found.text and 'value="p-1"' in found.text
    assert steward.get(f"{answer.url}&format=csv").getvalue().count(b"P-1,") == 2
    assert steward.post(search, {"page": "invitations", "name": "P-2"}).url == f"{listed}?kept=1"
    assert "No invitation matches" in steward.get(answer.url).text and "P-1" in steward.get(f"{listed}?name=P-2").text
    issued = steward.post(reminders)
    (code,) = set(re.findall(r"/join/([0-9a-z]{20})/", issued.text))
    assert Client().get(link(silent.code)).url == reverse("join")
    assert Client().get(link(code)).url == reverse("consent:study", args=[study.slug])
    assert issued.context["made"] == 1 and steward.post(reminders).context["made"] == 0
    assert "link was opened" in text(steward.post(one, follow=True))
    one = reverse("staff:person", args=[study.slug, decided.invitation.holder.public_id])
    page_of_one = steward.get(one)
    assert "Answered yes" in text(page_of_one) and "ow protection" not in page_of_one.text
    (look,) = re.findall(r'href="([^"]*person/\?person=[^"]*)"', page_of_one.text)
    assert 'value="P-2"' in steward.get(look).text and "P-2" not in look
    assert as_(factories.member(study, "otto", Role.OPERATOR)).get(one).status_code == 403
    elsewhere = factories.study_create("elsewhere")
    services.membership_add(study=elsewhere, user=user_create("stella"), role=Role.STEWARD, acting_user=None)
    other = reverse("staff:person", args=["elsewhere", decided.invitation.holder.public_id])
    assert steward.get(other).status_code == steward.post(other).status_code == 404


def used_up(study: Study) -> str:
    (new,) = invite(study, "used up")
    request = RequestFactory().post(reverse("account"))
    user = invitations.account_take(
        holder=new.invitation.holder, email="u@example.org", password=factories.PASSWORD, request=request
    )
    invitations.account_invitations_end(user=user)
    return new.code


def revoked(study: Study) -> str:
    (new,) = invite(study, "revoked")
    invitations.invitation_revoke(invitation=new.invitation, acting_user=user_create("olga"))
    return new.code


@pytest.mark.parametrize("kind", [used_up, revoked, lambda study: code_new(4)])
def test_all_wrong_codes_get_the_same_answer(study: Study, kind, django_assert_num_queries) -> None:
    code, client = kind(study), Client()
    with django_assert_num_queries(7):  # the same work, so the same time
        answer = client.get(link(code))
    assert (answer.status_code, answer.url, answer.content) == (302, reverse("join"), b"")
    says = client.get(answer.url).text
    with django_assert_num_queries(7):
        answer = join(client, code)
    assert answer.status_code == 422
    for page in (says, answer.text):
        assert "This invitation doesn" in page and study.title not in page
    assert client.get(reverse("consent:my_studies")).status_code == 302


def test_earlier_codes_and_those_of_an_earlier_key_keep_working(study: Study, invited, settings) -> None:
    assert len(invited.code) == 20
    settings.SIGNING_KEY_FALLBACKS, settings.SIGNING_KEY = [settings.SIGNING_KEY or settings.SECRET_KEY], "k" * 50
    earlier = code_new(7)
    digest = hashlib.sha256(earlier.encode()).hexdigest()
    holder = DataHolder.objects.create(study=study, pseudonym="earlier")
    Invitation.objects.create(study=study, holder=holder, code_hash=digest)
    for code in (invited.code, earlier.lower()):
        assert join(Client(), code_in_groups(code)).url == reverse("consent:study", args=[study.slug])
    (fault,) = join(Client(), invited.spelled[:-1] + "u").context["form"].errors["code"]
    assert fault.startswith("Group 4 ")
    settings.SIGNING_KEY_FALLBACKS = []
    assert join(Client(), invited.code).status_code == 422, "stolen hashes are useless without the key"


def test_guessers_have_to_wait_and_learn_nothing(client, invited, clock, settings, caplog) -> None:
    settings.INVITATION_TRIES = 3
    for _ in range(4):
        assert client.get(link(invited.code)).url != reverse("join"), "a correct code is no failure"
    for code in ("a" * 32, "nonsense", "a" * 32):
        assert join(client, code).status_code == 422
    for code in ("a" * 32, invited.code):
        assert client.get(link(code)).url == reverse("join")
        for told in (client.get(reverse("join")), join(client, code)):
            assert told.status_code == 429 and "Wait 10 minutes, then try again." in told.text
    assert "Too Many Requests: /join/" in caplog.text and invited.code not in caplog.text
    elsewhere = Client(REMOTE_ADDR="198.51.100.1")
    assert elsewhere.get(link(invited.code)).url != reverse("join")
    clock.days_pass(settings.INVITATION_WAIT / 86_400)
    assert client.get(link(invited.code)).url != reverse("join")


@pytest.mark.parametrize("known", [True, False])
def test_guessing_passwords_and_addresses_of_accounts_is_limited(client, invited, settings, known: bool) -> None:
    """A weak password for an unknown address and a wrong one for a known address get different responses."""
    settings.SIGN_IN_TRIES, settings.INVITATION_TRIES = (2, 9) if known else (9, 2)
    user_create("hanna@example.org")
    client.get(link(invited.code))
    for n in range(2):
        tried = ("hanna@example.org", "something else 9") if known else (f"somebody{n}@example.org", "12345")
        assert take_account(client, *tried).status_code == 422
    assert take_account(client).status_code == 429
    sent = {"login": "hanna@example.org", "password": factories.PASSWORD}
    assert (client.post("/sign-in/", sent).status_code == 429) is known, "limited like sign-ins"


def test_addresses_and_codes_are_not_kept_and_old_tries_are_deleted(invited, clock, settings) -> None:
    settings.INVITATION_TRIES = 3
    for _ in range(3):
        assert invitations.invitation_open(code="wrong", address=HERE) is None
    with pytest.raises(TooManyTriesError):
        invitations.invitation_open(code=invited.code, address=HERE)
    kept = str(list(ThrottleEntry.objects.values()))
    assert HERE not in kept and "wrong" not in kept
    assert entries_sweep() == 0
    clock.days_pass(1)
    assert entries_sweep() > 0 and not ThrottleEntry.objects.exists()


def test_operators_invite_and_revoke_and_see_no_level(study: Study, invited: IssuedInvitation, give: Decide) -> None:
    give(invited.invitation.holder, "AVERAGE")
    path = reverse("staff:invitations", args=[study.slug])
    revoke = reverse("staff:invitation_revoke", args=[study.slug, invited.invitation.pk])
    for role, status in (("committee", 403), ("auditor", 403), ("researcher", 403), ("", 404)):
        client = as_(factories.member(study, f"some {role}", role) if role else "stranger")
        assert (client.get(path).status_code, client.post(revoke).status_code) == (status, status), role
    operator = as_("olga")
    assert "average" not in operator.get(path).text
    assert "Revoke the invitation of P-1?" in operator.get(revoke).text
    assert operator.post(revoke).url == path
    assert invitations.invitation_open(code=invited.code, address=HERE) is None
    assert operator.get(revoke).status_code == 404


@pytest.mark.parametrize("people", [1001, pytest.param(12_000, marks=[pytest.mark.exhaustive])])
def test_many_are_invited_at_once_with_lists_and_letters_in_parts(steward: Client, study: Study, people: int) -> None:
    services.holders_register(study=study, pseudonyms=[f"P-{number:05}" for number in range(people)])
    answer = steward.post(f"/studies/{study.slug}/invitations/everyone/")
    assert (answer.status_code, answer.context["made"]) == (200, people)
    assert Invitation.objects.filter(study=study).count() == people
    addresses = re.findall(r'href="data:text/csv;charset=utf-8,([^"]+)"', answer.text)
    assert all(len(address) < 2_000_000 for address in addresses), "browsers refuse longer URLs"
    rows = [row for address in addresses for row in csv.DictReader(io.StringIO(unquote(address)))]
    assert [row["pseudonym"] for row in rows] == [f"P-{number:05}" for number in range(people)]
    codes = {code_hashes(row["code"])[0] for row in rows}
    assert codes == set(Invitation.objects.values_list("code_hash", flat=True))
    parts = answer.context["parts"]
    first, part, form = parts[-1]
    assert first + len(part) - 1 == people
    assert {code_hashes(new.code)[0] for _first, each, _form in parts for new in each} == codes
    sent = {"letters": json.dumps(form.initial["letters"][:2]), "language": "en", "paper": ""}
    letters = steward.post(reverse("staff:letters_pdf", args=[study.slug]), sent)
    assert letters["Content-Type"] == "application/pdf"
