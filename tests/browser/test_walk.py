"""From an empty installation to a published model on pages only, as in the tutorial *A first study*.

Only one command is used, to create the first administrator's account. Everything else happens in browsers, and a real
worker delivers mails, reads files and carries out runs. Every click on a link, a button or a box is counted; links in
mails and letters are followed, and only the first address is typed.
"""

import csv
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from ipate_client import LocalModel

from consent.models import Study
from tests import factories
from tests.browser.conftest import Site
from tests.workers import wait_until, worker

pytestmark = [pytest.mark.browser, pytest.mark.worker, pytest.mark.django_db(transaction=True)]

TITLE = "Who recovers"
PEOPLE = 300

#: People whom the administrator appoints: name and role.
ROLES = (
    ("olga", "operator"),
    ("sven", "data steward"),
    ("rita", "researcher"),
    ("clara", "chair of the ethics committee"),
    ("carla", "ethics committee"),
)
MOST_CLICKS = 45


@dataclass
class Installation:
    """An empty site, its worker, and the browsers of its users."""

    visit: Callable[..., Site]  # another person's browser
    folder: Path

    def __post_init__(self) -> None:
        self.people: dict[str, Site] = {}
        self.clicks: list[str] = []
        self.links: set[str] = set()  # paths in mails and letters

    def come(self, name: str, path: str) -> Site:
        """Open a person's new browser at an address that was typed or is in a mail or letter."""
        site = self.people[name] = self.visit()
        site.page.context.expose_binding("pressed", lambda _source, what: self.clicks.append(f"{name}: {what}"))
        told = "event.target.closest('a, button, label, input, summary')?.innerText || event.target.name"
        site.page.context.add_init_script(
            f"addEventListener('pointerdown', (event) => event.isTrusted && window.pressed(String({told})), true)"
        )
        site.open(path)
        return site

    def at_home(self, name: str) -> Site:
        site = self.people[name]
        site.page.locator(".brand").click()
        return site

    def letters(self) -> Iterator[tuple[str, str]]:
        """Return recipient and text of the worker's mails so far."""
        for file in sorted((self.folder / "mail").glob("*.log")):
            for content in file.read_bytes().split(b"-" * 79 + b"\n"):
                if content.strip():
                    mail = message_from_bytes(content, policy=default)
                    yield mail["To"], mail.get_content()

    def link_for(self, name: str, path: str = r"/account/password/new/\S+") -> str:
        """Return the path of the newest link like ``path`` that was mailed to ``name``."""

        def links() -> list[str]:
            address = f"{name}@example.org"
            texts = [text for to, text in self.letters() if to == address]
            return [link for text in texts for link in re.findall(rf"^http://[^/]+({path})$", text, re.M)]

        wait_until(lambda: bool(links()), self.folder / "worker.log", pause=0.2)
        self.links.add(links()[-1])
        return links()[-1]

    def typed(self) -> list[str]:
        """Return the paths that were opened without a click and without a link."""
        return [path for site in self.people.values() for path in site.opened if path not in self.links]

    def file(self, name: str, rows: list[list[Any]]) -> Path:
        path = self.folder / name
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        return path


@pytest.fixture
def installation(visit, live_server, settings, tmp_path) -> Iterator[Installation]:
    assert not User.objects.exists() and not Study.objects.exists()
    settings.SITE_URL = live_server.url
    environment = {"IPATE_SITE_URL": live_server.url, "IPATE_MAIL": f"file://{tmp_path / 'mail'}"}
    with worker(tmp_path / "worker.log", **environment):
        yield Installation(visit, tmp_path)


