"""The German site contains no words that are missing from the catalogue.

Every translation is marked with letters of another alphabet, so text in plain letters is either data or untranslated
English. At night, every kind of reader opens all linked pages and sends each of their forms three times: empty,
unchanged and filled in. Some pages, mails and files are always tested. The nightly tour also finds template variables
that no view passes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import polib
import pytest
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import Resolver404, get_resolver, resolve, reverse
from django.utils import timezone, translation
from django.utils.translation import trans_real

from benchmarks.house import modules
from consent.documents import letters, receipts
from consent.models import Answerer, HolderAddress, Letter, Mail, MailWishes, Role, Study
from consent.people.circumstances import Answering
from consent.people.pseudonyms import Invited
from consent.services import consent_give, holder_link, invitations, membership_add
from consent.services.mail import address_link, mail_render
from consent.wording import third_person
from ipate_web.staff import report
from tests import factories
from tests.everything import addresses, imports_begin, is_page, study_with_everything
from tests.ipate_web.accounts.test_mails import people_with_mails
from tests.template_variables import UNSEEN, lookups_recorded, never_given
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.models import Run
from training.services.erasures import study_close

pytestmark = pytest.mark.django_db

_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Full-width letters, as in East Asian texts.
_MARKED = str.maketrans({letter: chr(ord(letter) + 0xFEE0) for letter in _PLAIN})
#: Placeholders in a translation, and HTML.
_KEPT = re.compile(r"%\(\w+\)[sdf]|%[sdf%]|\{\w*\}|<[^>]*>|&\w+;|https?://\S+")


def marked(text: str) -> str:
    """Return a translation in marked letters, except placeholders."""
    kept = _KEPT.findall(text)
    parts = [part.translate(_MARKED) for part in _KEPT.split(text)]
    return "".join(part + keep for part, keep in zip(parts, [*kept, ""], strict=True))


@pytest.fixture
def marked_german(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark all German translations of the site, Django and allauth."""
    german = trans_real.DjangoTranslation("de")
    texts = german._catalog._catalogs
    german._catalog._catalogs = [{key: marked(text) if key else text for key, text in each.items()} for each in texts]
    monkeypatch.setitem(trans_real._translations, "de", german)
    about = third_person.texts_in("de")
    entries = polib.pofile(str(settings.BASE_DIR / "locale/de/LC_MESSAGES/person.po"))
    third = {entry.msgid: marked(entry.msgstr) for entry in entries}
    monkeypatch.setattr(about, "gettext", lambda text: third.get(text, text))


#: Attributes that are read out or shown.
_READ = ("title", "aria-label", "alt", "placeholder", "data-label", "data-text")
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


@dataclass
class Form:
    """A form of a page: its address, its controls, and the names and values that its buttons send."""

    action: str
    controls: list[dict[str, Any]] = field(default_factory=list)
    buttons: list[dict[str, str]] = field(default_factory=list)

    def sent(self) -> Iterator[dict[str, Any]]:
        """Yield what is sent: only hidden fields, then the existing values, then something in each control.

        The last two are sent with each button, as a browser sends the one that was pressed.
        """
        hidden = {each["name"]: each["value"] for each in self.controls if each["type"] == "hidden"}
        yield hidden
        standing = {each["name"]: each["value"] for each in self.controls if each["value"] and each["standing"]}
        first: dict[str, Any] = {}
        for each in self.controls:
            first.setdefault(each["name"], each["value"] or FILLED.get(each["type"], "Text"))
        for pressed in self.buttons or [{}]:
            yield hidden | standing | pressed
            yield hidden | first | pressed


#: Text for empty fields.
FILLED = {
    "email": "new@example.net",
    "number": "1",
    "date": "2030-01-01",
    "password": factories.PASSWORD,
    "url": "https://hooks.example.org/",
}


