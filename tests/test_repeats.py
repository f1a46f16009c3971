"""Contract for requests that are sent twice, in sequence and at the same time, for every address that accepts POST.

An address fails if it has no rule, or if its rule says that an action happens only once but no case shows this.
django-allauth's pages and the site administration are left out.
"""

import json
import re
from collections.abc import Callable
from copy import copy
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.messages import get_messages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.forms import BaseForm
from django.http import HttpResponse
from django.test import Client
from django.urls import resolve, reverse
from django.utils import timezone

from consent.models import DataHolder, Invitation, Study
from consent.promises.questions import KEYS
from consent.services import consent_form_draft_save, consent_withdraw, epsilon_policy_propose
from consent.services.changes import changes_recorded
from consent.services.holders import circumstance_record
from consent.services.invitations import invitations_create
from ipate_web.api.urls import version_1
from ipate_web.repeats import RULES, Repeat
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.ipate_web.api.test_runs import proposal
from tests.pages import run_form_filled
from tests.test_operators_reach import filled_in
from tests.test_roles import TABLE, parts, study  # noqa: F401 – fixtures
from tests.training.test_concurrency import at_once
from training.models import AllianceSite, Run
from training.services.drawings import drawing_last

pytestmark = pytest.mark.django_db

#: Rows that may differ after a repeated request: the session, the record of the request, and when a token was last
#: used.
UNCOUNTED = {"session", "handledrequest", "throttleentry", "permission", "contenttype"}
#: Data to send, or a function that makes it from the study.
Sent = dict[str, Any] | Callable[[Study], dict[str, Any]]
STUDY = {"slug": "newer", "title": "T", "purpose": "P", "controller": "C", "contact": "a@example.org"}
WHY = {"reason": "It is needed."}
PERSON = {"role": "researcher", "username": "dora", "first_name": "D", "last_name": "D", "email": "dora@example.org"}
PEOPLE = {"people-TOTAL_FORMS": 8, "people-INITIAL_FORMS": 0} | {f"people-0-{name}": PERSON[name] for name in PERSON}
HOOK = {"url": "https://93.184.216.34/hook", "events": ["run.failed"]}
BOOSTING = {"iterations": 2, "leaves": 3, "leaf": 1, "learning_rate": 0.1}
BOOSTING = {"student_learner": "boosting"} | {f"student_learner-boosting-{name}": BOOSTING[name] for name in BOOSTING}
FILE = {"name": "new", "kind": "public"}
DECISION = {"choice": "LOW", "weaker": "on", "talked": ""}
MORE = {"en": "# New\nMore words.", "de": "# Neu\nMehr Worte."}


def upload() -> SimpleUploadedFile:
    return SimpleUploadedFile("rows.csv", b"length,width,class\n0.1,0.2,a\n0.5,0.2,b\n")


def person(of: Study) -> dict[str, Any]:
    """Return the person shown on the page."""
    holder = DataHolder.objects.filter(study=of, user=None).earliest("pk")
    return {"pseudonym": holder.pseudonym, "person": str(holder.public_id), **WHY}


def withdrawn(of: Study, **whose: Any) -> dict[str, Any]:
    """Return someone whose records can be erased."""
    found = DataHolder.objects.filter(study=of, **whose or {"user": None}).earliest("pk")
    consent_withdraw(holder=found, acting_user=None, keep=True)
    return {"pseudonym": found.pseudonym, "person": str(found.public_id), **WHY}


def silent(of: Study) -> dict[str, Any]:
    """Return someone who was invited some time ago and has not answered."""
    factories.holder_create(of, "Q-2")
    (new,) = invitations_create(study=of, acting_user=None, pseudonyms=["Q-2"])
    with changes_recorded([new.invitation], acting_user=None):
        Invitation.objects.filter(pk=new.invitation.pk).update(created_at=timezone.now() - timedelta(days=20))
    return {}


def letter(of: Study) -> dict[str, Any]:
    """Let someone answer for a person, and return the letter for them."""
    named = person(of)["pseudonym"]
    circumstance_record(study=of, pseudonym=named, kind="proxy", reason="Asked.", acting_user=None)
    return {"kind": "answerer"}


def policy(of: Study) -> dict[str, Any]:
    carla = factories.user_create("carla")
    epsilon_policy_propose(study=of, acting_user=carla, high=0.5, average=1, low=2, reason="Less.")
    return {"of": {"version": 2}}


def form_draft(of: Study) -> dict[str, Any]:
    consent_form_draft_save(study=of, acting_user=factories.user_create("operator"), texts=MORE)
    return {"renewal": "required"}


def founded(of: Study) -> dict[str, Any]:
    sent = {"name": "New", "sites": "A\nB\nC", "colluding": 1, "public": of.datasets.get(kind="public").pk}
    return {"found": "1", **{f"found-{name}": value for name, value in sent.items()}}


