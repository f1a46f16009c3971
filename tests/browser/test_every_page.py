"""Every page is accessible in light and dark colours, and nothing on it scrolls sideways on a screen or a phone.

Pages are in German, which has longer words; the other tests of this folder use English. The tour of all pages runs at
night, and pages for decisions are checked each time.
"""

import contextlib
import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import get_resolver, resolve, reverse
from django.utils import timezone

from common.models import ThrottleEntry
from common.throttle import TooManyTriesError
from consent.models import HolderAddress, Mail, Membership, Role, Study
from consent.services import invitations
from consent.services.invitations import IssuedInvitation
from consent.services.mail import address_link, mail_render
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.browser.conftest import Site
from tests.browser.test_runs import begins_at_once
from tests.everything import addresses, imports_begin, is_page, study_with_everything
from tests.learning.encoders.networks import image_encoder
from training.models import Alliance, Run
from training.services.erasures import study_close

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


class Tour:
    """A tour that goes from page to page, checks each, and records which it has seen."""

    language = "de"

    def __init__(self, visit: Callable[..., Site], scheme: str = "light") -> None:
        self.visit, self.scheme = visit, scheme
        self.seen: set[str] = set()
        self.problems: list[str] = []

    def begin(self, name: str = "") -> None:
        """Sign in as ``name`` in a new browser."""
        self.site = self.visit(language=self.language, scheme=self.scheme)
        if name:
            self.open("account_login")
            self.site.page.locator("[name=login]").fill(name)
            self.password()

    def password(self) -> None:
        """Type the password and continue."""
        self.site.page.locator("[name=password]").fill(factories.PASSWORD)
        self.submit(look=False)

    def open(self, name: str, *arguments: object, look: bool = True) -> None:
        self.site.open(reverse(name, args=arguments))
        self.here(look=look)

    def open_each(self, names: str, *arguments: object) -> None:
        """Open several pages with the same arguments; their names are separated by spaces."""
        for name in names.split():
            self.open(name, *arguments)

    def here(self, *, look: bool = True) -> None:
        """Record the open page as seen."""
        if look:
            self.look()
        self.seen.add(resolve(urlsplit(self.site.page.url).path).view_name)

    def submit(self, *, look: bool = True) -> None:
        """Press the first visible button of the main content, and check the next page."""
        self.site.page.locator("main form .button:visible").first.click()
        if look:
            self.look()

    def refused(self, path: str) -> None:
        """Open an address that responds with an error, and check the page that says so."""
        self.site.open(path)
        self.site.page.locator("main a[href='/']").wait_for()
        self.site.complaints.clear()  # Chromium reports the status itself.
        self.look()

    def look(self) -> None:
        page = self.site.page
        if page.locator("body.staff").count():
            try:
                begins_at_once(self.site)
            except AssertionError as problem:
                self.problems.append(f"{page.url}: {problem}")
        page.evaluate("document.querySelectorAll('main details').forEach(details => { details.open = true })")
        try:
            assert page.locator("html").get_attribute("lang") == self.language
            self.site.is_in_order()
            self.site.scrolls_nowhere()
            page.emulate_media(color_scheme="dark")
            self.site.has_no_violations("color-contrast")
            self.site.resize("phone")
            # A chart is drawn again a moment after the screen has changed.
            self.site.wait_for("document.documentElement.scrollWidth <= innerWidth")
            self.site.fits()
            self.site.scrolls_nowhere()
        except AssertionError as problem:
            self.problems.append(f"{page.url}: {problem}")
            self.site.complaints.clear()
        page.emulate_media(color_scheme="light")
        self.site.resize("desktop")


def send_empty(tour: Tour, name: str) -> None:
    """Send a form of the study without values, and check the errors."""
    tour.open(f"staff:{name}", "digits", look=False)
    for field in tour.site.page.locator("main input[type=number], main textarea").all():
        field.fill("") if field.is_visible() else None
    tour.submit()


