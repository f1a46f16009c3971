"""A real Chromium in front of the real site. Skipped if it is missing, unless IPATE_REQUIRE_SERVICES=1."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from django.urls import reverse
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from consent.services import invitations
from tests import factories
from tests.ipate_web.accounts.conftest import mailbox as mailbox

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
#: Start of the HTML of each element that scrolls sideways.
SCROLLERS = """() => [...document.querySelectorAll("body *:not(textarea, select)")].filter((each) =>
  each.scrollWidth > each.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(each).overflowX)
).map((each) => each.outerHTML.slice(0, 200))"""
#: Time limit for a page or a worker in milliseconds, even on a busy machine.
TIMEOUT = 120_000

#: With JavaScript, and at night without it, on a window of each size; the harder case is the one without scripts.
#: test_every_page.py opens every page with JavaScript on a phone.
each_way = pytest.mark.parametrize(
    ("size", "javascript"),
    [("desktop", True), pytest.param("phone", False, marks=pytest.mark.exhaustive)],
    ids=["desktop with JavaScript", "phone without JavaScript"],
)
each_language = pytest.mark.parametrize("language", ["en", "de"])


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    # The shell is the same engine without the rest of the browser, and takes half the time.
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        if os.environ.get("IPATE_REQUIRE_SERVICES") == "1":
            pytest.fail("Chromium is missing and IPATE_REQUIRE_SERVICES=1 requires it: install the package “chromium”.")
        pytest.skip("Chromium is not installed")
    # Playwright runs an event loop in this thread, so Django would report every query in a test as an error.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


class Site:
    """One person's browser on the site, which finds pages, signs in, and checks for forbidden things."""

    def __init__(self, page: Page, address: str, javascript: bool) -> None:
        self.page = page
        self.address = address
        self.javascript = javascript
        self.complaints: list[str] = []
        self.opened: list[str] = []  # paths that were opened without a click
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._on_console)

    def _on_console(self, message) -> None:
        # Chromium reports each response of 400 and more here; the response to an incorrect form is 422 on purpose.
        if message.type == "error" and "the server responded with a status of 422" not in message.text:
            self.complaints.append(message.text)

    def open(self, path: str) -> None:
        self.opened.append(path)
        self.page.goto(self.address + path)

    def sign_in(self, name: str) -> None:
        self.open("/sign-in/")
        self.page.get_by_label("Email address or user name").fill(name)
        self.page.get_by_label("Password").fill(factories.PASSWORD)
        self.page.get_by_role("main").get_by_role("button", name="Sign in", exact=True).click()
        self.page.locator("button", has_text="Sign out").wait_for(state="attached")

    def speak(self, language: str) -> None:
        """Show the next pages in this language."""
        self.page.context.add_cookies([{"name": "django_language", "value": language, "url": self.address}])

    def press(self, *names: str) -> None:
        """Press the buttons or follow the links called ``names`` in the page's main content, one after the other."""
        main = self.page.get_by_role("main")
        for name in names:
            main.get_by_role("button", name=name).or_(main.get_by_role("link", name=name)).first.click()

    def saved(self, name: str) -> tuple[str, Path]:
        """Press the button or link ``name``, and return the name and path of the file that it downloads."""
        with self.page.expect_download() as download:
            self.press(name)
        return download.value.suggested_filename, download.value.path()

    def says(self, text: str) -> None:
        """Wait until the page says ``text`` and has loaded its styles and scripts."""
        self.page.get_by_role("main").get_by_text(text).first.wait_for()
        self.page.wait_for_load_state()

    def is_in_order(self) -> None:
        """Check for accessibility violations, parts wider than the screen, and script or security errors.

        axe itself needs JavaScript, so only the last two are checked without it.
        """
        self.fits()
        if not self.javascript:
            return
        self.page.locator(".htmx-request").wait_for(state="detached")  # parts that wait for a response are pale
        self.has_no_violations()

    def has_no_violations(self, *rules: str) -> None:
        """Check that no rule of axe, or none of these rules, is violated."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        # Styles and media are not preloaded, because only disabled rules and those about sound need that. The size of
        # targets is new in WCAG 2.2, so axe checks it only on request.
        options = {"resultTypes": ["violations"], "preload": False, "rules": {"target-size": {"enabled": True}}}
        options |= {"runOnly": rules} if rules else {}
        run = "async options => ({ violations: (await axe.run(options)).violations })"
        result = AxeResults(self.page.evaluate(run, options))
        assert result.violations_count == 0, result.generate_report()

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true, for at most ten seconds.

        Playwright's own wait calls ``eval``, which the site's content security policy forbids.
        """
        script = """() => new Promise((done) => {
          const end = performance.now() + 10000;
          const look = () => (CONDITION || performance.now() > end ? done() : requestAnimationFrame(look));
          look();
        })"""
        self.page.evaluate(script.replace("CONDITION", f"({condition})"))

    def resize(self, size: str) -> None:
        """Change the window to one of :data:`SIZES`."""
        width, height = SIZES[size]
        self.page.set_viewport_size({"width": width, "height": height})

    def fits(self) -> None:
        self.page.wait_for_load_state()
        width = self.page.viewport_size["width"]
        wide = self.page.locator("html").evaluate("html => html.scrollWidth")
        assert wide <= width, f"{self.page.url} is {wide} wide on a screen of {width}"
        assert self.complaints == []

    def scrolls_nowhere(self) -> None:
        """Check that nothing on the page scrolls sideways, except fields."""
        wide = self.page.evaluate(SCROLLERS)
        assert wide == [], f"{self.page.url}: {wide}"


@pytest.fixture
def visit(chromium: Browser, live_server: LiveServer) -> Iterator[Callable[..., Site]]:
    """Open a new person's browser, signed in by name: ``visit(size="phone", javascript=False, person="olga")``."""
    contexts: list[BrowserContext] = []

    def visit(
        size: str = "desktop", *, javascript: bool = True, scheme: str = "light", language: str = "en", person: str = ""
    ) -> Site:
        width, height = SIZES[size]
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            java_script_enabled=javascript,
            color_scheme=scheme,
            locale=language,
            reduced_motion="reduce",  # colours after transitions have ended
        )
        contexts.append(context)
        site = Site(context.new_page(), live_server.url, javascript)
        if person:
            site.sign_in(person)
        return site

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture
def path() -> str:
    """Return the path of P-1's link in an open study."""
    study = factories.study_open(title="Reading digits")
    (issued,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["P-1"])
    return reverse("open_link", args=[issued.code])
