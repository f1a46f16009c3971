"""Used budgets of groups in a real browser while a run spends; passkeys and idle staff."""

import math
import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from playwright.sync_api import expect

from accounting.caps import caps_of
from accounting.models import Release
from consent.models import Study
from tests import factories
from tests.browser.conftest import TIMEOUT, Site
from tests.training.runs import TABLE_RUN, run_finish, run_start, run_teach, study_with_table
from training.models import Run
from training.services.advance import run_advance

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive, pytest.mark.django_db(transaction=True)]

#: Fields of a run whose labels cost so little that it can ask several batches.
RUN = TABLE_RUN | {"aggregator": {"name": "gnmax", "sigma": 20.0}}
LEVELS = {"HIGH": 1.0, "AVERAGE": 2.0, "LOW": 3.0}


@pytest.fixture
def study() -> Study:
    return study_with_table(title="Reading lengths", points=40)


def shares_recomputed(study: Study) -> list[float]:
    """Return the used part of each group's cap in per cent, from the charges in the register; each level is a group."""
    used = dict.fromkeys(LEVELS, 0.0)
    for run, content in Release.objects.filter(study=study, charge__gt=0).values_list("run", "content"):
        promises = Run.objects.get(pk=run).plan["promises"]
        for promise in promises:
            used[promise["level"]] += content["charges"][promise["group"]]
    return [100 * used[level] / float(caps_of(epsilon, study.delta)) for level, epsilon in LEVELS.items()]


def shares_shown(site: Site) -> list[float]:
    rows = site.page.locator("#budgets-live table").first.locator("tbody tr")
    return [float(rows.nth(place).locator("td").nth(0).inner_text().split()[0]) for place in range(3)]


def test_used_budgets_rise_during_a_vote_of_teachers(visit: Any, study: Study) -> None:
    run_finish(run_start(study, title="First vote", share=0.25, **RUN))
    run = run_teach(run_start(study, title="Second vote", share=0.5, **RUN))
    olga = visit(person="olga")
    olga.open("/studies/table/")
    before = shares_shown(olga)
    assert before == pytest.approx(shares_recomputed(study), abs=0.05) and min(before) > 0
    while run.batches.count() < 2:
        assert not Run.objects.get(pk=run.pk).has_ended
        run_advance(run.pk)
    due = shares_recomputed(study)
    last = olga.page.locator("#budgets-live table").first.locator("tbody tr").nth(2).locator("td").nth(0)
    expect(last).to_have_text(f"{due[2]:.1f} %", timeout=TIMEOUT)
    after = shares_shown(olga)
    assert after == pytest.approx(due, abs=0.05)
    assert all(now > then for now, then in zip(after, before, strict=True))
    bars = olga.page.locator(".group-bar svg")
    for place, share in enumerate(after):
        widths = (
            bars.nth(place).locator("rect[class^=use]").evaluate_all("all => all.map((r) => r.getAttribute('width'))")
        )
        assert math.fsum(float(width.rstrip("%")) for width in widths) == pytest.approx(share, abs=0.06)
    assert re.search(r"\d", olga.page.locator("#budget-curve-data").text_content())
    olga.is_in_order()


def test_a_passkey_is_added_required_and_sufficient_to_sign_in(visit: Any) -> None:
    user = factories.user_create("olga")
    EmailAddress.objects.create(user=user, email="olga@example.org", verified=True, primary=True)
    site = visit()
    site.address = site.address.replace("127.0.0.1", "localhost")  # an address that is a number has no passkeys
    page = site.page
    tools = page.context.new_cdp_session(page)
    tools.send("WebAuthn.enable")
    able = ("hasResidentKey", "hasUserVerification", "isUserVerified", "automaticPresenceSimulation")
    options = {"protocol": "ctap2", "transport": "internal"} | dict.fromkeys(able, True)
    tools.send("WebAuthn.addVirtualAuthenticator", {"options": options})

    site.sign_in("olga")
    site.open("/account/second-factor/")
    site.press("Add a key")
    page.get_by_label("Password").fill(factories.PASSWORD)
    site.press("Continue")
    page.get_by_label("Key name").fill("My laptop")
    page.get_by_label("Sign in with only this key, without a password").check()
    site.press("Add the key")
    site.says("Each code lets you sign in once if you lose")
    key = Authenticator.objects.get(type="webauthn")
    site.open("/account/second-factor/webauthn/")
    site.says("My laptop")
    site.is_in_order()
    for step in ("edit", "remove"):
        site.open(f"/account/second-factor/webauthn/keys/{key.pk}/{step}/")
        site.is_in_order()
    site.open("/account/second-factor/webauthn/reauthenticate/")
    site.is_in_order()

    page.get_by_role("button", name="Sign out").click()
    site.open("/sign-in/")
    page.get_by_label("Email address or user name").fill("olga")
    page.get_by_label("Password").fill(factories.PASSWORD)
    page.get_by_role("main").get_by_role("button", name="Sign in", exact=True).click()
    site.says("Your password is correct. Now use your second factor.")
    site.is_in_order()
    assert page.get_by_role("button", name="Sign out").count() == 0
    site.press("Use a security key")
    page.get_by_role("button", name="Sign out").click()

    site.open("/sign-in/")
    site.press("Sign in with a passkey")
    page.get_by_role("button", name="Sign out").wait_for()
    assert site.complaints == []