def joint(of: Study) -> dict[str, Any]:
    AllianceSite.objects.update(signature="ab", joined_at=timezone.now())
    sent = {"title": "Joint", "method": "sgd", "mode": "together", "sites": ["A", "B", "C"]}
    return sent | {"public_dataset": of.datasets.get(kind="public").pk}


def run_sent(of: Study) -> dict[str, Any]:
    teachers = {"method": "pate", "teachers": 3, "aggregator": "gnmax", "aggregator-gnmax-sigma": 10}
    return run_form_filled(of, title="Again", confirmed="1", **teachers)


def checked(of: Study) -> dict[str, Any]:
    of.imports.update(state="checked", faults=0)
    return {}


def ended(of: Study) -> dict[str, Any]:
    Run.objects.filter(status="draft").update(status="cancelled")
    return dict(WHY)


def token(of: Study) -> dict[str, Any]:
    made, _secret = ApiToken.objects.create(factories.user_create("researcher"), name="lost")
    return {"of": {"token": made.token_key}}


def papers(of: Study) -> dict[str, Any]:
    rows = f"pseudonym,level,form_version,signed_on,evidence\nQ-1,LOW,1,{timezone.localdate()},a.pdf\n"
    factories.holder_create(of, "Q-1")
    files = {"list.csv": rows.encode(), "a.pdf": b"%PDF-1.7"}
    listed, scan = (SimpleUploadedFile(name, content) for name, content in files.items())
    return {"list": listed, "scans": scan}


CASES: dict[str, tuple[str, Sent]] = {
    "staff_account_invite": ("administrator", {}),
    "staff_account_close": ("administrator", {"act": "close"}),
    "administrator": ("root", {"act": "appoint"}),
    "api-token-revoke": ("researcher", token),
    "staff_account_new": ("administrator", PERSON),
    "account_overview": ("operator", {"language": "de"}),
    "staff:alliance_keys": ("operator", {"drop": "1"}),
    "staff:alliances": ("operator", founded),
    "staff:alliance_act": ("operator", {}),
    "staff:alliance_leave": ("operator", {}),
    "staff:import_new": ("steward", lambda of: {**FILE, "file": upload(), "schema_from": of.datasets.first().pk}),
    "staff:import_store": ("steward", checked),
    "staff:import_drop": ("steward", {}),
    "staff:invitations": ("steward", {"open_places": 2}),
    "staff:invitations_everyone": ("steward", lambda of: factories.holder_create(of, "Q-1") and {}),
    "staff:invitations_remind": ("steward", silent),
    "staff:invitation_revoke": ("steward", {}),
    "staff:joint_run_new": ("operator", joint),
    "staff:letters": ("steward", letter),
    "staff:person": ("steward", lambda of: silent(of) | {"of": {"holder": of.holders.get(pseudonym="Q-2").public_id}}),
    "staff:letterhead": ("operator", {"sender_en": "University"}),
    "staff:link_new": ("steward", person),
    "staff:disposals": ("steward", withdrawn),
    "staff:circumstances": ("steward", lambda of: person(of) | {"kind": "died"}),
    "staff:policy_new": ("committee", {"high": 0.5, "average": 1, "low": 2, "confirmed": "1", **WHY}),
    "staff:policy_approve": ("committee", policy),
    "staff:committee": ("committee", {"conflict": "1", **WHY}),
    "staff:consent_form_new": ("operator", MORE),
    "staff:consent_form_facts": ("operator", {}),
    "staff:consent_form_publish": ("operator", form_draft),
    "staff:consent_form_proposal": ("committee", {}),
    "staff:run_new": ("operator", run_sent),
    "staff:run_edit": ("otto", run_sent),
    "staff:run_withdraw": ("otto", {}),
    "staff:run_approval_undo": ("operator", lambda of: of.runs.filter(status="draft").update(status="planning") and {}),
    "staff:run_approve": ("operator", {"per_cent": "10"}),
    "staff:run_cancel": ("operator", {}),
    "staff:run_student_new": ("operator", BOOSTING),
    "staff:run_student_publish": ("operator", WHY),
    "staff:run_student_withdraw": ("operator", WHY),
    "staff:model_stage": ("operator", {"stage": "archived"}),
    "staff:model_threshold": ("operator", {"sensitivity": "", "class_name": "a", "missed": 3, "false_alarm": 1}),
    "staff:webhook_test": ("operator", {}),
    "staff:webhooks": ("operator", HOOK),
    "staff:webhook_remove": ("operator", {}),
    "staff:list_save": ("researcher", {"page": "runs", "name": "Drafts", "query": "status=draft"}),
    "staff:members": ("operator", {"username": "administrator", "role": "researcher"}),
    "staff:member_remove": ("operator", {}),
    "staff:people_new": ("root", PEOPLE),
    "staff:role_change": ("auditor", {"confirm": "1"}),
    "staff:study_new": ("administrator", STUDY | {"lawful_basis": "consent", "languages": "en", "delta": "0.00001"}),
    "staff:study_edit": ("operator", {"title": "Better"}),
    "staff:study_close": ("operator", lambda of: {**WHY, "erase_after": timezone.localdate(), "title": of.title}),
    "staff:dataset": (
        "operator",
        lambda of: {"provenance": "Us.", "of": {"dataset": of.datasets.get(kind="public").pk}},
    ),
    "staff:dataset_remove": ("steward", ended),
    "staff:encoder_withdraw": ("steward", lambda of: of.encoders.update(artifact="encoders/none.npz") and {**WHY}),
    "staff:head_counts": ("operator", {"draw": "1"}),
    "staff:check_answers": ("operator", lambda of: {"follows": drawing_last(of, "answers")}),
    "api-tokens": ("researcher", {"name": "notebook", "lifetime": "90", "scopes": ["read"]}),
    "consent:study": ("holder", DECISION),
    "consent:decide": ("holder", DECISION),
    "consent:withdraw": ("holder", {"records": "keep"}),
    "consent:later": ("holder", {"days": 7}),
    "consent:contact_way": ("holder", {"way": "letter"}),
    "consent:erase": ("holder", lambda of: withdrawn(of, user__username="holder")),
    "consent:check_answer": ("holder", {"question": KEYS[0], "answer": "0"}),
    "api:alliance-runs": ("operator", joint),
    "api:run-students": ("operator", {"student_learner": "boosting"}),
    "api:runs": ("researcher", proposal),
    "api:study-head-counts": ("operator", lambda of: {"follows": drawing_last(of, "head_counts")}),
    "api:study-imports": (
        "steward",
        lambda of: {**FILE, "file": upload(), "schema": json.dumps(of.datasets.first().schema)},
    ),
    "api:study-import-store": ("steward", checked),
    "api:study-consents": ("steward", papers),
    "api:study-webhook-test": ("operator", {}),
    "api:study-webhooks": ("operator", HOOK),
    "api:model-stage": ("operator", {"stage": "archived"}),
    "api:model-threshold": ("operator", {"sensitivity": 0.9, "class_name": "a"}),
    "api:proposal-decline": ("operator", {}),
    "api:run-approve": ("operator", {"share": 0.1}),
    "api:run-cancel": ("operator", {}),
    "api:run-withdraw": ("otto", {}),
    "api:run-student-publish": ("operator", WHY),
    "api:run-student-withdraw": ("operator", WHY),
    "api:studies": ("administrator", STUDY | {"rehearsal": True}),
}