def study_make(installation: Installation) -> None:
    """Let the administrator set up a study and appoint its people, which ends the administrator's role in it."""
    site = installation.come("ada", "/sign-in/")
    site.page.get_by_label("Email address or user name").fill("ada")
    site.page.get_by_label("Password").fill(factories.PASSWORD)
    site.press("Sign in", "New study")
    answers = {
        "title": TITLE,
        "purpose": "Learn from earlier patients who recovers soon.",
        "controller": "University Hospital",
        "contact": "study@example.org",
    }
    for name, text in answers.items():
        site.page.locator(f"[name={name}]").fill(text)
    site.press("Create study")
    site.says("Use one line for each role")
    for place, (name, role) in enumerate(ROLES):
        row = f"people-{place}-"
        assert site.page.locator(f"[name={row}role] option:checked").inner_text() == role
        site.page.locator(f"[name={row}username]").fill(name)
        for field, text in {"first_name": name.title(), "last_name": "Doe", "email": f"{name}@example.org"}.items():
            site.page.locator(f"[name={row}{field}]").fill(text)
    site.press("Create accounts and give roles")
    site.says("The people have been appointed")
    for name in ("olga", "sven", "clara", "carla"):
        password_set(installation, name)


def password_set(installation: Installation, name: str) -> Site:
    """Follow the link of the mail about the account and choose a password, which signs the person in."""
    site = installation.come(name, installation.link_for(name))
    site.page.get_by_label("New password", exact=True).fill(factories.PASSWORD)
    site.page.get_by_label("Repeat the new password").fill(factories.PASSWORD)
    site.press("Set password")
    site.says("Waiting for you")
    return site


def form_propose(installation: Installation) -> None:
    site = installation.people["olga"]
    site.press("Add information")
    facts = {
        "controller_address": "Hospital Road 1, Exampletown",
        "data_protection_officer": "dpo@example.org",
        "supervisory_authority": "The Data Protection Authority, Exampletown",
        "data_categories": "Age, smoking and recovery.",
        "data_source": "Your treatment at our hospital.",
        "recipients": "The hospital's archive.",
        "retention": "Until the study is closed.",
    }
    for name, text in facts.items():
        site.page.locator(f"[name={name}]").fill(text)
    site.press("Save", "Write the form")
    site.page.get_by_role("textbox", name="English").fill("# What we ask\nMay we **learn** from your records?")
    site.press("Save and continue to publishing", "Propose version")
    site.says("The form has been proposed")


def policy_propose(installation: Installation) -> None:
    site = installation.people["carla"]
    site.press("Write an example of harm")
    site.page.locator("[name=harm_en]").fill("An insurer guesses who was ill, and asks them for more.")
    site.press("Save example")
    site.says("This is logged.")
    site.press("Propose")
    for level, epsilon in {"high": "2", "average": "4", "low": "8"}.items():
        site.page.locator(f"input[type=number][name={level}], input[name={level}]").last.fill(epsilon)
    site.page.get_by_label("Reason", exact=True).fill("The records are old, and few people know them.")
    site.page.get_by_label("Reason for keeping the names").fill("They are those of the hospital's other studies.")
    site.press("Show odds", "Propose version")
    site.says("Version 1 is waiting for a second person")


def both_approve(installation: Installation) -> None:
    """Let the chair follow the links in two mails."""
    site = installation.people["clara"]
    for path, button, told in (
        (r"/studies/\S+/policies/1/approve/", "Approve policy", "Version 1 is in force."),
        (r"/studies/\S+/consent-form/proposals/\d+/", "Publish form", "Version 1 has been published"),
    ):
        site.open(installation.link_for("clara", path))
        site.press(button)
        site.says(told)


def records(number: int, seed: int) -> list[list[Any]]:
    """Return age, smoker and outcome: people older than 50 stay ill."""
    rng = random.Random(seed)
    ages = [rng.randint(1, 99) for _ in range(number)]
    return [[age, rng.choice(["no", "yes"]), "ill" if age > 50 else "well"] for age in ages]


