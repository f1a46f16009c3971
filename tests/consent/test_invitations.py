"""The link alone lets a holder in; guessing lets nobody in and tells nothing."""

import csv
import io
import json
import re
from urllib.parse import quote, unquote

import pytest
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client, RequestFactory
from django.urls import reverse

from common.models import ThrottleEntry
from common.throttle import TooManyTriesError, entries_sweep
from consent import services
from consent.codes import code_new
from consent.models import ConsentEvent, DataHolder, Invitation, LinkReissue, Mail, Role, Study
from consent.services import invitations
from consent.services.erasures import erasure_ask
from consent.services.handover import circumstance_record
from consent.services.invitations import IssuedInvitation, code_hash
from tests import factories
from tests.clock import Clock
from tests.consent.conftest import Decide
from tests.pages import as_
from training.services.erasures import records_erase

HERE = "203.0.113.7"


def test_everyone_not_yet_invited_is_invited_at_once(study: Study, client: Client) -> None:
    services.holders_register(study=study, pseudonyms=["P-1", "P-2", "P-3", "P-4", "P-5"])
    invite(study, "P-1")
    services.holder_link(
        holder=DataHolder.objects.get(study=study, pseudonym="P-2"), user=factories.user_create("petra")
    )
    died = DataHolder.objects.get(study=study, pseudonym="P-5")
    sven = factories.user_create("sven")
    services.membership_add(study=study, user=sven, role=Role.STEWARD, acting_user=None)
    circumstance_record(study=study, pseudonym=died.pseudonym, kind="died", reason="told", acting_user=sven)
    client.force_login(sven)
    page = client.get(f"/studies/{study.slug}/invitations/").content.decode()
    assert "2 people are not invited yet" in page
    url = f"/studies/{study.slug}/invitations/everyone/"
    assert "2 letters are made" in client.get(url).content.decode()
    assert Invitation.objects.count() == 1
    made = client.post(url).context["letters"]
    assert [new.pseudonym for new, _qr in made] == ["P-3", "P-4"]
    assert "Everybody in the data is invited" in client.get(url).content.decode()
    assert "not invited yet" not in client.get(f"/studies/{study.slug}/invitations/").content.decode()


def test_an_invitation_is_found_among_many_by_its_pseudonym(study: Study) -> None:
    invitations.invitations_create(study=study, acting_user=None, pseudonyms=[f"P-{n}" for n in range(60)])
    wanted = Invitation.objects.get(holder__pseudonym="P-3")
    factories.steward_add(study)
    browser = as_("sven")
    address = reverse("staff:invitation_revoke", args=[study.slug, wanted.pk])
    url = reverse("staff:invitations", args=[study.slug])
    assert address not in browser.get(url).text, "it is on a later page"
    for typed in ("P-3", " p-3\0"):
        page = browser.get(url, {"name": typed})
        assert address in page.text and page.context["page"].paginator.count == 11
    assert "Nobody who was invited is called so" in browser.get(url, {"name": "P-99"}).text


def test_the_command_invites_everyone(study: Study) -> None:
    services.holders_register(study=study, pseudonyms=["P-1", "P-2"])
    invite(study, "P-1")
    out = io.StringIO()
    call_command("invite", study.slug, everyone=True, stdout=out)
    assert [row["pseudonym"] for row in csv.DictReader(io.StringIO(out.getvalue()))] == ["P-2"]


def invite(study: Study, *pseudonyms: str, **options: object) -> list[IssuedInvitation]:
    return invitations.invitations_create(
        study=study, acting_user=factories.user_create("olga"), pseudonyms=pseudonyms, **options
    )


@pytest.fixture
def invited(study: Study) -> IssuedInvitation:
    """P-1, who has a link and no account."""
    return invite(study, "P-1")[0]


def link(code: str) -> str:
    return reverse("open_link", args=[code])


def page(client: Client, name: str, study: Study) -> str:
    return client.get(reverse(f"consent:{name}", args=[study.slug])).content.decode()


# --- Making them ----------------------------------------------------------------------------------------------------


