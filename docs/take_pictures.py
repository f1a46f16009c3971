"""Screenshots of the main paths for docs/screenshots, taken in a real browser: ``make pictures``.

This uses fixtures of the tests, but is not part of the suite. The number of colours is reduced, so that each picture
takes little space.
"""

import io
import math
from collections.abc import Callable

import pytest
import typst
from django.conf import settings
from PIL import Image
from playwright.sync_api import Locator, Page

from common.noise import SimulationNoise
from consent import services
from consent.models import DataHolder, Study
from learning.formats import catalogue_load
from tests import factories
from tests.browser.conftest import Site
from tests.browser.test_text_size import enlarge
from tests.training.asking import CLEAR_RUN, run_ask
from tests.training.runs import run_finish, run_start, study_with_table
from training.demonstration import pate_run_start, people, study_build
from training.services.drawings import head_counts_draw

pytest_plugins = ["tests.conftest", "tests.browser.conftest"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FOLDER = settings.BASE_DIR / "docs" / "screenshots"
TALLEST = 2400
TEXTS = {
    "en": "# What we ask\nWe would like to learn from your records how to **read handwriting**.\n\n"
    "Your records stay with us. Only what was learned, with random noise, is passed on.",
    "de": "# Worum wir bitten\nWir möchten aus Ihren Daten lernen, wie man **Handschrift** liest.\n\n"
    "Ihre Daten bleiben bei uns. Nur was gelernt wurde, mit zufälligem Rauschen, geht nach außen.",
}
MORE = {
    "en": TEXTS["en"] + "\n\nNew: we also learn to read **numbers on letters**.",
    "de": TEXTS["de"] + "\n\nNeu: Wir lernen auch, **Zahlen auf Briefen** zu lesen.",
}
#: Name of the size → device, and size of text in per cent.
SIZES = {"desktop": ("desktop", 100), "phone": ("phone", 100), "phone-200": ("phone", 200)}
WAYS = [(language, size) for language in ("en", "de") for size in SIZES]


@pytest.fixture
def study() -> Study:
    """Return a study with participants, a run, and pending proposals."""
    study = study_with_table(
        "digits",
        title="Reading handwriting",
        retention="Until the end of 2030; then they are deleted.",
        data_categories="Scans of forms that you filled in since 2020.",
    )
    factories.committee_fill(study)
    factories.form_publish(study, TEXTS)
    holders = DataHolder.objects.filter(study=study).order_by("pk")
    for place, holder in enumerate(holders):
        level = ("HIGH", "AVERAGE", "LOW")[place % 3]
        services.consent_give(holder=holder, level=level, form=study.consent_forms.first(), acting_user=None)
    services.holder_link(holder=holders[2], user=factories.user_create("hanna"))
    head_counts_draw(study=study, acting_user=factories.user_create("olga"), noise=SimulationNoise(1))
    run_ask(run_start(study, title="Everybody was asked", purpose="To read handwriting.", share=0.3, **CLEAR_RUN))
    services.epsilon_policy_propose(
        study=study,
        acting_user=factories.user_create("carla"),
        high=0.5,
        average=2,
        low=4,
        reason="More can be learned at low protection, and high protection becomes stronger.",
    )
    return study


@pytest.fixture
def shoot(visit: Callable[..., Site]) -> Callable[..., None]:
    """Take one picture: ``shoot(name, who, path, size, language, part=…, before=…)``."""
    sites: dict[tuple[str, str], Site] = {}

    def shoot(
        name: str,
        who: str,
        path: str,
        size: str = "desktop",
        language: str = "en",
        part: str = "body",
        before: Callable[[Site], None] | None = None,
    ) -> None:
        device, percent = SIZES[size]
        if (who, size) not in sites:
            sites[who, size] = visit(device, person=who)
        site = sites[who, size]
        site.speak(language)
        site.open(path)
        if before:
            before(site)
        enlarge(site, percent)  # the next page would discard it
        site.page.wait_for_load_state("networkidle")
        picture_save(name, site.page, site.page.locator(part).first)

    return shoot


def picture_save(name: str, page: Page, part: Locator) -> None:
    """Save a picture of a part of a page, at most ``TALLEST`` pixels high, with few colours."""
    usual = page.viewport_size
    height = min(math.ceil(part.bounding_box()["height"]), TALLEST)
    page.set_viewport_size({"width": usual["width"], "height": height})
    part.evaluate("part => { document.documentElement.style.scrollPaddingTop = 0; part.scrollIntoView(); }")
    box = part.bounding_box()
    clip = {**box, "y": max(box["y"], 0), "height": height}
    picture = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    page.set_viewport_size(usual)
    few = few_colours(picture)
    if name.endswith(".webp"):
        few.convert("RGB").save(FOLDER / name, lossless=True, quality=100, method=6)
    else:
        few.save(FOLDER / name, optimize=True)


def few_colours(picture: Image.Image) -> Image.Image:
    """Return a picture with 48 colours, including the exact colours of large areas."""
    return picture.quantize(48, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)


def answer(site: Site) -> None:
    site.page.locator("[value=AVERAGE]").check()
    site.page.locator("main form .button-primary").click()
    site.page.locator("dl.facts").wait_for()


def draft(site: Site) -> None:
    for code, text in MORE.items():
        site.page.locator(f"textarea[name={code}]").fill(text)
    site.page.locator("main form .button:not(.button-primary)").first.click()
    site.page.locator("#preview").wait_for()


def test_holders_and_committee_on_their_main_paths(shoot, study: Study) -> None:
    for language, size in WAYS:
        end = f"{size}-{language}.webp"
        shoot(f"path-decide-{end}", "hanna", "/my/digits/", size, language, "section:has(> form)")
        shoot(f"path-check-{end}", "hanna", "/my/digits/", size, language, "main", before=answer)
        shoot(f"path-withdraw-{end}", "hanna", "/my/digits/withdraw/", size, language, "main")
        shoot(f"path-policy-{end}", "conrad", "/studies/digits/policies/2/approve/", size, language, "main")
    proposal = f"/studies/digits/consent-form/proposals/{factories.form_propose(study, MORE).sequence}/"
    for language, size in WAYS:
        end = f"{size}-{language}.webp"
        shoot(f"path-home-{end}", "conrad", "/", size, language)
        shoot(f"path-proposal-{end}", "conrad", proposal, size, language, "main")
    conrad = factories.user_create("conrad")
    services.epsilon_policy_approve(policy=study.epsilon_policies.latest("version"), acting_user=conrad)
    services.consent_form_approve(proposal=study.consent_form_proposals.latest("sequence"), acting_user=conrad)
    for language, size in WAYS:
        shoot(f"path-again-{size}-{language}.webp", "hanna", "/my/digits/choice/", size, language, "main")


def test_pages_of_the_documents(shoot, study: Study) -> None:
    shoot("holder-study.png", "hanna", "/my/digits/")
    shoot("holder-decision.png", "hanna", "/my/digits/", part="section:has(> form)")
    shoot("holder-check.png", "hanna", "/my/digits/", before=answer)
    shoot("holder-choice.png", "hanna", "/my/digits/choice/")
    shoot("holder-receipt.png", "hanna", "/my/digits/receipts/1/")
    shoot("holder-decision-phone-de.png", "hanna", "/my/digits/", "phone", "de", "section:has(> form)")
    shoot("holder-choice-phone-de.png", "hanna", "/my/digits/choice/", "phone", "de")
    shoot("holder-uses-phone-de.png", "hanna", "/my/digits/uses/", "phone", "de")
    shoot("committee-policy-proposal.png", "carla", "/studies/digits/policies/new/")
    shoot("committee-policy-approval.png", "conrad", "/studies/digits/policies/2/approve/")
    shoot("committee-policy-approval-phone-de.png", "conrad", "/studies/digits/policies/2/approve/", "phone", "de")
    shoot("committee-form-editor.png", "carla", "/studies/digits/consent-form/new/", before=draft)
    shoot("committee-form-differences.png", "carla", "/studies/digits/consent-form/publish/")
    shoot("steward-recruitment.png", "olga", "/studies/digits/recruitment/")


def test_architecture() -> None:
    drawn = typst.compile(FOLDER.parent / "architecture.typ", format="svg")
    (FOLDER.parent / "architecture.svg").write_bytes(drawn)


def test_front_of_the_readme(visit: Callable[..., Site]) -> None:
    """A person's choice, the teachers of 1,300 people in their privacy groups, and the model, next to each other."""
    users, _ = people()
    for name in ("holder", "operator"):
        users[name].set_password(factories.PASSWORD)
        users[name].save()
    real = study_build("digits", catalogue_load("digits"), users, lambda items, _description, _total: items)
    run = run_finish(pate_run_start("digits", real, proposer=users["operator"], approver=users["operator2"]))
    page, panels = f"/studies/demo-digits/runs/{run.pk}/", []
    for who, path, width, parts in (
        (
            "demo-holder",
            "/my/demo-digits/choice/",
            560,
            ["main .page-head", "main section.card", "main details:has(.icon-array)"],
        ),
        ("demo-operator", f"{page}cost/", 800, ["main h1", "#run-live"]),
        ("demo-operator", page, 560, ["#student"]),
    ):
        site = visit()
        site.page.set_viewport_size({"width": width, "height": 900})
        site.sign_in(who)
        site.open(path)
        site.page.evaluate(
            "for (const each of document.querySelectorAll('details.fold, details:has(.icon-array)')) each.open = true"
        )
        site.page.wait_for_load_state("networkidle")
        shots = [site.page.locator(part).first.screenshot() for part in parts]
        panels.append([Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots])
    front_save(panels)


def front_save(panels: list[list[Image.Image]]) -> None:
    """Save columns of pictures as one, cut at the height of the first column."""
    gap = 24
    height = sum(part.height + gap for part in panels[0])
    widths = [max(part.width for part in parts) + gap for parts in panels]
    front = Image.new("RGB", (sum(widths), height), panels[0][0].getpixel((0, 0)))
    left = gap // 2
    for parts, width in zip(panels, widths, strict=True):
        top = 0
        for part in parts:
            front.paste(part, (left, top))
            top += part.height + gap
        left += width
    few_colours(front).save(FOLDER / "front.png", optimize=True)