def run_of(title: str) -> UUID:
    return Run.objects.get(title=title).pk


def see_as_a_stranger(tour: Tour) -> None:
    tour.begin()
    tour.open_each("home account_login glossary privacy accessibility join")
    tour.submit()  # no code
    tour.open("open_link", "wrong")
    for _ in range(settings.INVITATION_TRIES):
        with contextlib.suppress(TooManyTriesError):
            invitations.try_begin(address="127.0.0.1")
    tour.refused(reverse("join"))  # too many wrong codes
    ThrottleEntry.objects.all().delete()


def see_as_a_guest(tour: Tour, invited: IssuedInvitation, late: IssuedInvitation) -> None:
    """Open the study through an invitation, and follow one to a study that has since been closed."""
    tour.begin()
    tour.site.open(reverse("open_link", args=[late.code]))
    tour.site.complaints.clear()  # Chromium reports the status itself.
    tour.here()
    tour.begin()
    tour.open("open_link", invited.code)
    tour.open_each("consent:choice consent:later consent:contact_way", "digits")
    tour.submit()  # nothing filled in
    tour.site.open(urlsplit(address_link(HolderAddress.objects.get())).path)
    tour.here()
    tour.open("account")
    tour.submit()  # nothing filled in


def see_how_to_get_back_in(tour: Tour) -> None:
    tour.begin()
    tour.open_each(
        "account_reset_password account_reset_password_done account_reset_password_from_key_done account_inactive "
        "socialaccount_login_cancelled"
    )
    tour.open("openid_connect_login", "sso")
    tour.open("account_reset_password_from_key", "1", "wrong")
    (reset,) = Mail.objects.filter(kind="password_reset")
    tour.site.open(re.search(r"/account/password/new/\S+", mail_render(reset).body).group())
    tour.look()
    tour.submit()  # nothing filled in


def see_an_account_and_second_factors(tour: Tour) -> None:
    hanna = User.objects.get(username="hanna")
    address = EmailAddress.objects.get(email="new@example.org")
    tour.begin("hanna")
    tour.open_each("account_overview account_email account_change_password socialaccount_connections mfa_index")
    tour.open("account_confirm_email", EmailConfirmationHMAC.create(address).key)
    tour.open("account_reauthenticate")
    tour.password()
    tour.open_each("mfa_activate_totp mfa_add_webauthn mfa_list_webauthn")
    TOTP.activate(hanna, generate_totp_secret())
    RecoveryCodes.activate(hanna)
    tour.open_each(
        "mfa_index mfa_deactivate_totp mfa_view_recovery_codes mfa_generate_recovery_codes mfa_reauthenticate"
    )
    tour.begin("hanna")
    tour.here()
    tour.submit()  # no code
    hanna.authenticator_set.all().delete()


def see_as_a_holder(tour: Tour) -> None:
    tour.begin("hanna")
    tour.open_each("home consent:my_studies")
    tour.open_each("consent:study consent:choice consent:withdraw consent:uses", "digits")
    tour.open_each("consent:receipt consent:receipt_text", "digits", 1)
    tour.open("consent:study", "digits", look=False)
    tour.submit()  # no answer
    tour.site.page.locator("[name=choice]").first.check()
    tour.submit()  # an answer that has to be confirmed
    tour.here(look=False)
    tour.begin("hedwig")
    tour.open_each("consent:choice consent:erase", "digits")


def see_tokens_and_the_api(tour: Tour) -> None:
    tour.open("api-tokens")
    tour.site.page.locator("[name=name]").fill("notebook")
    tour.submit()  # the new token
    tour.open("api-token-revoke", ApiToken.objects.get().token_key)
    tour.open("api-docs", look=False)
    tour.site.page.locator(".opblock").first.wait_for()
    tour.site.fits()  # Swagger UI's own violations are not ours


