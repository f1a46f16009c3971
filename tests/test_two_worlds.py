"""One person's participation changes nothing that decision-makers see: all responses are the same, byte for byte.

Two studies that differ by one person have the same history, in which this person consents, changes their level,
withdraws, is erased, gets a guardian, a new link or an account, dies, and is looked up, while noise is forced so that
both release the same (:mod:`tests.accounting.forced`). Then everybody who decides something opens every address of the
site and sends every form. Addresses are discovered, so that new ones are compared as well. These histories run at
night; the most informative pages are always compared after a short one.
"""

import re
import shutil
import time
import types
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.core.cache import cache
from django.core.files.storage import storages
from django.core.management.color import no_style
from django.db import connection, transaction
from django.http import HttpResponseBase
from django.test import Client, RequestFactory
from django.utils import timezone

from accounting.models import Release, ShareRecord
from common.append_only import Chained
from consent import permissions
from consent.models import DataHolder, Mail, Role, WebhookDelivery, WebhookEndpoint
from consent.permissions import ROLE_PERMISSIONS
from consent.selectors import role_changes_waiting
from consent.services import consent_form_draft_save, consent_withdraw, epsilon_policy_propose, membership_add, webhooks
from consent.services import studies as studies_services
from consent.services.accounts import account_create, administrator_set
from consent.services.holders import circumstance_record, holder_level_access
from consent.services.invitations import account_take, invitations_create, link_reissue
from consent.services.mail import mail_render
from consent.services.webhooks import EVENTS, endpoint_test
from ipate_web.accounts import adapters
from ipate_web.staff import ledger
from ipate_web.staff import studies as studies_views
from ipate_web.staff.settings import PARTS
from ipate_web.tokens.models import ApiToken
from learning.encoders import ImageInput
from tests import factories
from tests.accounting.forced import FIRST_ID, ME, OTHERS, Step, World, world_play
from tests.everything import alliances_make
from tests.learning.encoders.networks import bright_network
from tests.test_operators_reach import filled_in
from tests.test_roles import TABLE, addresses_of
from training.engine import asking
from training.methods import pate, pate_teachers
from training.models import Alliance, Encoding, Run
from training.services import drawings, encoders, students
from training.services.encoders import encoder_register
from training.services.erasures import records_erase

pytestmark = pytest.mark.django_db

#: People who decide about runs or policies, or who create the accounts of people who do. Not listed: stewards, who have
#: to see people; superusers, who have every role, including that of steward; auditors, who decide nothing; and members
#: of the committee, because the chair sees everything that they see.
DECIDERS = (Role.OPERATOR.value, Role.CHAIR.value, Role.RESEARCHER.value, "administrator")
#: Minimum number of pages and responses that the comparison of a whole history must cover.
FLOOR = 800
#: Always compared: pages and responses about people, releases, runs and policies.
SHARPEST = (
    "home staff:study staff:study_edit staff:ledger staff:ledger_check staff:head_counts staff:run staff:run_labels "
    "staff:run_new staff:policy_approve staff:committee staff:recruitment staff:study_budgets api:study-budget "
    "api:study api:runs api:run api:run-costs api:run-labels"
)
#: Always compared in a study with an encoder: what could reveal how its private records were encoded.
OF_ENCODERS = ("staff:encoders", "api:study-encoders", "staff:datasets", "staff:changes")
#: Addresses that are not compared, with the reason.
LEFT_OUT = {
    "mfa_activate_totp": "shows a new random secret",
    "health": "shows how full the disks are at the moment",
    "staff:ledger_report_pdf": "staff:ledger_report, typeset, with the run's random number in it",
}
#: Parameters of addresses, in addition to none.
QUERIES = {
    "staff:ledger": ["?page=2", "?kind=labels"],
    "staff:runs": ["?status=finished", "?page=2"],
    "staff:study_budgets": ["?bars=1"],
    **{page: ["?format=csv"] for page in ("api:study-budget", "api:run-labels", "api:run-table")},
    **{page: ["?runs={runs}"] for page in ("staff:run_compare", "api:run-comparison")},
    "staff:consent_form_as_read": ["?proposal=1"],
}
#: Values of an address's form, in addition to those that every form is sent with.
FORMS = {"staff:head_counts": [{"draw": "1"}]}
#: Only the one person ever decides.
ALONE = "-" * ME
MY_ADDRESS, MY_PSEUDONYM = "me@example.org", f"p-{ME:02}"
NOBODY = "0" * 8 + "-0000-4000-8000-" + "0" * 12

