"""From an empty installation to a published model, through pages alone.

One command is used, as the documents say: the one that makes the first administrator's account. Whatever else people
do, they do in browsers, and a real worker delivers their mails, reads their files and carries out their runs.
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
from pytest_django.live_server_helper import LiveServer

from consent.models import Study
from tests import factories
from tests.browser.conftest import Site
from tests.workers import wait_until, worker

pytestmark = [pytest.mark.browser, pytest.mark.worker, pytest.mark.django_db(transaction=True)]

TITLE = "Who recovers"
PEOPLE = 300

FIRST = {"clara": "chair of the ethics committee", "carla": "ethics committee"}
"""Whom the administrator appoints to watch the study."""
ROLES = {"otto": "operator", "sven": "data steward", "rita": "researcher", "conrad": "ethics committee"}
"""What ``olga``, the first operator, and ``clara`` propose for whom; ``carla`` confirms it."""


@dataclass
class Installation:
    """A site with nothing in it, its worker, and the browsers of those who come to it."""

    visit: Callable[..., Site]  #: the browser of another person
    folder: Path

    def __post_init__(self) -> None:
        self.people: dict[str, Site] = {}

    def enter(self, name: str) -> Site:
        """The browser in which ``name`` has signed in, on their home page."""
        if name not in self.people:
            self.people[name] = self.visit()
            self.people[name].sign_in(name)
        self.people[name].open("/")
        return self.people[name]

    def in_study(self, name: str, section: str) -> Site:
        """The browser of ``name`` on a page of the study, found from the home page."""
        site = self.enter(name)
        site.page.get_by_role("heading", name=TITLE).get_by_role("link").click()
        pages = site.page.get_by_role("navigation", name="Pages of this study")
        pages.get_by_role("link", name=section, exact=True).click()
        return site

    def letters(self) -> Iterator[tuple[str, str]]:
        """To whom and what the worker has mailed so far."""
        for file in sorted((self.folder / "mail").glob("*.log")):
            for content in file.read_bytes().split(b"-" * 79 + b"\n"):
                if content.strip():
                    mail = message_from_bytes(content, policy=default)
                    yield mail["To"], mail.get_content()

    def link_for(self, address: str) -> str:
        """The path of the link for a password that was mailed to ``address``."""

        def links() -> list[str]:
            pattern = r"^http://\S+?(/account/password/new/\S+)$"
            return [link for to, text in self.letters() if to == address for link in re.findall(pattern, text, re.M)]

        wait_until(lambda: bool(links()), self.folder / "worker.log", pause=0.2)
        return links()[-1]

    def file(self, name: str, rows: list[list[Any]]) -> Path:
        path = self.folder / name
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        return path


@pytest.fixture
def installation(
    visit: Callable[..., Site], live_server: LiveServer, settings: Any, tmp_path: Path
) -> Iterator[Installation]:
    assert not User.objects.exists() and not Study.objects.exists()
    settings.SITE_URL = live_server.url
    environment = {"IPATE_SITE_URL": live_server.url, "IPATE_MAIL": f"file://{tmp_path / 'mail'}"}
    with worker(tmp_path / "worker.log", **environment):
        yield Installation(visit, tmp_path)


# --- Accounts and roles ---------------------------------------------------------------------------------------------


def account_make(installation: Installation, name: str) -> None:
    """The administrator makes an account; its owner follows the link of the mail and chooses a password."""
    admin = installation.enter("ada")
    admin.page.get_by_role("navigation", name="Site").get_by_role("link", name="Staff accounts").click()
    admin.press("New account")
    address = f"{name}@example.org"
    texts = {"User name": name, "First name": name.title(), "Last name": "Doe", "Email address": address}
    for label, text in texts.items():
        admin.page.get_by_label(label).fill(text)
    admin.press("Create account")
    admin.says("We have emailed a link to")

    site = installation.people[name] = installation.visit()
    site.open(installation.link_for(address))
    site.page.get_by_label("New password", exact=True).fill(factories.PASSWORD)
    site.page.get_by_label("Repeat the new password").fill(factories.PASSWORD)
    site.press("Set the password")
    site.press("Sign in")
    site.sign_in(name)


def role_give(site: Site, name: str, role: str, *, proposed: bool = False) -> None:
    site.page.get_by_label("User name").fill(name)
    site.page.get_by_label("Role", exact=True).select_option(label=role)
    site.press("Give the role")
    site.says("A person who oversees the study has to confirm" if proposed else f"{name} now has the role")


def study_make(installation: Installation) -> None:
    """The administrator sets a study up, hands it to an operator and a chair, and has no part in it any more."""
    site = installation.enter("ada")
    site.press("New study")
    texts = {
        "title": TITLE,
        "slug": "recovery",
        "purpose": "Learn from earlier patients who recovers soon.",
        "controller": "University Hospital",
        "contact": "study@example.org",
        "controller_address": "Hospital Road 1, Exampletown",
        "data_protection_officer": "dpo@example.org",
        "supervisory_authority": "The Data Protection Authority, Exampletown",
        "data_categories": "Age, smoking and recovery.",
        "data_source": "Your treatment at our hospital.",
        "recipients": "The hospital's archive.",
        "retention": "Until the study is closed.",
        "delta": "0.0001",
    }
    for name, text in texts.items():
        site.page.locator(f"[name={name}]").fill(text)
    site.press("Create study")
    site.says("Next steps")
    site = installation.in_study("ada", "Roles")
    role_give(site, "olga", "operator")
    site.page.get_by_role("link", name="ada: operator").click()
    site.press("Remove role")
    site.says("Role removed.")
    for name, role in FIRST.items():
        role_give(site, name, role)


def roles_give(installation: Installation) -> None:
    """The operator proposes roles, the chair those of the committee; a second person confirms each."""
    for name, role in ROLES.items():
        giver = "clara" if role == "ethics committee" else "olga"
        role_give(installation.in_study(giver, "Roles"), name, role, proposed=True)
        site = installation.in_study("carla", "Roles")
        site.page.get_by_role("link", name=f"Give role: {name}, {role}").click()
        site.press("Confirm change")
        site.says("The change is in effect.")
    roles = installation.in_study("olga", "Roles").page.get_by_label("Role", exact=True)
    assert "ethics committee" not in roles.locator("option").all_inner_texts()


# --- What holders read and are promised ------------------------------------------------------------------------------


def policy_agree(installation: Installation) -> None:
    site = installation.in_study("carla", "Ethics committee")
    site.page.locator("[name=harm_en]").fill("An insurer guesses who was ill, and asks them for more.")
    site.press("Save example")
    site.says("This is logged.")
    site = installation.in_study("carla", "ε policy")
    site.press("Propose a policy")
    for level, epsilon in {"high": "2", "average": "4", "low": "8"}.items():
        site.page.get_by_label(f"ε at {level} protection").fill(epsilon)
    site.page.get_by_label("Reason").fill("The records are old, and few people know them.")
    site.page.get_by_label("Why you keep the names").fill("They are those of the hospital's other studies.")
    site.press("Show odds", "Propose version")
    site.says("Version 1 is waiting for a second person")
    site = installation.in_study("conrad", "ε policy")
    site.press("Review and decide", "Approve policy")
    site.says("Version 1 is in force.")


def form_publish(installation: Installation) -> None:
    site = installation.in_study("olga", "Consent form")
    site.press("Write a new version")
    site.page.get_by_role("textbox", name="English").fill("# What we ask\nMay we **learn** from your records?")
    site.press("Save and continue to publishing", "Propose version")
    site.says("The form is proposed.")
    site = installation.in_study("conrad", "Consent form")
    site.press("Review and decide", "Publish form")
    site.says("Version 1 is published")


# --- Data and people -------------------------------------------------------------------------------------------------


def records(number: int, seed: int) -> list[list[Any]]:
    """Age, smoker, and outcome: whoever is older than 50 stays ill."""
    rng = random.Random(seed)
    return [
        [age, rng.choice(["no", "yes"]), "ill" if age > 50 else "well"]
        for age in (rng.randint(1, 99) for _ in range(number))
    ]


def import_file(installation: Installation, name: str, kind: str, path: Path, rows: int) -> Site:
    """The steward imports a file; the worker checks and stores it. Returns their browser on the import's page."""
    site = installation.in_study("sven", "Datasets")
    site.press("Import a dataset")
    page = site.page
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Kind").select_option(kind)
    page.get_by_label("Schema", exact=True).select_option("draft")
    if kind == "public":
        page.get_by_label("Source of the rows").fill("Made up for this study.")
    site.press("Upload")
    site.says("Contents of the file")
    if kind == "private":
        page.get_by_label("Ranges, values and classes come from elsewhere,").check()
    site.press("Check the file")
    page.get_by_text(f"{rows} rows were checked and have no errors.").wait_for()
    site.press(f"Import {rows} rows")
    page.get_by_text(f"{rows} rows are imported.").wait_for()
    return site