def data_import(installation: Installation) -> Site:
    """Let the steward import three files, which the worker checks and stores."""
    site, names = installation.people["sven"], ["age", "smoker", "outcome"]
    page = site.page
    site.press("Import private and public data")
    owned = [["patient", *names], *([f"P-{place}", *row] for place, row in enumerate(records(PEOPLE, 1)))]
    files = {"public": ("made up", [names, *records(60, 2)]), "test": ("published", [names, *records(50, 3)])}
    files["private"] = ("patients", owned)
    for kind, (name, lines) in files.items():
        rows = len(lines) - 1
        assert page.get_by_label("Kind").input_value() == kind
        page.get_by_label("File", exact=True).set_input_files(installation.file(f"{kind}.csv", lines))
        page.get_by_label("Name", exact=True).fill(name)
        if kind == "public":
            page.get_by_label("Source of the rows").fill("Made up for this study.")
        site.press("Upload")
        if kind != "test":  # its schema was declared with the public rows
            site.press("Check the file")
        page.get_by_text(f"{rows} rows were checked and have no errors.").wait_for()
        site.press(f"Import {rows} rows")
        page.get_by_text(f"{rows} rows have been imported.").wait_for()
    return site


def people_decide(installation: Installation) -> None:
    """Let one person open a letter's link and decide, and let the steward record what the others signed."""
    site = data_import(installation)
    site.press("Invite the data holders", f"Invite {PEOPLE} people")
    site.says(f"{PEOPLE} invitations were created.")
    letter = site.page.locator("ul.letters > li").first.inner_text()
    link = re.search(r"https?://[^/]+(/\S+)", letter)
    pseudonym = re.search(r"P-\d+", letter)
    assert link and pseudonym
    installation.links.add(link[1])
    holder = installation.come("holder", link[1])
    holder.page.get_by_label("High protection").check()
    holder.press("Continue", "Yes, this is my decision")
    holder.says("You take part: high protection.")
    today = datetime.now(UTC).date().isoformat()
    others = [f"P-{place}" for place in range(PEOPLE) if f"P-{place}" != pseudonym[0]]
    levels = ["HIGH", "AVERAGE", "LOW"] * PEOPLE
    signed = [[name, level, 1, today, "all.pdf"] for name, level in zip(others, levels, strict=False)]
    header = ["pseudonym", "level", "form_version", "signed_on", "evidence"]
    path, scan = installation.file("signed.csv", [header, *signed]), installation.folder / "all.pdf"
    scan.write_bytes(b"%PDF-1.7")
    site.press("Record decisions signed on paper")
    site.page.locator("[name=list]").set_input_files(path)
    site.page.locator("[name=scans]").set_input_files(scan)
    site.press("Record all")
    site.says(f"{len(signed)} decisions were recorded.")


def run_make(installation: Installation, title: str) -> Site:
    """Let the operator draw head counts, the researcher propose a run, and the operator start it."""
    olga = installation.people["olga"]
    olga.press("Head counts", "Take head counts")
    olga.says("Head counts taken")
    site = password_set(installation, "rita")
    site.press("Propose a first run")
    site.page.get_by_label("Title").fill(title)
    site.press("Check the plan")
    site.says("The plan")
    site.press("Save as draft")
    site.says("The run starts when an operator approves")
    olga = installation.at_home("olga")
    olga.press(title, "Approve and start")
    olga.says("as soon as a worker has calculated its plan")
    return olga


def test_from_an_empty_installation_to_a_model(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", factories.PASSWORD)
    call_command("createsuperuser", interactive=False, username="ada", email="ada@example.org", verbosity=0)
    study_make(installation)
    form_propose(installation)
    policy_propose(installation)
    both_approve(installation)
    people_decide(installation)
    site = run_make(installation, "First vote")
    site.page.locator("#state").get_by_text("finished").wait_for()
    clicks, typed = installation.clicks, installation.typed()
    record_property("clicks", len(clicks))
    record_property("typed addresses", len(typed))
    assert len(clicks) <= MOST_CLICKS, clicks
    assert typed == ["/sign-in/"], "only the site's own address"
    model = LocalModel.load(site.saved("Download as ONNX")[1])
    predicted = model.predictions([{"age": 20, "smoker": "no"}, {"age": 80, "smoker": "no"}])
    assert set(predicted.labels) <= {"ill", "well"}
    assert predicted.probabilities.sum(axis=1) == pytest.approx([1, 1])
    for name, visitor in installation.people.items():
        assert visitor.complaints == [], name