def see_as_an_operator(tour: Tour, study: Study, invited: IssuedInvitation) -> None:
    tour.begin("olga")
    tour.open_each("home staff:study_new search")
    see_tokens_and_the_api(tour)
    tour.open_each(
        "staff:study staff:study_edit staff:study_close staff:members staff:invitations staff:invitations_everyone "
        "staff:invitations_remind "
        "staff:letters staff:letterhead staff:link_new staff:circumstances staff:recruitment staff:paper_consent "
        "staff:paper_list staff:paper_blank staff:holder_looks staff:holder_look staff:receipt_check staff:disposals "
        "staff:consent_forms staff:consent_form_new staff:consent_form_facts staff:consent_form_publish "
        "staff:policies staff:datasets staff:encoders staff:import_new staff:runs staff:run_new staff:models "
        "staff:ledger staff:ledger_check staff:head_counts",
        "digits",
    )
    tour.open("staff:person", "digits", invited.invitation.holder.public_id)
    researcher = Membership.objects.get(study=study, role=Role.RESEARCHER)
    tour.open("staff:member_remove", "digits", researcher.pk)
    tour.open("staff:invitation_revoke", "digits", invited.invitation.pk)
    tour.open("staff:consent_form", "digits", 1)
    see_datasets(tour, study)
    see_runs(tour)
    see_other_studies(tour)
    for name in ("run_new", "paper_consent", "invitations"):
        send_empty(tour, name)


def see_datasets(tour: Tour, study: Study) -> None:
    private = study.datasets.get(kind="private")
    tour.open("staff:dataset", "digits", study.datasets.get(kind="public", drawn_by=None).pk)
    tour.open_each("staff:dataset staff:dataset_remove", "digits", private.pk)
    hub, site = Alliance.objects.filter(study=study).order_by("pk")
    tour.open("staff:alliances", "digits")
    tour.open_each("staff:alliance staff:alliance_keys staff:alliance_leave", "digits", hub.pk)
    tour.open("staff:joint_run_new", "digits", hub.pk)
    tour.open("staff:alliance", "digits", site.pk)
    tour.open("staff:joint_run_take", "digits", site.pk, "ab")
    encoder = study.encoders.create(
        name="small", digest="ab" * 32, file_digest="cd" * 32, takes=image_encoder().takes.to_json(), width=6
    )
    tour.open("staff:encoder_withdraw", "digits", encoder.pk)
    imports = imports_begin(study)
    for each in imports:
        tour.open("staff:import", "digits", each.pk)
    tour.open("staff:import_drop", "digits", imports[0].pk)
    tour.open("staff:import_columns", "digits", imports[0].pk)


def see_runs(tour: Tour) -> None:
    """Open runs of every method, as drafts, in progress and finished."""
    pages = {
        "First vote": "run model model_stage model_threshold run_labels ledger_report run_student_new",
        "Next vote": "run run_approve",
        "Waiting": "run run_cancel",
        "All were asked": "run run_labels ledger_report",
        "All are asked": "run run_cancel",
        "All to be asked": "run_approve",
        "Steps were taken": "run ledger_report",
        "Steps to be taken": "run_approve",
        "Samples were drawn": "run",
        "Rows were drawn": "run",
        "People were counted": "run run_result_withdraw ledger_report",
        "People to be counted": "run_approve",
        "Rows to be drawn": "run_approve",
    }
    for title, names in pages.items():
        for name in names.split():
            tour.open(f"staff:{name}", "digits", run_of(title))
        for tab in ("cost", "releases", "timeline", "card") if "run" in names.split() else ():
            tour.open("staff:run_tab", "digits", run_of(title), tab)
    finished, request, learned = map(run_of, ("First vote", "All were asked", "Steps were taken"))
    tour.open_each("staff:run_student_publish staff:run_student_withdraw", "digits", finished, 2)
    tour.site.open(f"{reverse('staff:run_compare', args=['digits'])}?run={finished}&run={request}&run={learned}")
    tour.here()