def data_import(installation: Installation) -> None:
    names = ["age", "smoker", "outcome"]
    for name, kind, rows in (("made up", "public", records(60, 2)), ("published", "test", records(50, 3))):
        import_file(installation, name, kind, installation.file(f"{kind}.csv", [names, *rows]), len(rows))
    owned = [["patient", *names], *([f"P-{place}", *row] for place, row in enumerate(records(PEOPLE, 1)))]
    import_file(installation, "patients", "private", installation.file("patients.csv", owned), PEOPLE)


def everyone_invite(installation: Installation) -> list[dict[str, str]]:
    """The steward invites all whose records were imported. Returns the saved letters: pseudonym, code and link."""
    site = installation.in_study("sven", "Invitations")
    site.press("Invite everyone who is not invited yet", f"Invite {PEOPLE} people")
    site.says(f"{PEOPLE} invitations were created.")
    with site.saved("Save as CSV")[1].open(newline="") as file:
        return list(csv.DictReader(file))


def holders_decide(installation: Installation, letters: list[dict[str, str]]) -> None:
    """Some open their links and decide on the site; of the others the steward records what they signed."""
    answers = {"High protection": "high protection", "Low protection": "low protection"}
    for letter, (choice, message) in zip(letters, answers.items(), strict=False):
        site = installation.visit()
        site.page.goto(letter["link"])
        site.page.get_by_label(choice).check()
        site.press("Continue", "Yes, this is my decision")
        site.says(f"You take part: {message}.")
        site.fits()
    today = datetime.now(UTC).date().isoformat()
    levels = ["HIGH", "AVERAGE", "LOW"] * PEOPLE
    signed = [
        [letter["pseudonym"], level, 1, today, "all.pdf"]
        for letter, level in zip(letters[len(answers) :], levels, strict=False)
    ]
    header = ["pseudonym", "level", "form_version", "signed_on", "evidence"]
    path, scan = installation.file("signed.csv", [header, *signed]), installation.folder / "all.pdf"
    scan.write_bytes(b"%PDF-1.7")
    site = installation.in_study("sven", "Recruitment")
    site.press("Record a decision on paper", "Record a list")
    site.page.locator("[name=list]").set_input_files(path)
    site.page.locator("[name=scans]").set_input_files(scan)
    site.press("Record all")
    site.says(f"{len(signed)} decisions were recorded.")


