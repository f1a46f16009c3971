"""An operator can neither take nor assign the roles of those who supervise a study, nor give themself any role.

Every page, API call and admin form is tried as an operator who may also do everything in Django's admin without being a
superuser, and as one who administers the installation, and every command as a plain operator. Addresses are discovered,
so that new ones are tried as well.
"""

import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command, get_commands
from django.db import connection, transaction
from django.db.models import Q
from django.forms import BaseForm
from django.template.base import NodeList
from django.test import Client
from django.urls import URLPattern, reverse
from django.utils import timezone

from consent import services
from consent.models import (
    Administrator,
    EpsilonPolicy,
    EpsilonPolicyApproval,
    Mail,
    Membership,
    Role,
    Study,
    WebhookEndpoint,
)
from consent.permissions import ROLE_PERMISSIONS, study_permissions
from consent.selectors import role_changes_waiting
from consent.services.accounts import account_create, administrator_set
from consent.services.invitations import invitations_create
from ipate_web.tokens.models import ApiToken
from tests import factories
from tests.everything import alliances_make
from tests.snapshots import built_once
from tests.test_roles import addresses_of
from tests.training.runs import TABLE_RUN, run_draft, study_with_table
from training.models import Dataset, Run

pytestmark = pytest.mark.django_db

OVERSIGHT = (Role.COMMITTEE, Role.CHAIR, Role.AUDITOR)
#: Roles that someone tries to get, and one for a friend.
TRIED = ((Role.STEWARD, Role.OPERATOR), (Role.AUDITOR, Role.CHAIR))
OVERSIGHT_PERMISSIONS = set().union(*map(ROLE_PERMISSIONS.get, OVERSIGHT)) - ROLE_PERMISSIONS["operator"]
ACTORS = ("otto", "deputy", "ada")
#: The deputy may do everything that Otto may do.
each_actor = pytest.mark.parametrize("name", ACTORS[1:])
#: Addresses of the admin that only show or redirect, with their own arguments.
ADMIN_SHOWS = {"view_on_site", "app_list"}

#: The project's commands, each with the arguments that an operator might use, or with the reason why it is not called
#: here. People at the command line administer the installation, so commands must not mistake them for an operator.
COMMANDS: dict[str, list[str] | str] = {
    "demo": "builds its own study with its own people",
    "demo_step": "takes a step of the demonstration of sites, in installations of its own",
    "up": "starts the site",
    "backup": "copies everything, and changes nothing",
    "makemigrations": ["--check", "--dry-run"],
    "migrate": [],
    "restore": "puts everything back to what it was, roles included",
    "rotate_keys": "encrypts anew what is there, and grants nothing",
    "restore_drill": "restores elsewhere, and throws it away",
    "export_ledger": ["table"],
    "settle_restore": ["table", "--user", "otto"],
    "backup_key": ["{folder}/identity"],
    "checkpoint_key": ["{folder}/key"],
    "checkpoint_sign": [],
    "verify_checkpoints": [],
    "erase_due": [],
    "verify_receipt": ["0" * 64],
    "verify_ledger": [],
    "review_accounts": ["--reviewed", "--user", "otto"],
    "verify_consents": ["table", "{folder}/list.csv"],
    "run_plan": ["0" * 8 + "-0000-4000-8000-" + "0" * 12],
    "student_train": ["0" * 8 + "-0000-4000-8000-" + "0" * 12, "--student", "boosting"],
    "invite": ["table", "--open", "1"],
    "dataset_schema": [],
    "import_dataset": ["table", "{folder}/rows.csv", "--kind=public", "--name=new", "--schema={folder}/no.json"],
    "import_paper_consents": ["table", "{folder}/list.csv", "--scans", "{folder}", "--by", "otto"],
}