class Page(HTMLParser):
    """The words of a page that its reader reads, its links and its forms."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._foreign: list[bool] = []
        self._select = ""
        self.feed(html)
        for script in re.findall(r'type="application/json">(.*?)</script>', html, re.DOTALL):
            self._chart(json.loads(script))

    def _chart(self, chart: Any) -> None:
        if isinstance(chart, dict) and "series" in chart:
            self.words += [chart["xLabel"], chart["yLabel"], *(each["name"] for each in chart["series"])]
            self.words += [each for each in chart["x"] if isinstance(each, str)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        language = given.get("lang", "de")
        silent = tag in ("script", "style", "code", "pre")
        foreign = (language != "de" and tag != "span") or silent or (bool(self._foreign) and self._foreign[-1])
        if not foreign:
            self.words += [given[name] for name in _READ if name in given]
        if tag not in _VOID:
            self._foreign.append(foreign)
        if tag == "a" and "download" not in given:
            self.links.append(given.get("href", ""))
        if tag == "form":
            self.forms.append(Form(given.get("action", "") if given.get("method") == "post" else "-"))
        if tag == "button" and self.forms and given.get("type", "submit") == "submit":
            pressed = {given["name"]: given.get("value", "")} if "name" in given else {}
            if pressed not in self.forms[-1].buttons:
                self.forms[-1].buttons.append(pressed)
        if tag in ("input", "textarea") and "name" in given and self.forms:
            kind = given.get("type", "text") if tag == "input" else tag
            standing = kind not in ("checkbox", "radio") or "checked" in given
            value = given.get("value", "on" if kind in ("checkbox", "radio") else "")
            self.forms[-1].controls.append({"name": given["name"], "type": kind, "value": value, "standing": standing})
        if tag == "select":
            self._select = given.get("name", "")
        if tag == "option" and self._select and self.forms:
            standing = "selected" in given
            value = {"type": "option", "value": given.get("value", ""), "standing": standing}
            self.forms[-1].controls.append({"name": self._select, **value})

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID and self._foreign:
            self._foreign.pop()
        if tag == "select":
            self._select = ""

    def handle_data(self, data: str) -> None:
        if data.strip() and not (self._foreign and self._foreign[-1]):
            self.words.append(" ".join(data.split()))


@dataclass
class Start:
    """A reader: who signs in (nobody if empty), what they type first, and pages without a link."""

    name: str = ""
    paths: list[str] = field(default_factory=list)
    types: dict[str, dict[str, str]] = field(default_factory=dict)


class Reader:
    """A reader who opens everything that pages link to, and notes words in plain letters."""

    MOST_OF_ONE = 4

    def __init__(self, start: Start, found: dict[str, set[str]]) -> None:
        self.name, self._found = start.name, found
        self.seen: Counter[str] = Counter()
        self._opened: Counter[str] = Counter()
        self._known: set[str] = set()
        self._forms: set[tuple[str, str, str]] = set()
        self.client = Client(raise_request_exception=True)
        if start.name:
            self.client.force_login(factories.user_create(start.name))
        self.client.cookies["django_language"] = "de"
        for path, data in start.types.items():
            self.read(path, self.client.post(path, data, follow=True))

    def go(self, *paths: str) -> None:
        """Open pages and everything that they link to."""
        waiting = [*paths, "/"]
        while waiting:
            path = waiting.pop(0)
            for link in self.open(path):
                if link not in self._known and self._leads_on(link):
                    self._known.add(link)
                    waiting.append(link)

    def _leads_on(self, path: str) -> bool:
        try:
            name = resolve(urlsplit(path).path).view_name
        except Resolver404:
            return False
        if not is_page(name):
            return False
        self._opened[name] += 1
        return self._opened[name] <= self.MOST_OF_ONE

    def open(self, path: str) -> list[str]:
        """Read a page, send its forms, and return its links."""
        answer = self.client.get(path, follow=True)
        page = self.read(path, answer)
        if page is None:
            return []
        at = answer.request["PATH_INFO"]
        for form in page.forms:
            self.send(urljoin(at, form.action), form) if form.action != "-" else None
        return [urljoin(at, link).split("#")[0] for link in page.links if link.startswith(("/", "?", "."))]

    def send(self, to: str, form: Form) -> None:
        name = resolve(urlsplit(to).path).view_name
        if name in ("account_logout", "set_language", "leave", "stay"):
            return
        names = {each["name"] for each in form.controls} | {each for pressed in form.buttons for each in pressed}
        key = (name, ",".join(sorted(names)), str(len(form.controls)))
        if key in self._forms:
            return
        self._forms.add(key)
        cookies = self.client.cookies.copy()
        for data in form.sent():
            point = transaction.savepoint()  # the views begin their own transactions
            self.read(f"{to} with {data}", self.client.post(to, data, follow=True))
            transaction.savepoint_rollback(point)
            self.client.cookies = cookies.copy()

    def read(self, where: str, answer: HttpResponse) -> Page | None:
        """Return the page, if the response is one."""
        if not answer.headers.get("Content-Type", "").startswith("text/html"):
            return None
        self.seen[resolve(answer.request["PATH_INFO"]).view_name] += 1
        page = Page(answer.content.decode())
        if 'lang="de"' in answer.content.decode()[:60]:  # and not texts that holders read in another language
            for words in page.words:
                self.look(words, where)
        return page

    def look(self, words: str, where: str) -> None:
        if plain := plain_words(words):
            self._found.setdefault(f"{plain} in: {words}", set()).add(f"{self.name or 'stranger'}: {where}")


#: Texts and names that people entered in these tests' studies; programs, algorithms and codes; typed text.
DATA = re.compile(
    "|".join(re.escape(text) for text in (*factories.FACTS.values(), *factories.HARM.values()) if isinstance(text, str))
    + "|Ｗｅｎｎ ｌｅｅｒ: .*|"  # words of a letter in its language, if the field is left empty
    r"\S+@\S+|https?://\S+|/join/\S*|encoders/\S+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]*\d[0-9a-f]*\b|\b[0-9A-Z]{5}(?:-[0-9A-Z]{5})+\b|erased:\S+|\w+\.\w+|"
    r"^[{\[].*|\b(?:"
    r"^again$|old \d+|Done|iPATE|Reading digits|University Hospital|"
    r"Study (?:empty|again|rehearsal)|Long over|docs/\w+\.md|"
    r"What we ask|We would like to learn from your records how to|read handwriting|New|Words|"
    r"More words|W\. Ait|Anna Example|Clinic|"
    r"hanna|hedwig|undecided|high|low|average|none|olga|otto|carla|conrad|dan|root|guest|"
    r"waiting|Wards|sven|hilde|ada|ben|maybe|yes|digits|empty|over|rehearsal|"
    r"A small run|Small|MIT|checkpoints|First vote|Next vote|Waiting|Rehearsed|Baseline|"
    r"To be rehearsed|All (?:are|were|to be) asked|"
    r"(?:Steps|Samples|People|Rows) (?:were|to be) (?:taken|drawn|counted)|class|CSV|"
    r"Draft|Errors|Sound|Under way|private|public|test|curl|Python|[-\w]+=-?\w+|"
    r"length|width|age|sex|ill|who|Most records|Learn to read handwritten digits|As others do|More of it|They called|"
    r"Lost the letter|(?:More|Mehr) [Ww]orte?s?|Neu|Worte|Worum wir bitten|Wir möchten aus Ihren Daten lernen, wie man|"
    r"Handschrift|liest|notebook|Text|Dear Sir or Madam|Markdown|PDF|TEXT|"
    r"Uhr|um|(?:Confident-|Interactive-)?GNMax|LNMax|ONNX|SHA-256|UTC|ConnectionRefusedError|celery|"
    r"classic|improved|exact|data_dependent|data_independent|nearest_neighbour|read|Deutsch|English"
    r")\b"
)


def plain_words(text: str) -> str:
    """Return English words on the German pages, and English quotation marks."""
    return " ".join(re.findall(r"[A-Za-z]{3,}|\u201d", DATA.sub(" ", text)))


def starts(study: Study) -> list[Start]:
    """Return readers of every kind, and in every state of a consent."""
    voted = Run.objects.get(title="First vote").pk
    compared = reverse("staff:run_compare", args=["digits"]) + f"?run={voted}&run={Run.objects.get(title='Waiting').pk}"
    of_student = [reverse(f"staff:run_student_{name}", args=["digits", voted, 2]) for name in ("publish", "withdraw")]
    of_student.append(reverse("staff:run_student_new", args=["digits", voted]))
    counted = reverse("staff:run_result_withdraw", args=["digits", Run.objects.get(title="People were counted").pk])
    reset = Mail.objects.filter(kind="password_reset").latest("pk")
    new_password = re.search(r"/account/password/new/\S+", mail_render(reset).body).group()
    (invited,) = invitations.invitations_create(study=study, acting_user=None, pseudonyms=["guest"])
    over = Study.objects.get(slug="over")
    (late,) = invitations.invitations_create(study=over, acting_user=None, open_places=1)
    study_close(study=over, reason="Done.", acting_user=factories.user_create("olga"), erase_after=timezone.localdate())
    second_study = factories.study_open("again", title="Study again")
    lapsed = factories.holder_create(second_study, "hilde", user=factories.user_create("hilde"))
    form = second_study.consent_forms.latest("version")
    consent_give(holder=lapsed, level="HIGH", form=form, acting_user=lapsed.user)
    factories.holder_create(second_study, "Anna Example")
    (represented,) = invitations.invitations_create(
        study=second_study, acting_user=None, pseudonyms=[Invited("Anna Example", "guardian", date(2099, 1, 1))]
    )
    factories.form_publish(second_study, {"en": "More words.", "de": "Mehr Worte."}, renewal="required")
    secured = factories.user_create("ada")
    TOTP.activate(secured, generate_totp_secret())
    RecoveryCodes.activate(secured)
    confirmed = EmailConfirmationHMAC.create(EmailAddress.objects.get(email="new@example.org")).key

    def named(names: str) -> list[str]:
        return [reverse(name) for name in names.split()]

    again = {reverse("account_reauthenticate"): {"password": factories.PASSWORD}}
    after = "account_reset_password_done account_reset_password_from_key_done account_inactive "
    strange = named(after + "socialaccount_login_cancelled")
    keys = named("mfa_index mfa_activate_totp mfa_add_webauthn mfa_list_webauthn")
    codes = named(
        "mfa_view_recovery_codes mfa_generate_recovery_codes mfa_reauthenticate mfa_deactivate_totp mfa_index"
    )
    confirm = reverse("account_confirm_email", args=[confirmed])
    own = [*named("socialaccount_connections account_reauthenticate"), confirm]
    asking = [reverse(f"staff:invitations_{whom}", args=["digits"]) for whom in ("everyone", "remind")]
    links = [reverse("open_link", args=[code]) for code in ("wrong", late.code, represented.code)]
    return [
        *(Start(paths=[link]) for link in links),
        Start(paths=[reverse("openid_connect_login", args=["sso"]), reverse("closed")]),
        Start(paths=[*strange, reverse("account_reset_password_from_key", args=["1", "wrong"])]),
        Start(paths=[new_password]),
        Start(paths=[urlsplit(address_link(HolderAddress.objects.get())).path]),
        Start(paths=[reverse("open_link", args=[invited.code]), reverse("account")]),
        Start("hanna", own),
        Start("hedwig", keys, again),
        Start("ada", codes, again),
        Start(paths=["/"], types={reverse("account_login"): {"login": "ada", "password": factories.PASSWORD}}),
        Start("olga", [*asking, compared, *of_student, counted]),
        Start("carla", types={reverse("staff:policy_affordable", args=["digits"]): {}}),
        Start("dan", types={reverse("api-tokens"): {"name": "notebook", "lifetime": "30", "scopes": "read"}}),
        *map(Start, ("otto", "hilde", "root")),
    ]


#: Pages that are always tested.
CHOSEN = {
    "hanna": "consent:study consent:choice consent:withdraw consent:uses",
    "olga": "staff:study staff:run_new staff:ledger",
    "carla": "staff:policy_new",
}


def test_chosen_pages_of_the_german_site_are_not_in_english(marked_german: None) -> None:
    study = study_with_table("digits", title="Reading digits")
    holder_link(holder=study.holders.earliest("pk"), user=factories.user_create("hanna"))
    membership_add(study=study, user=factories.user_create("carla"), role=Role.CHAIR, acting_user=None)
    run_finish(run_start(study, title="First vote", share=0.5, **TABLE_RUN))
    found: dict[str, set[str]] = {}
    for person, names in CHOSEN.items():
        reader = Reader(Start(person), found)
        for name in names.split():
            reader.open(reverse(name, args=["digits"]))
        assert set(names.split()) <= set(reader.seen)
    assert found == {}, "mark it for translation, or add it to DATA if a user wrote it"


@pytest.mark.exhaustive
def test_no_page_of_the_german_site_is_in_english(marked_german: None, monkeypatch, settings) -> None:
    lookups = lookups_recorded(monkeypatch)
    provider = {"provider_id": "sso", "name": "Clinic", "settings": {"server_url": "http://127.0.0.1:9"}}
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [provider | {"client_id": "us", "secret": "x"}]}}
    settings.OIDC_SERVER = "http://127.0.0.1:9"
    study = study_with_everything()
    imports_begin(study)
    found: dict[str, set[str]] = {}
    seen: set[str] = set()
    for start in starts(study):
        reader = Reader(start, found)
        reader.go(*start.paths)
        seen |= set(reader.seen)
    pages = {name for name in addresses(get_resolver().url_patterns) if is_page(name)}
    unseen = " ".join(sorted(pages - seen))
    assert unseen == "", "link to it, or let a reader start there"
    assert found == {}, "mark it for translation, or add it to DATA if a user wrote it"
    assert never_given(lookups) == UNSEEN, "pass it in the view, or let a reader start there"


def test_variables_that_the_walk_never_sees_are_named_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules().values())
    names = {name.split(".")[-1] for names in UNSEEN.values() for name in names.split()}
    assert {name for name in names if not re.search(rf"[\"']{name}[\"']|^    {name}\b", code, re.MULTILINE)} == set()


@pytest.mark.exhaustive
def test_no_mail_in_german_is_in_english(marked_german: None) -> None:
    people_with_mails()
    MailWishes.objects.update(language="de")
    EmailAddress.objects.update(verified=True)
    found = {}
    for mail in Mail.objects.select_related("study", "user").order_by("kind", "pk"):
        with translation.override("de"):  # as on the page that asks for a password
            message = mail_render(mail)
        for line in f"{message.subject}\n{message.body}".splitlines() if message else ():
            if plain := plain_words(line):
                found[mail.kind] = f"{plain} in: {line}"
    assert found == {}


@pytest.mark.exhaustive
def test_no_file_in_german_is_in_english(marked_german: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the contents of PDF files: receipts, letters, paper forms and the report of a run."""
    study = study_with_everything()
    reports: list[Any] = []
    for module in (receipts, report, letters):
        monkeypatch.setattr(module, "tagged_pdf", partial(_kept, reports))
    client = Client()
    client.cookies["django_language"] = "de"
    client.force_login(factories.user_create("hanna"))
    assert client.get(reverse("consent:receipt_pdf", args=["digits", 1])).status_code == 200
    client.force_login(factories.user_create("olga"))
    voted = Run.objects.get(title="First vote").pk
    assert client.get(reverse("staff:ledger_report_pdf", args=["digits", voted])).status_code == 200
    issued = letters.sample_invitation(study)
    issued.invitation.answerer = Answerer.GUARDIAN
    written = [letters.LetterWritten(issued, "de", kind) for kind in ("", *Letter.Kind.values)]
    letters.letters_pdf(study, written, date(2031, 5, 4))
    guardian = Answering(Answerer.GUARDIAN, date(2040, 1, 1))
    forms = [letters.FormWritten("de"), letters.FormWritten("de", "p-1", guardian, issued)]
    letters.paper_forms_pdf(letters.FormsOnPaper(study), forms, date(2031, 5, 4))
    found = {each for words in reports for each in _texts(words) if plain_words(each)}
    assert found == set()


def _kept(message: list[Any], template: Path, words: Any) -> bytes:
    message.append(words)
    return b"%PDF-1.7"


#: Language, pictures and links.
_FOR_MACHINES = ("lang", "qr", "link", "kind", "tag")


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        document = [value for name, value in document.items() if name not in _FOR_MACHINES]
    if isinstance(document, list | tuple):
        for each in document:
            yield from _texts(each)
    elif isinstance(document, str):
        yield document