def test_a_code_is_unguessable_and_only_its_hash_is_kept(study: Study) -> None:
    issued = invite(study, *(f"P-{n}" for n in range(50)))
    assert len({new.code for new in issued}) == 50
    chosen = [new.code[start : start + 4] for new in issued for start in range(0, len(new.code), 5)]
    assert len(chosen) * 20 == 50 * 140 and len(set(chosen)) > 340  # base 32: five bits a letter, the fifth checks
    for row in Invitation.objects.values():
        assert not any(new.code in str(row) for new in issued)


def test_holders_with_an_account_are_left_out(study: Study, holder: DataHolder) -> None:
    assert holder.user is not None
    assert [new.pseudonym for new in invite(study, holder.pseudonym, "P-2")] == ["P-2"]


def test_a_replaced_code_opens_nothing(study: Study, invited: IssuedInvitation) -> None:
    assert invite(study, "P-1") == []
    (second,) = invite(study, "P-1", replace=True)
    assert invitations.invitation_open(code=invited.code, address=HERE) is None
    assert invitations.invitation_open(code=second.code, address=HERE) == second.invitation


def test_whoever_had_their_records_erased_is_invited_again(study: Study, invited: IssuedInvitation) -> None:
    assert invited.invitation.holder is not None
    erasure_ask(holder=invited.invitation.holder, acting_user=None)
    records_erase(study.pk)
    again, new = invite(study, "P-1", "P-2", replace=True)
    opened = invitations.invitation_open(code=again.code, address=HERE)
    assert opened is not None and opened.holder == invited.invitation.holder
    assert (again.pseudonym, new.pseudonym) == ("P-1", "P-2")
    olga = factories.user_create("olga")
    assert invitations.link_reissue(study=study, pseudonym="P-1", reason="Lost.", acting_user=olga).pseudonym == "P-1"


def test_a_code_may_be_typed_as_it_stands_on_paper(invited: IssuedInvitation) -> None:
    typed = invited.spelled.upper()
    assert invitations.invitation_open(code=typed, address=HERE) == invited.invitation


def join(client: Client, code: str):
    return client.post(reverse("join"), {"code": code})


def test_a_mistyped_code_stays_and_the_group_that_is_wrong_is_named(invited: IssuedInvitation, client: Client) -> None:
    groups = invited.spelled.split()
    groups[2] = ("7" if groups[2][0] != "7" else "8") + groups[2][1:]
    page = join(client, " ".join(groups))
    assert page.status_code == 422
    assert f"Group 3 ({groups[2]})" in page.text and "Group 4" not in page.text
    assert f'value="{" ".join(groups)}"' in page.text
    assert join(client, invited.spelled).status_code == 302


def test_a_code_that_opens_nothing_stays_in_its_field(study: Study, invited: IssuedInvitation, client: Client) -> None:
    invite(study, "P-1", replace=True)
    page = join(client, invited.spelled)
    assert page.status_code == 422 and "This invitation opens nothing" in page.text
    assert f'value="{invited.spelled}"' in page.text


def test_mistyped_codes_are_wrong_tries(invited: IssuedInvitation, client: Client, settings) -> None:
    settings.INVITATION_TRIES = 2
    assert [join(client, "nonsense").status_code for _ in range(3)] == [422, 422, 429]
    assert join(client, invited.spelled).status_code == 429


def test_an_open_place_becomes_one_new_holder(study: Study) -> None:
    (place,) = invite(study, open_places=1)
    assert not DataHolder.objects.exists()
    first = invitations.invitation_open(code=place.code, address=HERE)
    again = invitations.invitation_open(code=place.code, address=HERE)
    assert first.holder == again.holder == DataHolder.objects.get()


def test_a_pseudonym_that_does_not_fit_is_refused(study: Study) -> None:
    with pytest.raises(ValidationError, match="200 characters"):
        invite(study, "P" * 201)