Answer = tuple[int, bytes]
Plant = Callable[[pytest.MonkeyPatch], None]


@contextmanager
def undone() -> Iterator[None]:
    """Discard everything that happens in the database or journal."""
    kept = _journal()
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]  # tries to sign in are recorded in transactions of their own
    with block:
        yield
        transaction.set_rollback(True)
    if _journal() != kept:
        shutil.rmtree(settings.JOURNAL_DIR)
        for file, content in kept.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def _journal() -> dict[Path, bytes]:
    """Return the journal's files with their content."""
    return {file: file.read_bytes() for file in Path(settings.JOURNAL_DIR).rglob("*") if file.is_file()}


class Clock:
    """A time that does not advance within a step."""

    moment = datetime(2026, 3, 2, 9, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


def clock_set(patch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Let everything use ``clock``, including defaults of fields."""
    for model in apps.get_models():
        for each in model._meta.concrete_fields:
            if each.default is timezone.now:
                patch.setattr(each, "default", clock.now)
                patch.setitem(each.__dict__, "_get_default", clock.now)
    patch.setattr(timezone, "now", clock.now)


def numbers_set(patch: pytest.MonkeyPatch) -> None:
    """Give objects that staff create the same ids in both worlds: runs, alliances, webhooks, drawings, encoders' files.

    A model's file contains its run's id, the time of writing, and memory addresses of its parts.
    """

    def numbers(kind: int) -> Callable[[], uuid.UUID]:
        drawn = count(kind * 10**30)
        return lambda: uuid.UUID(int=next(drawn), version=4)

    for kind, model, name in ((1, Run, "id"), (4, Alliance, "key")):
        patch.setitem(model._meta.get_field(name).__dict__, "_get_default", numbers(kind))
    patch.setattr(webhooks, "uuid4", numbers(2))
    patch.setattr(drawings, "uuid4", numbers(3))
    patch.setattr(encoders, "uuid", types.SimpleNamespace(uuid4=numbers(5)))
    patch.setattr(zipfile, "time", types.SimpleNamespace(time=time.time, localtime=lambda _now: time.gmtime(10**9)))
    from skops.io._utils import SaveContext

    patch.setattr(SaveContext, "memoize", _place)
    for module in (students, encoders):
        patch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: 0.0))


def _place(context: Any, obj: Any) -> int:
    """Return an object's position among those saved in a file, instead of its memory address."""
    context.memo.setdefault(id(obj), obj)
    return list(context.memo).index(id(obj))


def sequences_begin() -> None:
    """Let the database number new rows in the same way in both worlds; PostgreSQL's sequences are not rolled back."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for statement in connection.ops.sequence_reset_by_name_sql(
                no_style(), connection.introspection.sequence_list()
            ):
                cursor.execute(statement.replace(", 1, false)", ", 10000, false)"))


class Browser:
    """A decision-maker's browser, and their program with a token; nothing that a response sets is kept."""

    def __init__(self, user: User, secret: str) -> None:
        self._client = Client()
        self._client.force_login(user)
        self._session = self._client.session.session_key
        self._token = {"Authorization": f"Bearer {secret}"}

    def ask(self, name: str, method: str, url: str, data: Any = None) -> HttpResponseBase:
        """Return the response of the address called ``name``; throttling is reset before each request."""
        cache.clear()
        self._client.cookies.clear()
        if name.startswith("api:"):
            kind = {"content_type": "application/json"} if method == "post" else {}
            return getattr(self._client, method)(url, data, headers=self._token, **kind)
        self._client.cookies["sessionid"] = self._session
        return getattr(self._client, method)(url, data)


@dataclass(eq=False)
class Seen(World):
    """A world whose decision-makers look at everything that they can open."""

    clock: Clock = field(default_factory=Clock)
    answers: list[dict[str, Answer]] = field(default_factory=list)
    random: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        factories.members_add(self.study, **{role: role for role in (*DECIDERS[:-1], "steward", "auditor")})
        administrator_set(user=factories.user_create("administrator"), appointed=True, acting_user=None)
        self.steward = factories.user_create("steward")
        self.secrets: dict[str, str] = {}
        for name in DECIDERS:
            _token, self.secrets[name] = ApiToken.objects.create(factories.user_create(name), name="mine")
        membership_add(study=self.study, user=self._new_account("waiting"), role=Role.RESEARCHER, acting_user=self.olga)
        factories.form_propose(self.study, {"en": "More is asked."})
        consent_form_draft_save(study=self.study, acting_user=self.olga, texts={"en": "# New\nWords."})
        chair = factories.user_create("chair")
        epsilon_policy_propose(study=self.study, acting_user=chair, high=0.5, average=1, low=2, reason="Less.")
        hook = {"url": "https://hooks.example.org/", "events": list(EVENTS), "created_by": self.olga}
        endpoint_test(endpoint=WebhookEndpoint.objects.create(study=self.study, **hook))
        self.hub, self.site = alliances_make(self.study)

    # --- Actions ---

    def _look(self) -> None:
        self.clock.moment += timedelta(hours=1)

    @property
    def me(self) -> DataHolder:
        return DataHolder.objects.get(pk=FIRST_ID + ME)

    def i_am_erased(self) -> None:
        if self.with_me:
            consent_withdraw(holder=self.me, acting_user=None)
            records_erase(self.study.pk)

    def _about_me(self, act: Callable[..., object], **fields: Any) -> None:
        """Let the steward do something about the one person, if they exist."""
        if self.with_me:
            act(study=self.study, acting_user=self.steward, **fields)

    def answers_for_me(self, kind: str, until: date | None = None) -> None:
        self._about_me(circumstance_record, pseudonym=MY_PSEUDONYM, kind=kind, until=until, reason="They said so.")

    def i_am_invited(self) -> None:
        self._about_me(invitations_create, pseudonyms=[MY_PSEUDONYM])

    def i_lose_my_link(self) -> None:
        """Look the person up, who calls because of a lost letter, and send another link."""
        for act in (holder_level_access, link_reissue):
            self._about_me(act, pseudonym=MY_PSEUDONYM, reason="Lost the letter.")

    def i_make_an_account(self) -> None:
        if self.with_me:
            request = RequestFactory().post("/")
            account_take(holder=self.me, email=MY_ADDRESS, password=factories.PASSWORD, request=request)

    def _new_account(self, name: str) -> User:
        email = f"{name}@example.org"
        return account_create(username=name, first_name="N.", last_name="Ew", email=email, acting_user=None)

    def somebody_joins_the_staff(self) -> None:
        user = self._new_account("newcomer")
        membership_add(study=self.study, user=user, role=Role.RESEARCHER, acting_user=None)

    def register_encoder(self) -> None:
        """Register an encoder that fails only on the one person's records."""
        takes = ImageInput(8, (0.0,) * 3, (1.0,) * 3).to_json()
        stated: dict[str, Any] = {"name": "bright", "licence": "MIT", "source": "made by a test", "stated": True}
        encoder_register(study=self.study, acting_user=self.steward, content=bright_network(), takes=takes, **stated)

    def encode(self) -> None:
        """Encode every dataset."""
        for encoding in Encoding.objects.filter(dataset__study=self.study).order_by("pk"):
            encoders.encoding_work(encoding.pk)

    def my_encoding_fails(self) -> None:
        """Make the encoder fail on a whole dataset instead of on one record."""
        if self.with_me:
            mine = Encoding.objects.filter(dataset__study=self.study, dataset__kind="private")
            assert mine.update(state="failed", progress=0.3, message="A record is too bright.") == 1

    def approve_encoded(self, share: float) -> None:
        """Approve steps that learn from the encoder's vectors."""
        chosen = {"encoder": self.study.encoders.get(name="bright").digest, "representation": "encoder"}
        self.approve(share, {"steps": chosen | {"representation_parameters": {"components": 4}}})

    # --- Views of decision-makers ---

    def look_with(self, plant: Plant, page: str) -> None:
        """Look at one page while a leak is planted."""
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            self.look(page)

    def look(self, *only: str) -> None:
        """Record what decision-makers get: pages (or ``only`` these), responses, mails, messages to programs."""
        found: dict[str, Answer] = {}
        self.random = self._random()
        looked_at = [each for each in addresses_of(self._parts()) if each[0] in (only or set(TABLE) - set(LEFT_OUT))]
        edited = [each for each in looked_at if each[0] == "staff:study_edit"]
        looked_at += [(name, f"{url}{part.name}/") for name, url in edited for part in PARTS]
        for person in DECIDERS:
            user = factories.user_create(person)
            browser = Browser(user, self.secrets[person])
            for name, url in looked_at:
                form = None
                for query in ("", *QUERIES.get(name, ())):
                    with undone():
                        answer = browser.ask(name, "get", url + query.format(runs=",".join(self._runs())))
                        found[f"{person}: get {url}{query}"] = self._plain(answer)
                    form = form or (getattr(answer, "context", None) or {}).get("form")
                for number, sent in enumerate([*self._payloads(form), *FORMS.get(name, ())]):
                    with undone():
                        answer = browser.ask(name, "post", url, sent)
                        found[f"{person}: post {number} {url}"] = self._plain(answer)
                    if answer.status_code in (403, 404, 405):  # for any request
                        break
            mails = [mail_render(mail) for mail in Mail.objects.filter(user=user).order_by("due_at", "pk")]
            text = "\n".join(f"{mail.subject}\n{mail.body}" for mail in mails if mail is not None)
            found[f"{person}: mails"] = len(mails), self._names_for_random(text.encode())
        for place, delivery in enumerate(WebhookDelivery.objects.order_by("due_at", "event", "body")):
            found[f"webhook {place}"] = 0, self._names_for_random(delivery.body.encode())
        named = {request: self._names_for_random(request.encode()).decode() for request in found}
        self.answers.append({named[request]: text for request, text in found.items()})

    def _runs(self) -> list[str]:
        return [str(pk) for pk in self.study.runs.order_by("created_at", "title").values_list("pk", flat=True)][:2]

    def _parts(self) -> dict[str, list[Any]]:
        """Return all parts of the study that addresses can be about."""
        runs = self._runs()
        return {
            **{"hub": [self.hub.pk], "site": [self.site.pk], "key": [self.hub.key], "act": ["sign"]},
            **{"slug": [self.study.slug], "version": [1, 2], "proposal_of_hub": ["ab"], "proposal": [1]},
            "membership": list(self.study.memberships.order_by("pk").values_list("pk", flat=True))[-2:],
            "dataset": list(self.study.datasets.order_by("pk").values_list("pk", flat=True)),
            "run": runs or [NOBODY],
            "draft": runs[-1:] or [NOBODY],
            **{"format": ["csv", "json"], "path": ["index.html"], "impact": ["md", "pdf"], "language": ["en"]},
            "tab": ["cost", "releases", "timeline", "card"],
            "role_change": [role_changes_waiting(self.study)[0].sequence],
            **{"token": ["unknown"], "encoder": [1], "import": [NOBODY], "invitation": [1], "holder": [NOBODY]},
            "waiting": list(User.objects.filter(username__in=("waiting", "newcomer")).values_list("pk", flat=True)),
            "webhook": list(self.study.webhooks.values_list("pk", flat=True)),
        }

    def _payloads(self, form: Any) -> Iterator[dict[str, Any]]:
        """Yield what a browser would send (nothing without a form), and what a curious person would send."""
        rich = {
            **{"delta": "2e-6", "purpose": "Something else.", "controller": "Another person", "confirmed": "1"},
            **{"publish": "1", "enter": "1", "high": "0.4", "average": "0.6", "low": "0.8", "reason": "Because."},
            **{"username": MY_ADDRESS, "email": MY_ADDRESS, "pseudonym": MY_PSEUDONYM, "role": "researcher"},
            **{"share": "0.01", "title": "Another", "text": "A remark.", "name": "more", "first_name": "A."},
            **{"last_name": "B.", "decision": "required", "stage": "archived", "revision": "0"},
            **{"study": self.study.slug, "method": "neighbours", "erase_after": "2031-01-01", "login": MY_ADDRESS},
        }
        if form is None or not hasattr(form, "fields"):
            yield {}
        else:
            shown = {name: value for name, value in filled_in(form, {}).items() if value not in (None, "")}
            yield shown
            yield shown | {name: value for name, value in rich.items() if name in form.fields or name in ("publish",)}
        yield rich

    def _plain(self, response: HttpResponseBase) -> Answer:
        """Return status, headers, messages and content, without values that are random in each response."""
        content = b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined]
        kept = {name: value for name, value in response.headers.items() if name not in ("Expires", "Set-Cookie")}
        request = getattr(response, "wsgi_request", None)
        entries = [str(message) for message in get_messages(request)] if hasattr(request, "_messages") else []
        return response.status_code, self._names_for_random(f"{sorted(kept.items())}\n{entries}\n".encode() + content)

    def _names_for_random(self, content: bytes) -> bytes:
        """Replace random values in ``content`` by names: ids of runs, hashes of rows with salted digests, tokens."""
        for random, name in self.random.items():
            content = content.replace(random.encode(), name.encode())
        return re.sub(rb'name="csrfmiddlewaretoken" value="\w+"|\bipate_[0-9a-f]+', b"(random)", content)

    def _random(self) -> dict[str, str]:
        """Return names for values that were drawn at random before the look, including ids of accounts."""
        found = {}
        for model in (Release, ShareRecord):
            for row in model.chain(self.study.pk):
                found[row.hash] = f"({model.__name__} {row.sequence})"
        for pk, name in User.objects.filter(pk__gte=10**9).exclude(username=MY_ADDRESS).values_list("pk", "username"):
            found[str(pk)] = f"({name})"
        return found


def both(history: list[Step], plant: Plant | None = None, **fields: Any) -> list[Seen]:
    """Return the history with the person and without."""
    worlds = []
    for with_me in (True, False):
        clock = Clock()
        for folder in (settings.JOURNAL_DIR, Path(storages["private"].path("runs"))):  # type: ignore[attr-defined]
            shutil.rmtree(folder, ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            clock_set(patch, clock)
            numbers_set(patch)
            sequences_begin()
            if plant is not None:
                plant(patch)
            worlds.append(world_play(history, with_me=with_me, chunks=2, kind=Seen, clock=clock, **fields))
    return worlds


def differences(ours: Seen, theirs: Seen) -> list[str]:
    """Return differences in what a decision-maker gets in the two worlds."""
    found = []
    for place, (mine, other) in enumerate(zip(ours.answers, theirs.answers, strict=True)):
        for request in mine.keys() | other.keys():
            if mine.get(request) != other.get(request):
                found.append(f"look {place}: {request}\n{_first_difference(mine.get(request), other.get(request))}")
    return sorted(found)


def _first_difference(mine: Answer | None, other: Answer | None) -> str:
    if mine is None or other is None:
        return "  in one world alone"
    lines = zip(mine[1].split(b"\n"), other[1].split(b"\n"), strict=False)
    place = next(((one, two) for one, two in lines if one != two), (mine[1][-200:], other[1][-200:]))
    return "\n".join([f"  {mine[0]} and {other[0]}", *(f"  {line.strip()[:600]!r}" for line in place)])


ASKING: tuple[float, dict[str, Any]] = (0.3, {"choices": {}, "title": "Everybody"})

HISTORIES: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "guardian, new link, answers, a kept promise, levels, withdrawal, erasure": (
        [
            *(("answers_for_me", "guardian", date(2030, 1, 1)), ("i_lose_my_link",)),
            *(("i_give", "LOW"), ("answers_for_me", "person")),
            *(("i_answer", 0b1111, 0b0101), ("i_give", "HIGH"), ("policy", 2.0, 4.0, 6.0), ("i_keep",)),
            *(("approve", *ASKING), ("open",), ("vote",), ("i_withdraw",), ("finish",), ("draw_counts",)),
            *(("i_give", "LOW"), ("approve", 0.2, {"table": {"column": "class"}}), ("open",), ("finish",)),
            *(("i_am_erased",), ("look",)),
        ],
        {},
    ),
    "a vote with drawings in its middle, a run that waits for it, and a death": (
        [
            *(("i_answer", 0b1111, 0b0101), ("i_give", "LOW"), ("approve", 0.3, {"title": "Teachers"})),
            *(("approve", 0.2, ASKING[1]), ("open",), ("vote",), ("draw_counts",), ("count_answers",), ("vote",)),
            *(("finish",), ("forget",), ("open",), ("answers_for_me", "died"), ("finish",), ("look",)),
        ],
        {},
    ),
    "an encoder that fails on the one's records": (
        [
            *(("register_encoder",), ("encode",), ("i_give", "LOW"), ("approve_encoded", 0.3), ("open",), ("vote",)),
            *(("draw_counts",), ("i_withdraw",), ("finish",), ("i_give", "HIGH"), ("i_am_erased",), ("look",)),
        ],
        {"pictures": True},
    ),
    "an account of the only holder": (
        [("i_withdraw",), ("i_am_invited",), ("i_make_an_account",), ("somebody_joins_the_staff",), ("look",)],
        {"levels": ALONE},
    ),
}


def compare(history: list[Step], **fields: Any) -> int:
    """Check that decision-makers get the same in both worlds; return the number of comparisons in each look."""
    ours, theirs = both(history, **fields)
    found = differences(ours, theirs)
    assert not found, "\n".join([f"{len(found)} differences", *found[:20]])
    return min(map(len, ours.answers))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HISTORIES)
