"""Every page of the site, in both languages: accessible, and no wider than the screen."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Permission
from django.urls import URLPattern, URLResolver, get_resolver, resolve, reverse

from consent import invitations, services
from consent.access import holder_level_look
from consent.models import DataHolder, Invitation, Membership, Role, Study
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.browser.conftest import SIZES, Site
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_with_table
from training.models import Dataset, Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DESKTOP, PHONE = ({"width": width, "height": height} for width, height in (SIZES["desktop"], SIZES["phone"]))

#: A chart is drawn anew a moment after the screen has changed.
WAIT_UNTIL_IT_FITS = """() => new Promise((done) => {
  const end = performance.now() + 2000;
  const look = () => {
    if (document.documentElement.scrollWidth <= innerWidth || performance.now() > end) done();
    else requestAnimationFrame(look);
  };
  look();
})"""

#: Addresses that no person looks at, and why.
NO_PAGES = {
    "admin:": "Django's own",
    "api:": "for programs",
    "schema": "for programs",
    "healthz": "for programs",
    "set_language": "a button",
    "logout": "a button",
    "leave": "a button",
    "consent:decide": "a button",
    "open_link": "leads on to join or to consent:study",
    "training:consent_form_preview": "a part of consent_form_new",
    "training:policy_odds": "a part of policy_new",
    "training:run_live": "a part of run",
    "consent:receipt_pdf": "a download",
    "consent:receipt_json": "a download",
    "consent:export": "a download",
    "training:ledger_export": "a download",
    "training:run_model": "a download",
}


def addresses(patterns: list[URLPattern | URLResolver], namespace: str = "") -> Iterator[str]:
    """The name of each address of the site."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from addresses(pattern.url_patterns, inner)
        else:
            yield f"{namespace}{pattern.name or pattern.pattern}"


def is_page(name: str) -> bool:
    return not any(name == no_page or (no_page.endswith(":") and name.startswith(no_page)) for no_page in NO_PAGES)


class Tour:
    """Goes from page to page, looks whether each is in order, and remembers which it has seen."""

    def __init__(self, visit: Callable[..., Site], language: str, scheme: str) -> None:
        self.visit, self.language, self.scheme = visit, language, scheme
        self.seen: set[str] = set()
        self.problems: list[str] = []

    def begin(self, name: str = "") -> None:
        """A new browser, in which ``name`` signs in."""
        self.site = self.visit(language=self.language, scheme=self.scheme)
        if name:
            self.open("login")
            self.site.page.locator("[name=username]").fill(name)
            self.site.page.locator("[name=password]").fill(factories.PASSWORD)
            self.submit(look=False)

    def open(self, name: str, *arguments: object, look: bool = True) -> None:
        self.site.open(reverse(name, args=arguments))
        self.seen.add(resolve(urlsplit(self.site.page.url).path).view_name)
        if look:
            self.look()

    def submit(self, *, look: bool = True) -> None:
        """Press the first button of the page proper, and look at what comes."""
        self.site.page.locator("main form .button").first.click()
        if look:
            self.look()

    def refused(self, path: str) -> None:
        """An address that answers with an error, and a page that says so."""
        self.site.open(path)
        self.site.page.locator("main a[href='/']").wait_for()
        self.site.complaints.clear()  # Chromium notes the status itself.
        self.look()

    def look(self) -> None:
        page = self.site.page
        page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
        try:
            assert page.locator("html").get_attribute("lang") == self.language
            self.site.is_in_order()
            page.set_viewport_size(PHONE)
            page.evaluate(WAIT_UNTIL_IT_FITS)
            self.site.fits()
        except AssertionError as problem:
            self.problems.append(f"{page.url}: {problem}")
            self.site.complaints.clear()
        page.set_viewport_size(DESKTOP)


@pytest.fixture
def study() -> Study:
    """A study in which everything has happened once: asked, decided, withdrawn, trained, voted, looked."""
    study = study_with_table("digits", title="Reading digits", retain_votes=True)
    carla, dan = factories.user_create("carla"), factories.user_create("dan")
    carla.user_permissions.add(Permission.objects.get(codename="add_study"))
    for role in (Role.OPERATOR, Role.COMMITTEE):
        services.membership_add(study=study, user=carla, role=role)
    services.membership_add(study=study, user=dan, role=Role.RESEARCHER)
    holders = DataHolder.objects.filter(study=study).order_by("pk")
    services.holder_link(holder=holders[0], user=factories.user_create("hanna"))
    run_finish(run_start(study, title="First vote", **TABLE_RUN))
    run_draft(study, title="Next vote", **TABLE_RUN)
    run_start(study, title="Waiting", simulation=True, **TABLE_RUN)
    services.epsilon_policy_propose(
        study=study, acting_user=factories.user_create("conrad"), high=0.5, average=2, low=4, reason="More of it."
    )
    services.consent_form_draft_save(
        study=study, acting_user=carla, texts={"en": "# New\nWords.", "de": "# Neu\nWorte."}
    )
    holder_level_look(study=study, pseudonym=holders[1].pseudonym, acting_user=carla, reason="They called.")
    services.consent_withdraw(holder=holders[1], acting_user=None)
    factories.study_create("empty")
    services.membership_add(study=Study.objects.get(slug="empty"), user=carla, role=Role.OPERATOR)
    services.holders_register(study=study, pseudonyms=["guest"])
    return study


