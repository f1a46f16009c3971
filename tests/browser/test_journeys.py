"""Each role signs in to a study with runs and does its main task, only by clicking from the page after sign-in."""

import csv
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from consent import services
from consent.models import ConsentEvent, EpsilonPolicy, Study
from consent.services.accounts import account_create
from tests import factories
from tests.browser.conftest import TIMEOUT, Site
from tests.pages import study_with_finished_run
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start
from training.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@built_once
def study_to_work_in() -> Study:
    """Return a study with two finished runs, a proposed run and form, an invited holder and two without invitation."""
    study = study_with_finished_run(title="First vote", share=0.4)
    run_finish(run_start(study, title="Second vote", share=0.4, **TABLE_RUN | {"teachers": 3}))
    run_draft(study, title="Third vote", **TABLE_RUN)
    factories.form_propose(study, {"en": "# What we ask\nMay we learn **more** from your records?"})
    services.holder_link(holder=study.holders.earliest("pk"), user=factories.user_create("hanna"))
    services.holders_register(study=study, pseudonyms=["new-1", "new-2"])
    return study


@pytest.fixture
def study() -> Study:
    return study_to_work_in()


@pytest.fixture
def as_(visit: Callable[..., Site], study: Study) -> Iterator[Callable[..., Site]]:
    """Sign a person in; afterwards check that they typed no other address and met no error."""
    sites: list[Site] = []

    def as_(person: str, **browser: bool) -> Site:
        sites.append(visit(person=person, **browser))
        return sites[-1]

    yield as_
    for site in sites:
        assert site.opened == ["/sign-in/"]
        assert site.complaints == []


def go(site: Site, *pages: str) -> None:
    """Follow links of the study's navigation."""
    for page in pages:
        site.page.get_by_role("navigation", name="Study pages").get_by_role("link", name=page).click()
        site.page.get_by_role("main").get_by_role("heading", level=1, name=page).wait_for()


def rows_of(site: Site, table: str) -> Locator:
    return site.page.get_by_role("region", name=table).locator("tbody tr")


def test_an_operator_approves_a_run(as_: Callable[[str], Site], study: Study) -> None:
    site = as_("operator")
    site.press("Third vote", "Approve and start")
    site.says("as soon as a worker has calculated its plan")
    run = study.runs.get(title="Third vote")
    assert (run.status, str(run.approved_by)) == (Run.Status.PLANNING, "operator")


def test_a_researcher_compares_runs_and_tries_a_row(as_: Callable[[str], Site], study: Study) -> None:
    site = as_("researcher")
    site.press(study.title, "Compare the newest 2")
    site.says("Different parameters")
    assert rows_of(site, "Parameters that differ").all_inner_texts() == ["Number of teachers\t3\t6"]
    go(site, "Models")
    site.press("Second vote")
    site.page.get_by_label("length").fill("0.1")
    site.page.get_by_label("width").fill("0.5")
    site.press("Predict")
    assert site.page.locator(".answer").inner_text() in {"a", "b", "c"}
    assert rows_of(site, "Prediction").count() == 3


def test_a_committee_changes_a_promise_and_approves_a_form(as_: Callable[[str], Site], study: Study) -> None:
    site = as_("committee")
    site.press(study.title)
    go(site, "ε policy")
    site.press("Propose a policy")
    more = site.page.locator("#odds figure").first.locator(".more").first
    before = more.get_attribute("d")
    site.page.get_by_role("slider", name="ε at high protection").press("Home")
    expect(more).not_to_have_attribute("d", before, timeout=TIMEOUT)
    site.page.get_by_label("Reason", exact=True).fill("Fewer dots are better.")
    site.page.get_by_label("Reason for keeping the names").fill("They are those of other studies.")
    site.press("Show odds", "Propose version")
    site.says("Version 2 is waiting for a second person")
    assert EpsilonPolicy.objects.get(study=study, version=2).high == 0.05
    go(site, "Ethics committee")
    site.press("consent form, version 2", "Publish form")
    site.says("Version 2 has been published")