def test_deciders_see_the_same_with_one_person_and_without(name: str) -> None:
    history, fields = HISTORIES[name]
    assert compare(history, **fields) > FLOOR


def test_deciders_see_the_same_after_answers_a_release_and_a_withdrawal() -> None:
    answers: list[Step] = [("i_answer", 0b1111, 0b0101), ("i_give", "HIGH")]
    asked: list[Step] = [("approve", *ASKING), ("open",), ("vote",)]
    pages = SHARPEST.split()
    assert compare([*answers, *asked, ("i_withdraw",), ("vote",), ("look", *pages)]) > 10 * len(pages)


def _a_chain_of_people_is_public(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(permissions, "PUBLIC_CHAINS", permissions.PUBLIC_CHAINS | {"consent.circumstance"})


def _everybody_sees_faults(patch: pytest.MonkeyPatch) -> None:
    """Change the last row of each chain, as if someone had tampered with it."""
    patch.setattr(ledger, "sees_people", lambda user, study: True)
    patch.setattr(Chained, "chain_faults", classmethod(lambda cls, study, after: [str(cls.head(study).sequence)]))


def _decisions_freeze_a_study(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(studies_services, "is_study_fixed", lambda study: study.consent_events.exists())


def _all_staff_see_invitations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(studies_views, "SEES_PEOPLE", "consent.view_dashboard")


def _accounts_are_numbered_in_turn(patch: pytest.MonkeyPatch) -> None:
    numbers = count(1)
    patch.setattr(adapters, "_SMALLEST", 0)
    patch.setattr(adapters, "secrets", types.SimpleNamespace(randbelow=lambda _below: next(numbers)))


def _the_committee_reads_who_answers(patch: pytest.MonkeyPatch) -> None:
    may = ROLE_PERMISSIONS[Role.CHAIR] | {"consent.view_circumstance"}
    patch.setitem(ROLE_PERMISSIONS, Role.CHAIR, may)


#: Leaks planted for one look, and the page that reveals each.
LEAKS: list[tuple[Plant, str]] = [
    (_a_chain_of_people_is_public, "staff:ledger_check"),
    (_everybody_sees_faults, "staff:ledger_check"),
    (_decisions_freeze_a_study, "staff:study_edit"),
    (_all_staff_see_invitations, "staff:study"),
    (_the_committee_reads_who_answers, "staff:circumstances"),
]


def test_planted_leaks_are_found() -> None:
    looks = [step for plant, page in LEAKS for step in (("look", page), ("look_with", plant, page))]
    history: list[Step] = [("answers_for_me", "guardian", date(2030, 1, 1)), ("i_am_invited",), *looks]
    ours, theirs = both(history, levels=ALONE)
    seen = [mine != other for mine, other in zip(ours.answers, theirs.answers, strict=True)]
    whole, planted = seen[::2], seen[1::2]
    assert not any(whole)
    assert [page for (_, page), found in zip(LEAKS, planted, strict=True) if not found] == [], "a leak was missed"


def _everybody_sees_private_encodings(patch: pytest.MonkeyPatch) -> None:
    may, stewards = User.has_perm, "training.import_dataset"
    patch.setattr(User, "has_perm", lambda user, name, on=None: name == stewards or may(user, name, on))


@pytest.mark.exhaustive
def test_nobody_who_decides_sees_that_the_encoder_fails_on_a_record() -> None:
    looks: list[Step] = [("look", *OF_ENCODERS), ("look_with", _everybody_sees_private_encodings, OF_ENCODERS[0])]
    ours, theirs = both([("register_encoder",), ("my_encoding_fails",), *looks], levels=ALONE, pictures=True)
    found = differences(ours, theirs)
    assert not [each for each in found if not each.startswith("look 1")], "\n".join(found)
    assert found, "a leak was missed"


def _a_run_begins_beside_another(patch: pytest.MonkeyPatch) -> None:
    """Wait only for votes that have begun, not for teachers being retrained because someone has left."""
    for module in (asking, pate_teachers, pate):
        patch.setattr(module, "spending_may_begin", lambda run: not run.study.runs.filter(status="asking").exists())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("plant", "history", "page", "levels"),
    [
        (
            _accounts_are_numbered_in_turn,
            [("i_am_invited",), ("i_make_an_account",), ("somebody_joins_the_staff",)],
            "staff_account_close",
            ALONE,
        ),
        (
            _a_run_begins_beside_another,
            [("approve", 0.3, {}), ("work", 2), ("i_withdraw",), ("approve", *ASKING), ("work",)],
            "staff:ledger",
            OTHERS,
        ),
    ],
)
def test_a_leak_that_is_planted_before_anything_happens_is_found(plant, history, page, levels) -> None:
    whole, planted = (
        differences(*both([*history, ("look", page)], plant=each, levels=levels)) for each in (None, plant)
    )
    assert whole == []
    assert planted, "the comparison misses it"