@pytest.fixture(autouse=True)
def _pages_without_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the text of pages, which decides nothing."""
    monkeypatch.setattr(NodeList, "render", lambda nodes, context: "")


@pytest.fixture
def study() -> Study:
    """Return a study with every role, a pending policy, and drafts of both operators."""
    study = _staffed()
    # Not part of the study that is built once, because Django's permissions have other ids after a live server.
    User.objects.get(username="deputy").user_permissions.set(Permission.objects.all())
    return study


@built_once
def _staffed() -> Study:
    study = study_with_table()
    run_draft(study, **TABLE_RUN)  # otto's own, which makes him an operator
    for name, role in (("clara", "chair"), ("conrad", "committee"), ("carla", "committee"), ("aud", "auditor")):
        services.membership_add(study=study, user=factories.user_create(name), role=role, acting_user=None)
    factories.user_create("friend")
    factories.user_create("root", is_superuser=True, is_staff=True)
    deputy = factories.user_create("deputy", is_staff=True)
    services.membership_add(study=study, user=deputy, role=Role.OPERATOR, acting_user=None)
    ada = factories.user_create("ada")
    services.membership_add(study=study, user=ada, role=Role.OPERATOR, acting_user=None)
    administrator_set(user=ada, appointed=True, acting_user=None)
    for actor in (ada, deputy):
        for user in (actor, factories.user_create("friend")):
            services.membership_add(study=study, user=user, role=Role.STEWARD, acting_user=actor)
    services.membership_remove(membership=study.memberships.get(user__username="aud"), acting_user=deputy)
    account_create(username="waiting", first_name="W.", last_name="Ait", email="w@example.org", acting_user=None)
    EmailAddress.objects.create(user=User.objects.get(username="conrad"), email="conrad@example.org", verified=True)
    User.objects.exclude(username="waiting").update(last_login=timezone.now())
    draft = run_draft(study, **TABLE_RUN)
    Run.objects.filter(pk=draft.pk).update(created_by=deputy)
    values = {"high": 0.5, "average": 1, "low": 2, "reason": "Less."}
    services.epsilon_policy_propose(study=study, acting_user=factories.user_create("carla"), **values)
    factories.form_propose(study, {"en": "More is asked."})
    invitations_create(study=study, acting_user=None, open_places=1)
    hook = {"url": "https://hooks.example.org/", "events": ["run.failed"], "created_by": deputy}
    WebhookEndpoint.objects.create(study=study, **hook)
    ApiToken.objects.create(factories.user_create("conrad"), name="conrad's")
    return study


def state(actor: User) -> dict[str, Any]:
    """Return state that must not change when ``actor`` acts."""
    actor = User.objects.get(pk=actor.pk)
    study = Study.objects.get(slug="table")
    others = User.objects.exclude(pk=actor.pk).order_by("pk")
    return {
        "roles": sorted(
            Membership.objects.exclude(user=actor, role=Role.OPERATOR)  # people may give up their own roles
            .filter(study=study)
            .values_list("user", "role")
        ),
        "accounts": list(others.values_list("pk", "username", "password", "email")),
        # An administrator closes accounts, except those of people who oversee a study that they operate.
        "open": sorted(
            User.objects.filter(is_active=True)
            .filter(Q(is_superuser=True) | Q(memberships__role__in=OVERSIGHT))
            .values_list("pk", flat=True)
        ),
        "superusers": list(User.objects.filter(is_superuser=True).values_list("pk", flat=True)),
        "staff": sorted(User.objects.filter(is_staff=True).values_list("pk", flat=True)),
        "addresses": sorted(EmailAddress.objects.values_list("user", "email", "verified").exclude(user=actor)),
        "administrators": sorted(Administrator.objects.values_list("user", flat=True)),
        "passwords by mail": list(
            Mail.objects.filter(kind__in=("account_made", "password_reset"), user__last_login__isnull=False)
        ),
        "powers": {
            user.username: sorted(study_permissions(user, study) & OVERSIGHT_PERMISSIONS)
            for user in User.objects.filter(username__in=(*ACTORS, "friend"))
        },
        "policies": list(EpsilonPolicy.objects.order_by("pk").values_list("pk", "proposed_by", "high", "low")),
        "approvals": list(EpsilonPolicyApproval.objects.order_by("pk").values_list("pk", "approved_by")),
        "tokens": sorted(ApiToken.objects.exclude(user=actor).values_list("pk", flat=True)),
        "own drafts": list(Run.objects.filter(created_by=actor).values_list("status", "approved_by")),
        "proposers": dict(Run.objects.filter(status=Run.Status.DRAFT).values_list("pk", "created_by")),
    }


def harmless(kept: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Remove harmless differences: new drafts, and drafts that another operator approved or cancelled.

    The user's own withdrawn drafts are also harmless, as are new accounts, because they have no role.
    """
    if "accounts" in now:
        known = {account[0] for account in kept["accounts"]}
        now = now | {name: [row for row in now[name] if row[0] in known] for name in ("accounts", "addresses")}
    wrong = {name: value for name, value in now.items() if name != "proposers" and value != kept[name]}
    statuses = {status for status, _by in now.get("own drafts", ())}
    if "own drafts" in wrong and statuses <= {"draft", "cancelled", "withdrawn"}:
        del wrong["own drafts"]
    if any(kept["proposers"].get(run, by) != by for run, by in now["proposers"].items()):
        wrong["proposers"] = now["proposers"]
    return wrong