def test_a_steward_downloads_letters_and_finds_a_person(as_: Callable[[str], Site], study: Study) -> None:
    site = as_("steward")
    site.press(study.title)
    go(site, "Invitations")
    site.press("Invite everyone", "Invite 2 people")
    site.says("2 invitations were created.")
    name, letters = site.saved("Create letters")
    assert letters.read_bytes().startswith(b"%PDF"), name
    with site.saved("Save as CSV")[1].open() as file:
        assert {row["pseudonym"] for row in csv.DictReader(file)} == {"new-1", "new-2"}
    go(site, "Letters")
    site.page.get_by_label("Pseudonym, or part of it").fill("new-2")
    site.press("Show", "new-2")
    site.says("Contacts, newest first")
    site.says("Invitation")


def test_an_auditor_checks_filters_and_prints(as_: Callable[[str], Site], study: Study) -> None:
    site = as_("auditor")
    site.press(study.title)
    go(site, "Verification")
    chains = site.page.locator(".tile", has_text="Intact chains").inner_text()
    whole, of_chains = map(int, re.findall(r"\d+", chains))
    assert whole == of_chains > 0
    go(site, "Release register")
    site.page.get_by_text("Filter and columns").click()
    site.page.get_by_role("combobox", name="Run", exact=True).select_option("First vote")
    site.press("Show", "Report of this run")
    site.says("Releases and costs of “First vote”")
    site.page.emulate_media(media="print")
    assert not site.page.get_by_role("navigation", name="Study pages").is_visible()
    site.page.emulate_media(media="screen")
    assert site.saved("Download as PDF")[1].read_bytes().startswith(b"%PDF")


def test_an_administrator_gives_a_role_and_sees_the_sites_health(as_: Callable[[str], Site], study: Study) -> None:
    factories.user_create("root", is_superuser=True, is_staff=True)
    rita = account_create(username="rita", first_name="Rita", last_name="Doe", email="r@example.org", acting_user=None)
    site = as_("root")
    site.press(study.title)
    go(site, "Roles")
    (listed,) = site.page.locator("#accounts option", has_text="Rita Doe").all()
    site.page.get_by_label("User name").fill(listed.get_attribute("value"))
    site.page.get_by_role("combobox", name="Role", exact=True).select_option("data steward")
    site.press("Give role")
    site.says("rita now has the role “data steward”.")
    assert [each.role for each in rita.memberships.filter(study=study)] == ["steward"]
    site.page.get_by_role("button", name="Account and language").click()
    site.page.get_by_role("navigation", name="Site").get_by_role("link", name="Staff accounts").click()
    site.press("Site health")
    database = rows_of(site, "Parts of the site").filter(has_text="Database")
    expect(database).to_contain_text("works", timeout=TIMEOUT)


def test_a_holder_without_scripts_changes_their_choice_withdraws_and_erases(
    as_: Callable[..., Site], study: Study
) -> None:
    site = as_("hanna", javascript=False)
    site.press("See my choice", "See what was learned")
    site.says("Second vote")
    site.press("My choice", "Read again or change")
    site.page.get_by_label("Average protection").check()
    site.press("Continue")
    site.page.get_by_label("Yes, I accept weaker protection").check()
    site.press("Yes, this is my decision")
    site.says("You take part: average protection.")
    site.press("Withdraw")
    site.page.get_by_label("Keep them stored").check()
    site.press("Yes, withdraw my consent")
    site.says("Your consent is withdrawn.")
    site.press("Erase these records", "Yes, erase my records")
    site.says("your stored records must be erased")
    hanna = study.holders.get(user__username="hanna")
    events = ConsentEvent.objects.filter(holder=hanna).order_by("sequence")
    assert [event.kind for event in events] == ["given", "changed", "withdrawn"]