ELSEWHERE = {
    "staff:joint_run_take api:proposal-take": "sites/test_joint_runs.py",
    "staff:joint_run_without api:run-go-on": "test_alliance_pages.py",
    "staff:import staff:import_columns": "test_import_pages.py",
    "staff:run_result_withdraw api:run-table-withdraw": "test_tables.py",
    "staff:paper_consent staff:paper_list": "as api:study-consents",
    "staff:encoders api:study-encoders": "test_encoders.py",
    "api:study-datasets": "api/test_imports.py",
}
"""Tests with the cases that need more than this study."""


def built(request: pytest.FixtureRequest) -> tuple[Study, dict[str, Any]]:
    """Return the study with a member in every role, and the parts in addresses."""
    return request.getfixturevalue("study"), request.getfixturevalue("parts")


def state() -> dict[str, list[Any]]:
    """Return all rows of all tables except :data:`UNCOUNTED`; for rewritten tables, only the number of rows."""
    models = {model._meta.model_name: model for model in apps.get_models()}
    rows = {name: list(model._default_manager.order_by("pk").values_list()) for name, model in models.items()}
    counted = {name: [len(rows[name])] for name in ("apitoken", "mail", "consentformdraft")}
    return {name: each for name, each in (rows | counted).items() if name not in UNCOUNTED}