class Writes:
    """A wrapper of SQL statements that notes whether one may have changed what :func:`state` reads."""

    _SESSIONS = '(INSERT INTO|UPDATE|DELETE FROM) "django_session" '
    _HARMLESS = re.compile(rf"(SELECT|SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT)\b|{_SESSIONS}")

    def __init__(self) -> None:
        self.seen = False

    def __call__(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        self.seen = self.seen or self._HARMLESS.match(sql) is None
        return execute(sql, *arguments)


class Attempts:
    """Attempts that each begin with the same state and are undone."""

    def __init__(self, name: str) -> None:
        self.actor = User.objects.get(username=name)
        self.client = Client(raise_request_exception=False)
        self.client.force_login(self.actor)
        self.session = self.client.session.session_key
        self.kept = state(self.actor)
        self.wrong: dict[str, Any] = {}
        self.count = 0

    def request(self, method: str, url: str, data: dict[str, Any], **options: Any) -> bool:
        """Send a request, and return whether another one may be sent, too."""
        status = 0

        def send() -> None:
            nonlocal status
            self.client.cookies["sessionid"] = self.session
            status = getattr(self.client, method)(url, data, **options).status_code
            user = self.client.session.get("_auth_user_id", str(self.actor.pk))
            assert user == str(self.actor.pk), f"{url} signs in as another user"

        self.attempt(f"{method} {url} {data.get('role', '')}", send)
        return status != 405

    def attempt(self, what: str, act: Callable[[], None]) -> None:
        """Act, and compare the state if anything was written."""
        self.count += 1
        writes = Writes()
        with transaction.atomic():
            with connection.execute_wrapper(writes):
                act()
            if writes.seen and (wrong := harmless(self.kept, state(self.actor))):
                self.wrong[what] = wrong
            transaction.set_rollback(True)


def payloads(actor: User) -> Iterator[dict[str, Any]]:
    """Yield data that fit every form and try to give the user, or a friend, a role."""
    study, friend = Study.objects.get(slug="table"), User.objects.get(username="friend")
    for user, role in [pair for own, given in TRIED for pair in ((actor, own), (friend, given))]:
        everybody = User.objects.get(username="carla").pk
        yield {
            **{"username": user.username, "user": user.pk, "role": role.value, "study": study.pk, "post": "yes"},
            **dict.fromkeys(("confirmed", "publish", "confirm"), "1"),
            "act": "close",
            **{"high": "0.4", "average": "0.6", "low": "0.8", "reason": "Because."},
            **dict.fromkeys(("acting_user", "created_by", "proposed_by", "approved_by", "changed_by"), everybody),
            **dict.fromkeys(("is_superuser", "is_staff", "is_active"), "on"),
            **dict.fromkeys(("password", "password1", "password2", "new_password1", "new_password2"), "changed 4711"),
            **{"usable_password": "true", "old_password": factories.PASSWORD, "name": "new", "spending": "all"},
        }


def parts_of_study() -> dict[str, list[Any]]:
    """Return every part of the study that an address can be about."""
    study = Study.objects.get(slug="table")
    runs = list(Run.objects.values_list("pk", flat=True))
    hub, site = alliances_make(study)
    return {
        **{"hub": [hub.pk], "site": [site.pk], "key": [hub.key], "act": ["sign"], "proposal_of_hub": ["ab"]},
        **{"slug": [study.slug], "version": [1, 2], "format": ["csv"], "path": ["index.html"], "language": ["en"]},
        "role_change": [change.sequence for change in role_changes_waiting(study)],
        "membership": list(study.memberships.values_list("pk", flat=True)),
        "dataset": [Dataset.objects.filter(study=study).values_list("pk", flat=True)[0]],
        **{"run": runs, "draft": runs, "impact": ["md", "pdf"]},
        "tab": ["cost", "releases", "timeline", "card"],
        "holder": [study.holders.order_by("pk")[0].public_id],
        "proposal": list(study.consent_form_proposals.values_list("sequence", flat=True)),
        "token": [ApiToken.objects.get(name="conrad's").token_key],
        "waiting": [User.objects.get(username="waiting").pk, User.objects.get(username="conrad").pk],
        "encoder": [study.encoders.create(name="small", digest="", file_digest="", takes={}, width=1).pk],
        "import": [study.imports.create(name="new", kind="private", file="new.csv").pk],
        "webhook": list(study.webhooks.values_list("pk", flat=True)),
        "invitation": list(study.invitations.values_list("pk", flat=True)),
    }


def test_every_address_can_be_tried(study: Study) -> None:
    assert len(list(addresses_of(parts_of_study()))) > 150


@pytest.mark.exhaustive
@each_actor
def test_no_page_or_api_call_lets_an_operator_change_roles_alone(study: Study, name: str) -> None:
    attempts = Attempts(name)
    _, secret = ApiToken.objects.create(attempts.actor, name="mine")
    options = {"content_type": "application/json", "headers": {"Authorization": f"Bearer {secret}"}}
    parts = parts_of_study()
    for page, url in addresses_of(parts):
        if page.startswith("api:"):
            for method in ("post", "put", "patch", "delete"):
                for sent in ({}, *payloads(attempts.actor)):
                    if not attempts.request(method, url, sent, **options):
                        break
        elif page != "account_logout":
            for payload in payloads(attempts.actor):
                if not attempts.request("post", url, payload):
                    break
    assert attempts.wrong == {}
    assert attempts.count > 2 * 60 + 8 * 15


#: Number of rows per model whose forms are tried, if it is more than one.
ROWS = {User: 20, Membership: 20, Run: 3}


def admin_addresses() -> Iterator[tuple[str, str]]:
    """Return every address of the admin, with every row that it can be about."""
    for model, model_admin in admin.site._registry.items():
        for pattern in model_admin.get_urls():
            if pattern.name is None:  # redirects to the page that changes a row
                continue
            taken = len(pattern.pattern.converters)
            rows = model._default_manager.values_list("pk", flat=True)[: ROWS.get(model, 1)] if taken else [None]
            for pk in rows:
                yield pattern.name, reverse(f"admin:{pattern.name}", args=[pk] * taken)
    for pattern in admin.site.get_urls():
        if isinstance(pattern, URLPattern) and pattern.name and pattern.name not in ADMIN_SHOWS | {"logout"}:
            yield pattern.name, reverse(f"admin:{pattern.name}")


def form_at(client: Client, url: str) -> BaseForm | None:
    """Return the form that the admin shows at ``url``."""
    context = client.get(url).context or {}
    return context["adminform"].form if "adminform" in context else context.get("form")


def filled_in(form: BaseForm, payload: dict[str, Any]) -> dict[str, Any]:
    """Return data that a browser would send for ``form``, with ``payload`` in fields of the same names."""
    values = {bound.name: bound.value() for bound in form}
    sent = {name: value for name, value in values.items() if value is not None} | {
        name: value for name, value in payload.items() if name in form.fields
    }
    if "user_permissions" in form.fields:
        sent["user_permissions"] = list(Permission.objects.values_list("pk", flat=True))
    times = {name: value for name, value in sent.items() if hasattr(value, "isoformat")}
    for name, value in times.items():
        sent |= {f"{name}_0": value.strftime("%Y-%m-%d"), f"{name}_1": value.strftime("%H:%M:%S")}
    return sent


@pytest.mark.exhaustive
@each_actor
def test_no_form_of_the_admin_lets_an_operator_change_roles_alone(study: Study, name: str) -> None:
    attempts = Attempts(name)
    for page, url in admin_addresses():
        form = form_at(attempts.client, url)
        for payload in payloads(attempts.actor):
            if form is not None:
                del payload["username"]  # from the row, or from the form
            if not attempts.request("post", url, filled_in(form, payload) if form is not None else payload):
                break
        if page.endswith("_changelist"):
            model = next(
                m for m in admin.site._registry if page == f"{m._meta.app_label}_{m._meta.model_name}_changelist"
            )
            rows = [str(pk) for pk in model._default_manager.values_list("pk", flat=True)]
            for action in admin.site._registry[model].actions or ():
                attempts.request("post", url, {"action": action, "_selected_action": rows})
            attempts.request("post", url, {"action": "delete_selected", "_selected_action": rows, "post": "yes"})
    assert attempts.wrong == {}
    assert attempts.count > 150


def test_no_command_changes_roles(study: Study, tmp_path: Path) -> None:
    packages = {config.name for config in apps.get_app_configs() if "site-packages" not in config.path}
    own = {name for name, app in get_commands().items() if app in packages}
    assert own == set(COMMANDS), "add how an operator calls it, or why they cannot"
    (tmp_path / "list.csv").write_text("pseudonym,level,version,date,scan\n")
    (tmp_path / "rows.csv").write_text("role\nchair\n")
    attempts = Attempts("otto")

    def call(name: str, arguments: list[str]) -> None:
        try:
            call_command(name, *(part.format(folder=tmp_path) for part in arguments), stdout=StringIO())
        except (Exception, SystemExit) as refusal:
            assert "otto" not in str(refusal) or "may not" in str(refusal)

    for name, arguments in COMMANDS.items():
        if isinstance(arguments, list):
            attempts.attempt(name, lambda name=name, arguments=arguments: call(name, arguments))
    assert attempts.wrong == {}
