"""The committee's path in a real browser: a new form, a policy, and who sees how many."""

import pytest
from django.utils import timezone

from consent import services
from consent.models import ConsentEvent, ConsentForm, Role
from consent.services import consent_give, membership_add
from tests import factories
from tests.browser.conftest import each_way

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WORDS = "# What we ask\nWe would like to learn from your records **much more**."


@pytest.fixture
def study():
    return factories.committee_fill(factories.study_open(title="Reading digits"))


@each_way
def test_a_form_is_written_compared_and_published(visit, study, size: str, javascript: bool) -> None:
    site = visit(size, javascript=javascript, person="carla")
    site.open("/studies/digits/consent-form/")
    site.says("Write a new version")
    site.open("/studies/digits/consent-form/new/")
    site.page.get_by_role("textbox", name="English").fill(WORDS)
    site.page.get_by_role("textbox", name="German").fill("# Worum wir bitten\nWir möchten **viel mehr** lernen.")
    if javascript:
        site.page.locator("#preview strong").get_by_text("much more").wait_for()
        assert ConsentForm.objects.count() == 1
    site.press("Save and look at it")
    site.page.locator("#preview strong").get_by_text("much more").wait_for()
    site.is_in_order() if javascript else site.fits()
    site.press("Save and go on to publish")
    site.says("What changes since version 1")
    site.press("Yes, propose it")
    site.says("There is a problem")
    site.is_in_order() if javascript else site.fits()
    site.page.get_by_label("They are asked again; their consent stands until they answer").check()
    site.press("Yes, propose it")
    site.says("The form is proposed.")
    site.is_in_order() if javascript else site.fits()

    second = visit(size, javascript=javascript, person="conrad")
    second.says("Waiting for you")
    second.is_in_order() if javascript else second.fits()
    second.press("Consent form that asks people again, to follow version 1")
    second.says("Whom it affects")
    second.is_in_order() if javascript else second.fits()
    second.press("The whole page, in German")
    second.says("Vorschau")
    second.page.locator("html[lang=de]").wait_for()
    assert second.page.locator("main form .button-primary").is_disabled()
    second.is_in_order() if javascript else second.fits()
    second.page.go_back()
    second.page.get_by_label("Comment, or reason for rejecting it").fill("Well said.")
    second.press("Comment")
    second.says("Your comment is kept.")
    second.press("Yes, publish it")
    second.says("Version 2 is published")
    site.open("/studies/digits/consent-form/2/")
    site.says("What changed since version 1")
    site.is_in_order() if javascript else site.fits()


@each_way
def test_a_policy_is_proposed_and_approved_by_another(visit, study, size: str, javascript: bool) -> None:
    site = visit(size, javascript=javascript, person="carla")
    site.open("/studies/digits/policies/new/")
    site.page.get_by_label("ε at low protection").fill("5")
    if javascript:
        site.page.locator("#odds").get_by_text("72", exact=True).wait_for()
    site.is_in_order() if javascript else site.fits()
    site.page.get_by_label("Reason").fill("As the literature does.")
    site.press("See what it means")
    site.is_in_order() if javascript else site.fits()
    site.press("Yes, propose it")
    site.says("Version 2 waits for a second person")

    second = visit(size, javascript=javascript, person="conrad")
    second.open("/studies/digits/policies/")
    second.press("Look at it and decide")
    second.is_in_order() if javascript else second.fits()
    second.press("Yes, put it in force")
    second.says("Version 2 is in force.")
    second.is_in_order() if javascript else second.fits()