@pytest.mark.parametrize(("language", "scheme"), [("en", "light"), ("de", "dark")])
def test_every_page_is_accessible_and_fits(visit, study: Study, language: str, scheme: str) -> None:
    tour = Tour(visit, language, scheme)
    finished, draft = Run.objects.get(title="First vote").pk, Run.objects.get(title="Next vote").pk
    waiting = Run.objects.get(title="Waiting").pk
    (invitation,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["guest"])

    tour.begin()
    for name in ("home", "login", "glossary", "join"):
        tour.open(name)
    tour.submit()  # no code
    tour.open("open_link", "wrong")

    tour.begin()
    tour.open("open_link", invitation.code)
    tour.open("consent:choice", "digits")
    tour.open("account")
    tour.submit()  # nothing filled in

    tour.begin("hanna")
    for name in ("home", "consent:my_studies"):
        tour.open(name)
    for name in ("consent:study", "consent:choice", "consent:withdraw", "consent:uses"):
        tour.open(name, "digits")
    tour.open("consent:receipt", "digits", 1)
    tour.open("consent:study", "digits", look=False)
    tour.submit()  # the earlier answer, to be checked

    tour.begin("carla")
    for name in ("home", "api-tokens", "training:study_new"):
        tour.open(name)
    tour.open("api-tokens", look=False)
    tour.site.page.locator("[name=name]").fill("notebook")
    tour.submit()  # the new token
    tour.open("api-token-revoke", ApiToken.objects.get().token_key)
    tour.open("api-docs", look=False)
    tour.site.page.locator(".opblock").first.wait_for()
    tour.site.fits()  # Swagger UI's own violations are not ours
    for name in (
        "study", "study_edit", "members", "invitations", "recruitment", "paper_consent", "paper_list", "holder_look",
        "holder_looks", "consent_forms", "consent_form_new", "consent_form_publish", "policies", "policy_new",
        "datasets", "runs", "run_new", "ledger", "ledger_check",
    ):  # fmt: skip
        tour.open(f"training:{name}", "digits")
    for name, argument in (
        ("member_remove", Membership.objects.filter(study=study).first().pk),
        ("invitation_revoke", Invitation.objects.get().pk),
        ("consent_form", 1),
        ("policy_approve", 2),
        ("dataset", Dataset.objects.get(kind="private").pk),
        ("run", finished),
        ("run", draft),
        ("run", waiting),
        ("run_labels", finished),
        ("run_approve", draft),
        ("run_cancel", waiting),
        ("ledger_report", finished),
    ):
        tour.open(f"training:{name}", "digits", argument)
    for name in ("study", "recruitment", "runs", "datasets", "policies", "consent_forms", "ledger"):
        tour.open(f"training:{name}", "empty")  # nothing there yet
    for name in ("policy_new", "run_new", "paper_consent", "invitations"):
        tour.open(f"training:{name}", "digits", look=False)
        for field in tour.site.page.locator("main input[type=number], main textarea").all():
            field.fill("") if field.is_visible() else None
        tour.submit()  # what is missing

    tour.begin("dan")
    for name in ("training:runs", "training:recruitment", "training:run_new"):
        tour.open(name, "digits")
    tour.open("training:run", "digits", finished)

    missing = sorted(
        name for name in set(addresses(get_resolver().url_patterns)) if is_page(name) and name not in tour.seen
    )
    assert missing == [], "visit them here, or say in NO_PAGES why nobody looks at them"
    assert tour.problems == [], "\n".join(tour.problems)


@pytest.mark.parametrize(("medium", "width"), [("print", 659), ("screen", 1280)], ids=["on A4", "on a desk"])
def test_a_report_shows_all_of_its_columns(visit, study: Study, medium: str, width: int) -> None:
    tour = Tour(visit, "de", "light")
    tour.begin("carla")
    page = tour.site.page
    page.emulate_media(media=medium)
    page.set_viewport_size({"width": width, "height": 900})
    tour.open("training:ledger_report", "digits", Run.objects.get(title="First vote").pk, look=False)
    beyond = "tables => tables.map(table => table.offsetWidth - table.parentElement.clientWidth)"
    assert max(page.locator(".table").evaluate_all(beyond)) <= 0
