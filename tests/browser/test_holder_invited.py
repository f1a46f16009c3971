"""A data holder who has nothing but a link: the whole path, in a real browser."""

import pytest
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from django.urls import reverse

from consent.models import ConsentEvent, Letterhead
from consent.services import invitations
from tests import factories
from tests.browser.conftest import each_way

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def study():
    return factories.study_open(title="Reading digits")


@pytest.fixture
def path(study) -> str:
    """The path of P-1's link."""
    (issued,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    return reverse("open_link", args=[issued.code])


def events() -> list[tuple[str, str]]:
    return list(ConsentEvent.objects.order_by("sequence").values_list("kind", "level"))


@each_way
def test_the_link_alone_suffices(visit, path: str, size: str, javascript: bool) -> None:
    site = visit(size, javascript=javascript)
    site.open(path)
    assert site.page.url == f"{site.address}/my/digits/"
    site.page.get_by_label("High protection").check()
    site.press("Continue")
    site.press("Yes, this is my decision")
    site.says("You take part: high protection.")
    site.page.get_by_role("button", name="Leave").click()
    site.says("This device has forgotten your invitation.")

    later = visit(size, javascript=javascript)
    later.open("/join/")
    later.page.get_by_label("Code of your invitation").fill(path.split("/")[2].upper())
    later.press("Open my invitation")
    later.press("Withdraw")
    later.press("Yes, withdraw my consent")
    later.says("You withdrew.")
    assert events() == [("given", "HIGH"), ("withdrawn", "")]

    later.press("Use an account instead")
    later.page.get_by_label("E-mail address").fill("hanna@example.org")
    later.page.get_by_label("Password", exact=True).fill(factories.PASSWORD)
    later.page.get_by_label("The password again").fill(factories.PASSWORD)
    later.press("Use this account from now on")
    later.says("Your account is set up.")
    key = EmailConfirmationHMAC.create(EmailAddress.objects.get()).key
    later.open(reverse("account_confirm_email", args=[key]))
    later.press("Yes, this is my address")
    later.says("The address hanna@example.org is confirmed.")
    later.page.get_by_role("button", name="Sign out").click()
    later.open(path)
    later.says("This invitation opens nothing")
    assert site.complaints + later.complaints == []


def test_an_operator_invites_prints_saves_and_revokes(visit, path: str) -> None:
    site = visit("phone")
    site.sign_in("olga")
    site.open("/studies/digits/invitations/")
    site.is_in_order()
    site.page.get_by_label("Pseudonyms").fill("P-1\nP-2\nP-3")
    site.page.get_by_label("Open places").fill("1")
    site.press("Make invitations")
    site.says("3 invitations are made.")
    site.says("1 person is left out")
    site.is_in_order()
    with site.page.expect_download() as download:
        site.press("Save as CSV")
    assert download.value.suggested_filename == "invitations-digits.csv"
    assert download.value.path().read_text().startswith("pseudonym,code,link\nP-2,")
    site.press("To all invitations")
    site.page.get_by_role("link", name="invitation of P-2").click()
    site.is_in_order()
    site.press("Revoke it")
    site.says("The invitation is revoked.")
    site.is_in_order()


def test_an_operator_looks_at_letters_and_saves_a_form_on_paper(visit, path: str) -> None:
    site = visit("phone")
    site.sign_in("olga")
    site.open(reverse("staff:letterhead", args=["digits"]))
    site.page.get_by_label("Closing (English)").fill("With kind regards")
    for sample in ("Preview of a letter: English", "Preview of the form on paper: German"):
        with site.page.context.expect_event("response", lambda answer: answer.request.method == "POST") as shown:
            site.press(sample)
        assert (shown.value.status, shown.value.headers["content-type"]) == (200, "application/pdf")
    assert not Letterhead.objects.exists(), "a preview saves nothing"
    site.press("Save")
    site.says("The changes are saved.")
    assert Letterhead.objects.get().texts == {"en": {"closing": "With kind regards"}}
    site.open(reverse("staff:paper_blank", args=["digits"]))
    with site.page.expect_download() as download:
        site.press("Save as PDF")
    assert download.value.suggested_filename.endswith(".pdf")
    assert download.value.path().read_bytes().startswith(b"%PDF")
    site.is_in_order()