# --- Runs ------------------------------------------------------------------------------------------------------------


def head_counts_draw(installation: Installation) -> None:
    site = installation.in_study("olga", "Overview")
    site.page.get_by_role("link", name="Head counts").first.click()
    site.press("Draw head counts")
    site.says("Head counts drawn")


def run_propose(installation: Installation, title: str) -> None:
    """The researcher proposes a run as the form suggests it."""
    site = installation.in_study("rita", "Runs")
    site.press("Propose a run")
    site.page.get_by_label("Title").fill(title)
    site.press("Check the plan")
    site.says("The plan")
    site.press("Save as draft")
    site.says("The run starts when an operator approves")


def run_approve(installation: Installation, name: str, title: str) -> Site:
    """An operator finds the draft among what waits for them, and starts it with the share that is suggested."""
    site = installation.enter(name)
    site.says("Waiting for you")
    site.press(title)
    site.press("Approve and start")
    site.says("as soon as a worker has calculated its plan")
    return site


def test_from_an_empty_installation_to_a_model(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", factories.PASSWORD)
    call_command("createsuperuser", interactive=False, username="ada", email="ada@example.org", verbosity=0)
    for name in ("olga", *FIRST, *ROLES):
        account_make(installation, name)
    study_make(installation)
    roles_give(installation)

    policy_agree(installation)
    form_publish(installation)
    data_import(installation)
    holders_decide(installation, everyone_invite(installation))
    head_counts_draw(installation)

    run_propose(installation, "First vote")
    site = run_approve(installation, "otto", "First vote")
    site.page.locator("#state").get_by_text("finished").wait_for()
    site.says("Download the model")
    site = installation.in_study("rita", "Runs")
    site.press("First vote")
    site.says("Model card")
    model = LocalModel.load(site.saved("Download as ONNX")[1])
    predicted = model.predictions([{"age": 20, "smoker": "no"}, {"age": 80, "smoker": "no"}])
    assert set(predicted.labels) <= {"ill", "well"}
    assert predicted.probabilities.sum(axis=1) == pytest.approx([1, 1])

    for name, site in installation.people.items():
        assert site.complaints == [], name