class Sender:
    """Someone who sends the same request twice, as a browser or a program does."""

    def __init__(self, name: str, study_of: Study, places: dict[str, Any]) -> None:
        person, sent = CASES[name]
        self.sent = sent(study_of) if callable(sent) else dict(sent)
        of = places | self.sent.pop("of", {})
        self.url = reverse(name, args=[of[each] for each in TABLE[name].of])
        self.client = Client(enforce_csrf_checks=True)
        self.options: dict[str, Any] = {}
        user = factories.user_create(person)
        if name.startswith("api:"):
            _, secret = ApiToken.objects.create(user, name="mine")
            self.options = {"headers": {"Authorization": f"Bearer {secret}", "Idempotency-Key": "one"}}
            if not any(isinstance(each, SimpleUploadedFile) for each in self.sent.values()):
                self.options["content_type"] = "application/json"
            return
        self.client.force_login(user)
        page = self.client.get(self.url.replace("/decide/", "/"))
        if page.status_code != 200:  # a button of another page
            page = self.client.get(reverse("account_overview"))
        elif isinstance(page.context.get("form"), BaseForm):
            shown = filled_in(page.context["form"], {})
            self.sent = {field: value for field, value in shown.items() if value is not False} | self.sent
        for field, value in re.findall(r'<input type="hidden" name="([^"]+)"[^>]*value="([^"]*)"', page.text):
            self.sent.setdefault(field, value)

    def send(self) -> HttpResponse:
        for value in self.sent.values():
            if isinstance(value, SimpleUploadedFile):
                value.seek(0)
        return self.client.post(self.url, self.sent, **self.options)


def said(answer: HttpResponse) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]


def fault(rule: Repeat, first: HttpResponse, second: HttpResponse) -> str:
    """Return what is wrong with the second response; empty if it follows the rule."""
    if first.status_code >= 400:
        return f"nothing was done: {first.status_code} {said(first)}"
    same = first.status_code == second.status_code
    if rule is Repeat.KEY and not (same and first.content == second.content):
        return "not the first answer"
    if rule is Repeat.FOLLOWS and not same:
        return f"{second.status_code}, not {first.status_code}"
    refused = second.status_code >= 400 or (bool(said(second)) and said(second)[-1] not in said(first))
    return "not refused" if rule is Repeat.ONCE and not refused else ""


def test_what_is_sent_twice_is_done_once(request: pytest.FixtureRequest) -> None:
    (of, places), wrong = built(request), {}
    for name in CASES:
        with transaction.atomic():
            sender = Sender(name, of, places)
            before, first = state(), sender.send()
            between, second = state(), sender.send()
            after = state()
            wrong[name] = [fault(RULES[name], first, second), *(each for each in after if after[each] != between[each])]
            if RULES[name] is not Repeat.FOLLOWS and before == between:
                wrong[name].append("the first changed nothing")
            transaction.set_rollback(True)
    assert {name: faults for name, faults in wrong.items() if any(faults)} == {}


def rows_of(name: str) -> Any:
    first = name in ("api:study-head-counts", "staff:invitations", "staff:run_approve")
    return pytest.param(name, marks=[] if first else [pytest.mark.exhaustive])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", [rows_of(name) for name in CASES])
def test_what_is_sent_twice_at_once_is_done_once(request: pytest.FixtureRequest, name: str) -> None:
    sender, counts = Sender(name, *built(request)), lambda: {table: len(rows) for table, rows in state().items()}
    with transaction.atomic():
        assert sender.send().status_code < 400
        expected = counts()
        transaction.set_rollback(True)
    answers = at_once([copy(sender).send, copy(sender).send])
    assert all(isinstance(each, HttpResponse) and each.status_code < 500 for each in answers), answers
    assert counts() == expected


def test_every_address_that_takes_post_has_a_rule(request: pytest.FixtureRequest) -> None:
    """A view accepts POST if it accepts it anonymously or redirects to the sign-in page."""
    taken, client, (_, places) = set(), Client(raise_request_exception=False), built(request)
    for name, row in TABLE.items():
        url = reverse(name, args=[places[each] for each in row.of])
        view = resolve(url).func
        of_allauth = name.startswith(("account_", "mfa_", "socialaccount_", "openid_")) and name not in RULES
        if (not of_allauth and hasattr(getattr(view, "cls", view), "post")) or (
            not hasattr(view, "cls") and not of_allauth and client.post(url).status_code != 405
        ):
            taken.add(name)
    assert taken == set(RULES)
    done_once = {name for name, rule in RULES.items() if rule in (Repeat.KEY, Repeat.FOLLOWS, Repeat.ONCE)}
    assert {*CASES, *" ".join(ELSEWHERE).split()} == done_once


def test_the_api_describes_the_key_where_it_is_heard(client: Client) -> None:
    def blanked(path: str) -> str:
        return re.sub(r"[{<].*?[}>]", "*", path.strip("/"))

    paths = client.get(reverse("schema"), headers={"Accept": "application/json"}).json()["paths"]
    posts = {path: json.dumps(each["post"]) for path, each in paths.items() if "post" in each}
    keyed = {blanked(path) for path, post in posts.items() if "Idempotency-Key" in post and '"422"' in post}
    names = [name.removeprefix("api:") for name, rule in RULES.items() if rule is Repeat.KEY and "api:" in name]
    assert keyed == {blanked(f"api/v1/{each.pattern}") for each in version_1 if each.name in names}