@pytest.mark.parametrize("language", ["en", "de"])
def test_on_a_phone_odds_and_consequences_come_first(visit, study, language: str) -> None:
    services.epsilon_policy_propose(
        study=study, acting_user=factories.user_create("carla"), high=0.5, average=2, low=4, reason="More of it."
    )
    site = visit("phone")
    site.sign_in("conrad")
    site.page.context.add_cookies([{"name": "django_language", "value": language, "url": site.address}])
    site.open("/studies/digits/policies/2/approve/")
    cells = site.page.locator(".comparison tbody tr").first.locator("th, td")
    level, odds, consequence, *others = [cell.bounding_box() for cell in cells.all()]
    for box in (level, odds, consequence):
        assert box["x"] + box["width"] <= 390, "seen without scrolling"
    assert all(box["x"] >= consequence["x"] for box in others)
    assert odds["y"] < 844 * 1.5
    factories.form_propose(study, {"en": "More.", "de": "Mehr."})
    site.open("/studies/digits/consent-form/proposals/2/")
    affected, changes = (site.page.locator(f"#{name}").bounding_box() for name in ("affected", "changes"))
    assert affected["y"] < 844 * 1.1, "on the first screen, or just below it"
    assert affected["y"] < changes["y"]


def test_recruitment_is_drawn_and_told_in_numbers(visit, study) -> None:
    form = study.consent_forms.get()
    for number, level in enumerate(["HIGH", "HIGH", "LOW"]):
        holder = factories.holder_create(study, f"P-{number}")
        consent_give(holder=holder, level=level, form=form, acting_user=None)
    site = visit("phone")
    site.sign_in("olga")
    site.open("/studies/digits/recruitment/")
    site.page.locator("canvas[data-chart=levels]").wait_for()
    points = "Chart.getChart(document.querySelector('canvas')).data.datasets.map((set) => set.data.at(-1))"
    assert site.page.evaluate(points) == [2, 0, 1]
    site.page.get_by_text("The numbers").click()
    site.is_in_order()


def test_decisions_on_paper_are_recorded_with_their_scans(visit, study) -> None:
    for pseudonym in ("P-1", "P-2"):
        factories.holder_create(study, pseudonym)
    scan = {"name": "a.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7"}
    today = timezone.now().date().isoformat()
    rows = f"pseudonym,level,form_version,signed_on,evidence\nP-2,LOW,1,{today},{{}}\n"
    site = visit("phone")
    site.sign_in("olga")
    site.open("/studies/digits/recruitment/")
    site.press("Record a decision on paper")
    site.page.get_by_label("Pseudonym").fill("P-1")
    site.page.get_by_label("High protection").check()
    site.page.get_by_label("Signed on").fill(today)
    site.is_in_order()
    site.press("Record it")
    site.says("There is a problem")
    site.is_in_order()
    site.page.get_by_label("Scan").set_input_files(scan)
    site.press("Record it")
    site.says("1 decision is recorded.")
    site.press("Record a list")
    for name, button, message in (
        ("b.pdf", "Try it", "Row 2: the scan “b.pdf” is missing"),
        ("a.pdf", "Try it", "1 decision can be recorded."),
    ):
        content = {"name": "list.csv", "mimeType": "text/csv", "buffer": rows.format(name).encode()}
        site.page.locator("[name=list]").set_input_files(content)
        site.page.locator("[name=scans]").set_input_files(scan)
        site.press(button)
        site.says(message)
        site.is_in_order()
    site.press("Record them")  # of the same files: trying keeps them
    site.says("1 decision is recorded.")
    levels = ConsentEvent.objects.filter(channel="paper").order_by("sequence").values_list("level", flat=True)
    assert list(levels) == ["HIGH", "LOW"]


def test_a_look_at_one_choice_is_on_record(visit, study) -> None:
    factories.holder_create(study, "P-1")
    site = visit("phone")
    site.sign_in("olga")
    site.open("/studies/digits/recruitment/")
    site.press("Look at one person's choice")
    site.page.get_by_label("Pseudonym").fill("P-1")
    site.page.get_by_label("Reason").fill("They called and asked.")
    site.press("Look, and have it recorded")
    site.says("has not decided")
    site.is_in_order()
    membership_add(study=study, user=factories.user_create("audrey"), role=Role.AUDITOR, acting_user=None)
    auditor = visit("phone")
    auditor.sign_in("audrey")
    auditor.open("/studies/digits/recruitment/looks/")
    auditor.says("They called and asked.")
    auditor.is_in_order()