def see_other_studies(tour: Tour) -> None:
    """Open a study in which nothing has happened yet, a rehearsal, and a closed one."""
    tour.open_each(
        "staff:study staff:recruitment staff:runs staff:run_compare staff:models staff:datasets staff:policies "
        "staff:consent_forms staff:ledger staff:head_counts",
        "empty",
    )
    tour.open_each("staff:study staff:runs staff:run_new staff:datasets", "rehearsal")
    for run in Run.objects.filter(rehearsal=True):
        tour.open("staff:run", "rehearsal", run.pk)
    tour.open("staff:run_approve", "rehearsal", run_of("To be rehearsed"))
    tour.open("staff:study", "over")


def see_as_a_chair(tour: Tour, study: Study) -> None:
    tour.begin("carla")
    tour.open_each("staff:members staff:changes staff:committee staff:policies staff:policy_new", "digits")
    tour.open("home")  # proposals are waiting
    tour.open("staff:role_change", "digits", study.role_changes.filter(kind="to_give").get().sequence)
    tour.open("staff:policy_approve", "digits", 2)
    tour.open("staff:consent_form_proposal", "digits", 2)
    tour.open("staff:consent_form_as_read", "digits", tour.language)
    tour.open("staff:run", "digits", run_of("Next vote"))
    send_empty(tour, "policy_new")
    tour.open("staff:policy_new", "digits", look=False)
    tour.site.page.locator("[formaction]").click()
    tour.site.page.locator("#affordable table").first.wait_for(state="attached")
    tour.look()
    with tour.site.page.expect_navigation():  # as without scripts
        tour.site.page.evaluate(
            "(({ form, formAction }) => { form.action = formAction; form.submit(); })"
            "(document.querySelector('[formaction]'))"
        )
    tour.here()


def see_as_a_proposer(tour: Tour, study: Study) -> None:
    tour.begin("otto")
    tour.open_each("staff:run staff:run_approve staff:run_edit staff:run_withdraw", "digits", run_of("Next vote"))
    tour.open("queue")
    tour.open("staff:webhook_remove", "digits", study.webhooks.get().pk)
    tour.open("staff:webhooks", "digits")
    tour.site.page.locator("[name=url]").fill("https://localhost/a/program/that/is/told")
    tour.submit()


@pytest.mark.exhaustive
def test_every_page_is_accessible_and_fits(visit: Callable[..., Site], settings: Any) -> None:
    study = study_with_everything()
    provider = {"provider_id": "sso", "name": "Clinic", "settings": {"server_url": "http://127.0.0.1:9"}}
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [provider | {"client_id": "us", "secret": "x"}]}}
    settings.OIDC_SERVER = "http://127.0.0.1:9"
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
    olga, over = User.objects.get(username="olga"), Study.objects.get(slug="over")
    (invited,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["guest"])
    (late,) = invitations.invitations_create(study=over, acting_user=None, open_places=1)
    study_close(study=over, reason="Done.", acting_user=olga, erase_after=timezone.localdate())

    tour = Tour(visit)
    see_as_a_stranger(tour)
    see_as_a_guest(tour, invited, late)
    see_how_to_get_back_in(tour)
    see_an_account_and_second_factors(tour)
    tour.begin("root")
    tour.open_each("staff_accounts health staff_account_new")
    tour.submit()  # nothing filled in
    tour.open("staff:people_new", "digits")
    tour.open_each("staff_account_invite staff_account_close administrator", User.objects.get(username="waiting").pk)
    see_as_a_holder(tour)
    see_as_an_operator(tour, study, invited)
    see_as_a_chair(tour, study)
    see_as_a_proposer(tour, study)
    tour.begin("dan")
    tour.open_each("staff:runs staff:run_new", "digits")
    tour.open("staff:run", "digits", run_of("First vote"))

    pages = {name for name in addresses(get_resolver().url_patterns) if is_page(name)}
    assert tour.problems == [], "\n".join(tour.problems)
    assert sorted(pages - tour.seen) == [], "visit them here, or give a reason in NO_PAGES"