def test_the_command_writes_what_can_be_printed(study: Study, tmp_path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("P-1\n\nP-2\n")
    out = io.StringIO()
    call_command("invite", study.slug, "--pseudonyms", str(names), "--open", "1", stdout=out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [row["pseudonym"] for row in rows] == ["P-1", "P-2", ""]
    assert all(row["link"].endswith(link(row["code"])) for row in rows)
    assert invitations.invitation_open(code=rows[1]["code"], address=HERE).holder.pseudonym == "P-2"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere", "--open", "1"], "no study"),
        (["digits"], "Nobody to invite"),
        (["digits", "--pseudonyms", "x"], "x"),
    ],
)
def test_the_command_says_what_is_wrong(study: Study, arguments: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        call_command("invite", *arguments)


# --- Using them -----------------------------------------------------------------------------------------------------


def test_the_link_alone_suffices_to_decide_look_up_change_and_withdraw(
    client: Client, study: Study, invited: IssuedInvitation
) -> None:
    opened = client.get(link(invited.code))
    assert opened.url == reverse("consent:study", args=[study.slug])  # the code is gone from the address
    answer = {"form_version": 1, "policy_version": 1}
    for choice, promise in (("HIGH", {}), ("LOW", {"promise": "1.0", "weaker": "on"})):
        client.post(reverse("consent:decide", args=[study.slug]), {**answer, **promise, "choice": choice})
    assert "You take part: low protection." in page(client, "choice", study)
    client.post(reverse("consent:withdraw", args=[study.slug]))
    assert list(ConsentEvent.objects.order_by("sequence").values_list("kind", "level", "recorded_by", "holder")) == [
        ("given", "HIGH", None, invited.invitation.holder_id),
        ("changed", "LOW", None, invited.invitation.holder_id),
        ("withdrawn", "", None, invited.invitation.holder_id),
    ]
    assert Client().get(link(invited.code)).url == reverse(
        "consent:choice", args=[study.slug]
    )  # it opens again, in a year and elsewhere


def test_opening_a_link_begins_a_new_session(
    client: Client, study: Study, invited: IssuedInvitation, hanna: User
) -> None:
    client.force_login(hanna)
    before = client.session.session_key
    client.get(link(invited.code))
    assert client.session.session_key != before
    assert "_auth_user_id" not in client.session


def test_a_link_reaches_one_holding_and_no_other(
    client: Client, study: Study, invited: IssuedInvitation, give: Decide
) -> None:
    other = factories.holder_create(factories.study_open("other"), "P-9")
    give(other, "LOW")
    give(factories.holder_create(study, "P-2"), "LOW")
    client.get(link(invited.code))
    assert client.get(reverse("consent:study", args=["other"])).status_code == 404
    assert "You have not decided yet" in page(client, "choice", study)
    assert "other" not in client.get(reverse("consent:my_studies")).content.decode()


def test_after_leaving_the_browser_knows_nothing(client: Client, study: Study, invited: IssuedInvitation) -> None:
    client.get(link(invited.code))
    client.post(reverse("leave"))
    assert client.get(reverse("consent:choice", args=[study.slug])).url.startswith(reverse("account_login"))


def test_a_revoked_link_ends_the_visit_too(client: Client, study: Study, invited: IssuedInvitation) -> None:
    client.get(link(invited.code))
    invitations.invitation_revoke(invitation=invited.invitation, acting_user=factories.user_create("olga"))
    assert client.get(reverse("consent:choice", args=[study.slug])).status_code == 302


# --- An account instead ---------------------------------------------------------------------------------------------


def take_account(client: Client, email: str = "Hanna@example.org", password: str = factories.PASSWORD):
    return client.post(reverse("account"), {"email": email, "password": password, "password_again": password})


def confirm(client: Client, email: str = "hanna@example.org") -> str:
    """Open the link of the mail in ``client``, press its button, and say where it leads."""
    address = EmailAddress.objects.get(email=email)
    return client.post(reverse("account_confirm_email", args=[EmailConfirmationHMAC.create(address).key])).url


def test_an_account_takes_the_links_place_once_it_is_confirmed(
    client: Client, study: Study, invited: IssuedInvitation
) -> None:
    client.get(link(invited.code))
    assert take_account(client).url == reverse("consent:choice", args=[study.slug])
    assert client.get(reverse("consent:choice", args=[study.slug])).status_code == 200
    bearer = Client()
    assert bearer.get(link(invited.code)).url == reverse("consent:study", args=[study.slug])
    again = Client()
    assert again.login(username="hanna@example.org", password=factories.PASSWORD)
    confirm(again)
    assert Client().get(link(invited.code)).url == reverse("join")
    assert bearer.get(reverse("consent:choice", args=[study.slug])).status_code == 302  # that visit ends, too
    assert again.get(reverse("consent:choice", args=[study.slug])).status_code == 200


@pytest.mark.slow
def test_mistyped_address_or_password_locks_nobody_out(
    client: Client, study: Study, invited: IssuedInvitation, give: Decide
) -> None:
    give(invited.invitation.holder, "LOW")
    client.get(link(invited.code))
    take_account(client, email="hana@example.org")
    later = Client()
    later.get(link(invited.code))
    assert "You have set up an account with hana@example.org, which is not confirmed yet" in page(
        later, "choice", study
    )
    assert take_account(later, password="another pass phrase").status_code == 302
    assert [user.email for user in User.objects.filter(username__contains="@")] == ["hanna@example.org"]
    last = Client()
    last.get(link(invited.code))
    assert last.post(reverse("consent:withdraw", args=[study.slug])).status_code == 302
    assert ConsentEvent.objects.order_by("-sequence")[0].kind == "withdrawn"


def test_two_different_passwords_are_refused(client: Client, invited: IssuedInvitation) -> None:
    client.get(link(invited.code))
    fields = {"email": "hanna@example.org", "password": factories.PASSWORD, "password_again": "something else"}
    answer = client.post(reverse("account"), fields)
    assert answer.status_code == 422
    assert "The two passwords differ." in answer.text
    assert not User.objects.filter(username="hanna@example.org").exists()


def test_a_mail_that_went_astray_confirms_nothing(client: Client, study: Study, invited: IssuedInvitation) -> None:
    """Somebody else has the mistyped address: they know the link in the mail, not the password."""
    client.get(link(invited.code))
    take_account(client, email="hana@example.org")
    confirmation = reverse("account_confirm_email", args=[EmailConfirmationHMAC.create(EmailAddress.objects.get()).key])
    stranger = Client()
    assert stranger.post(confirmation).url.startswith(reverse("account_login"))
    stranger.force_login(factories.user_create("stranger"))
    assert stranger.post(confirmation).status_code == 403
    stranger.post(reverse("account_reset_password"), {"email": "hana@example.org"})
    assert not Mail.objects.filter(kind="password_reset").exists()
    assert not EmailAddress.objects.get().verified
    assert Client().get(link(invited.code)).url == reverse("consent:study", args=[study.slug])


def test_an_existing_account_needs_its_second_factor(client: Client, study: Study, invited: IssuedInvitation) -> None:
    theirs = factories.user_create("hanna@example.org")
    TOTP.activate(theirs, generate_totp_secret())
    client.get(link(invited.code))
    assert take_account(client).url.startswith(reverse("mfa_authenticate"))
    assert "_auth_user_id" not in client.session


# --- A new link for somebody who has lost theirs --------------------------------------------------------------------


@pytest.fixture
def steward(study: Study) -> Client:
    """Has the role of data steward and no other."""
    user = factories.user_create("stella")
    services.membership_add(study=study, user=user, role=Role.STEWARD, acting_user=None)
    return as_(user)


def new_link(client: Client, study: Study, pseudonym: str = "P-1", reason: str = "Lost the letter; called back."):
    return client.post(reverse("staff:link_new", args=[study.slug]), {"pseudonym": pseudonym, "reason": reason})


@pytest.mark.slow
def test_a_new_link_ends_the_old_one_and_is_on_record(
    steward: Client, study: Study, invited: IssuedInvitation, give: Decide
) -> None:
    give(invited.invitation.holder, "LOW")
    visitor = Client()
    visitor.get(link(invited.code))
    issued = new_link(steward, study)
    assert "protection" not in issued.text.lower().replace("how strongly your records are protected", "")
    (code,) = set(re.findall(r"/join/([0-9a-z]{35})/", issued.text))
    assert Client().get(link(invited.code)).url == reverse("join")
    assert visitor.get(reverse("consent:choice", args=[study.slug])).status_code == 302
    holder = Client()
    holder.get(link(code))
    assert "You take part: low protection." in page(holder, "choice", study)
    assert "New links that were made for you" in page(holder, "choice", study)
    record = LinkReissue.objects.get()
    assert (record.holder.pseudonym, record.issued_by.username, record.reason) == (
        "P-1", "stella", "Lost the letter; called back.",
    )  # fmt: skip
    assert list(LinkReissue.chain_faults(study.pk)) == []
    assert ConsentEvent.objects.count() == 1
    overseer = as_("ada")
    services.membership_add(study=study, user=User.objects.get(username="ada"), role=Role.AUDITOR, acting_user=None)
    assert "Lost the letter; called back." in overseer.get(reverse("staff:holder_looks", args=[study.slug])).text


def test_a_new_link_notifies_the_account_of_the_holder(steward: Client, study: Study, holder: DataHolder) -> None:
    new_link(steward, study, holder.pseudonym)
    assert list(
        Mail.objects.exclude(kind__in=("form_approved", "policy_approved", "role_changed")).values_list(
            "kind", "user", "study"
        )
    ) == [("new_link", holder.user_id, study.pk)]


@pytest.mark.parametrize(("pseudonym", "reason"), [("P-1", " "), ("nobody", "They called.")])
def test_a_new_link_needs_a_person_and_a_reason(
    steward: Client, study: Study, invited: IssuedInvitation, pseudonym: str, reason: str
) -> None:
    assert new_link(steward, study, pseudonym, reason).status_code == 422
    assert not LinkReissue.objects.exists()
    assert Client().get(link(invited.code)).url == reverse("consent:study", args=[study.slug])


def test_operator_makes_no_links(study: Study, invited: IssuedInvitation) -> None:
    otto = factories.user_create("otto")
    services.membership_add(study=study, user=otto, role=Role.OPERATOR, acting_user=None)
    client = as_(otto)
    assert new_link(client, study).status_code == 403


def test_a_weak_password_is_refused(client: Client, invited: IssuedInvitation) -> None:
    client.get(link(invited.code))
    response = take_account(client, password="12345")
    assert response.status_code == 422
    assert "too short" in response.content.decode()
    assert not User.objects.filter(username="hanna@example.org").exists()


def test_a_wrong_address_is_refused_politely_in_german(client: Client, invited: IssuedInvitation) -> None:
    client.get(link(invited.code))
    client.cookies["django_language"] = "de"
    assert "Geben Sie eine gültige E-Mail-Adresse an" in take_account(client, email="hanna").text


def test_an_account_that_is_there_needs_its_password(client: Client, study: Study, invited: IssuedInvitation) -> None:
    theirs = factories.user_create("hanna@example.org")
    client.get(link(invited.code))
    assert take_account(client, password="something else 9").status_code == 422
    assert DataHolder.objects.get().user is None
    assert take_account(client).status_code == 302
    assert DataHolder.objects.get().user == theirs


def test_an_account_decides_for_one_holder_of_a_study(client: Client, study: Study, invited: IssuedInvitation) -> None:
    factories.holder_create(study, "P-2", user=factories.user_create("hanna@example.org"))
    client.get(link(invited.code))
    assert "already decides" in take_account(client).content.decode()


def test_an_account_page_needs_a_link(client: Client) -> None:
    assert client.get(reverse("account")).url.startswith(reverse("account_login"))


# --- Guessing -------------------------------------------------------------------------------------------------------


def used_up(study: Study) -> str:
    (new,) = invite(study, "used up")
    user = invitations.account_take(
        holder=new.invitation.holder,
        email="u@example.org",
        password=factories.PASSWORD,
        request=RequestFactory().post(reverse("account")),
    )
    invitations.account_invitations_end(user=user)
    return new.code


def revoked(study: Study) -> str:
    (new,) = invite(study, "revoked")
    invitations.invitation_revoke(invitation=new.invitation, acting_user=factories.user_create("olga"))
    return new.code


def wrong(study: Study) -> str:
    return code_new(7)


@pytest.mark.parametrize("kind", [used_up, revoked, wrong])
@pytest.mark.parametrize("way", ["link", "form"])
def test_all_wrong_codes_get_the_same_answer(study: Study, kind, way: str, django_assert_num_queries) -> None:
    code = kind(study)
    client = Client()
    with django_assert_num_queries(7):  # the same work, so the same time
        answer = client.get(link(code)) if way == "link" else client.post(reverse("join"), {"code": code})
    if way == "link":
        assert (answer.status_code, answer.url, answer.content) == (302, reverse("join"), b"")
        says = client.get(answer.url).content.decode()
    else:
        assert answer.status_code == 422
        says = answer.text
    assert "This invitation opens nothing" in says
    assert study.title not in says
    assert client.get(reverse("consent:my_studies")).status_code == 302


@pytest.fixture
def few_tries(settings) -> int:
    settings.INVITATION_TRIES = 3
    return settings.INVITATION_TRIES


def test_guesser_has_to_wait_and_the_wait_tells_nothing(
    client: Client, invited: IssuedInvitation, clock: Clock, few_tries: int, settings
) -> None:
    for _ in range(few_tries):
        assert client.post(reverse("join"), {"code": "a" * 32}).status_code == 422
    for code in ("a" * 32, invited.code):
        assert client.get(link(code)).url == reverse("join")
        for answer in (client.get(reverse("join")), client.post(reverse("join"), {"code": code})):
            assert answer.status_code == 429
            assert "Wait 10 minutes, then try again." in answer.text
    elsewhere = Client(REMOTE_ADDR="198.51.100.1")
    assert elsewhere.get(link(invited.code)).url != reverse("join")
    clock.days_pass(settings.INVITATION_WAIT / 86_400)
    assert client.get(link(invited.code)).url != reverse("join")


def test_a_right_code_does_not_count(client: Client, invited: IssuedInvitation, few_tries: int) -> None:
    for _ in range(few_tries + 1):
        assert client.get(link(invited.code)).url != reverse("join")


def test_a_code_that_has_to_wait_is_not_named_in_the_log(
    client: Client, invited: IssuedInvitation, few_tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(few_tries):
        client.get(link("a" * 32))
    client.get(link(invited.code), follow=True)
    client.post(reverse("join"), {"code": invited.code})
    assert "Too Many Requests: /join/" in caplog.text
    assert invited.code not in caplog.text


def test_attempts_with_addresses_of_others_are_limited(
    client: Client, invited: IssuedInvitation, few_tries: int
) -> None:
    """A weak password for an unknown address and a wrong one for a known address differ in their answers."""
    client.get(link(invited.code))
    for n in range(few_tries):
        assert take_account(client, email=f"somebody{n}@example.org", password="12345").status_code == 422
    assert take_account(client).status_code == 429


def test_guessing_passwords_of_accounts_is_limited_like_signing_in(
    client: Client, invited: IssuedInvitation, settings
) -> None:
    settings.SIGN_IN_TRIES = 2
    factories.user_create("hanna@example.org")
    client.get(link(invited.code))
    for _ in range(2):
        assert take_account(client, password="something else 9").status_code == 422
    assert take_account(client).status_code == 429
    signed_in = client.post("/sign-in/", {"login": "hanna@example.org", "password": factories.PASSWORD})
    assert signed_in.status_code == 429


def test_addresses_and_codes_are_not_kept_and_old_tries_are_deleted(invited: IssuedInvitation, clock: Clock) -> None:
    invitations.invitation_open(code="wrong", address=HERE)
    kept = str(list(ThrottleEntry.objects.values()))
    assert HERE not in kept
    assert "wrong" not in kept
    assert entries_sweep() == 0
    clock.days_pass(1)
    assert entries_sweep() == 1


def test_the_service_itself_refuses(invited: IssuedInvitation, few_tries: int) -> None:
    for _ in range(few_tries):
        assert invitations.invitation_open(code="wrong", address=HERE) is None
    with pytest.raises(TooManyTriesError):
        invitations.invitation_open(code=invited.code, address=HERE)


def test_behind_a_proxy_the_proxys_word_counts(
    client: Client, invited: IssuedInvitation, few_tries: int, settings
) -> None:
    settings.BEHIND_PROXY = True
    for n in range(few_tries):
        client.get(link("wrong"), HTTP_X_FORWARDED_FOR=f"10.0.0.{n}, {HERE}")  # what a guesser adds stands to the left
    assert client.get(link(invited.code), HTTP_X_FORWARDED_FOR=HERE).url == reverse("join")
    assert client.get(link(invited.code), HTTP_X_FORWARDED_FOR="198.51.100.1").url != reverse("join")


# --- The operator's pages -------------------------------------------------------------------------------------------


@pytest.fixture
def operator(study: Study) -> Client:
    return as_("olga")


def test_new_invitations_are_shown_once_with_letters_and_list(operator: Client, study: Study) -> None:
    path = reverse("staff:invitations", args=[study.slug])
    html = operator.post(path, {"pseudonyms": "P-1\nP-2", "open_places": 1}).content.decode()
    assert html.count('<li class="card letter">') == html.count('<svg aria-hidden="true" viewBox="0 0 ') == 3
    assert "data:text/csv;charset=utf-8,pseudonym%2Ccode%2Clink%0D%0AP-1%2C" in html
    assert html.count('name="letters"') == 1 and html.count("&quot;code&quot;") == 3
    assert "/join/" not in operator.get(path).content.decode()


def test_no_pseudonym_is_a_formula_in_the_list_of_codes(operator: Client, study: Study) -> None:
    formula = "=WEBSERVICE(B2)"
    html = operator.post(reverse("staff:invitations", args=[study.slug]), {"pseudonyms": formula}).content.decode()
    assert quote(f"\r\n'{formula},") in html


def test_inviting_twice_says_who_is_left_out(operator: Client, study: Study, invited: IssuedInvitation) -> None:
    path = reverse("staff:invitations", args=[study.slug])
    assert "1 person is left out" in operator.post(path, {"pseudonyms": "P-1"}).content.decode()


def test_inviting_nobody_is_an_error(operator: Client, study: Study) -> None:
    response = operator.post(reverse("staff:invitations", args=[study.slug]), {"pseudonyms": " "})
    assert response.status_code == 422
    assert "Give a pseudonym or an open place" in response.content.decode()


def test_the_operator_revokes_and_sees_no_level(
    operator: Client, study: Study, invited: IssuedInvitation, give: Decide
) -> None:
    give(invited.invitation.holder, "AVERAGE")
    path = reverse("staff:invitations", args=[study.slug])
    assert "average" not in operator.get(path).content.decode()
    revoke = reverse("staff:invitation_revoke", args=[study.slug, invited.invitation.pk])
    assert "Revoke the invitation of P-1?" in operator.get(revoke).content.decode()
    assert operator.post(revoke).url == path
    assert invitations.invitation_open(code=invited.code, address=HERE) is None
    assert operator.get(revoke).status_code == 404


@pytest.mark.parametrize(("role", "status"), [("committee", 403), ("auditor", 403), ("researcher", 403), ("", 404)])
def test_only_operators_invite(client: Client, study: Study, invited: IssuedInvitation, role: str, status: int) -> None:
    user = factories.user_create("somebody")
    if role:
        services.membership_add(study=study, user=user, role=role, acting_user=None)
    client.force_login(user)
    assert client.get(reverse("staff:invitations", args=[study.slug])).status_code == status
    revoke = reverse("staff:invitation_revoke", args=[study.slug, invited.invitation.pk])
    assert client.post(revoke).status_code == status


@pytest.mark.parametrize("people", [1001, pytest.param(12_000, marks=pytest.mark.slow)])
def test_many_are_invited_at_once_with_lists_and_letters_in_parts(steward: Client, study: Study, people: int) -> None:
    services.holders_register(study=study, pseudonyms=[f"P-{number:05}" for number in range(people)])
    answer = steward.post(f"/studies/{study.slug}/invitations/everyone/")
    assert (answer.status_code, answer.context["made"]) == (200, people)
    assert Invitation.objects.filter(study=study).count() == people
    addresses = re.findall(r'href="data:text/csv;charset=utf-8,([^"]+)"', answer.text)
    assert all(len(address) < 2_000_000 for address in addresses), "browsers take no longer one"
    rows = [row for address in addresses for row in csv.DictReader(io.StringIO(unquote(address)))]
    assert [row["pseudonym"] for row in rows] == [f"P-{number:05}" for number in range(people)]
    codes = {code_hash(row["code"]) for row in rows}
    assert codes == set(Invitation.objects.values_list("code_hash", flat=True))
    parts = answer.context["parts"]
    first, part, form = parts[-1]
    assert first + len(part) - 1 == people
    assert {code_hash(new.code) for _first, each, _form in parts for new in each} == codes
    sent = {"letters": json.dumps(form.initial["letters"][:2]), "language": "en", "paper": ""}
    letters = steward.post(reverse("staff:letters_pdf", args=[study.slug]), sent)
    assert letters["Content-Type"] == "application/pdf"
