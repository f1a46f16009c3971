"""Access table for every URL of the site. A URL without a row fails the last test.

A row says who has access. Other people are turned away: strangers to the sign-in page (401 in the API), people without
a role in the study with 404, and members without the permission with 403. The content of a page is tested with the
page.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.template import Template
from django.test import Client
from django.urls import get_resolver, reverse

from consent.models import Role, RoleChange, Study, WebhookEndpoint
from consent.services import membership_add
from consent.services.accounts import account_create, administrator_set
from consent.services.invitations import invitations_create
from tests import factories
from tests.everything import addresses, alliances_make
from tests.pages import roles_fill
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_with_table

pytestmark = pytest.mark.django_db

STRANGERS = frozenset({"anonymous"})
#: People without a role in the study; administrators of the installation have none anywhere.
OUTSIDERS = frozenset({"outsider", "holder", "administrator"})
MEMBERS = frozenset(Role.values)
SIGNED_IN = OUTSIDERS | MEMBERS | {"root"}
EVERYBODY = STRANGERS | SIGNED_IN
STAFF = frozenset({"operator", "steward", "committee", "chair", "auditor", "root"})
STEWARDS = frozenset({"steward", "root"})
OPERATORS = frozenset({"operator", "root"})
COMMITTEE = frozenset({"committee", "chair", "root"})
PUBLISHERS = OPERATORS | COMMITTEE
RUNNERS = STAFF | {"researcher"}
USERS = OPERATORS | {"researcher"}
HOLDER = frozenset({"holder"})
ADMINISTRATORS = frozenset({"administrator", "root"})
ROOT = frozenset({"root"})


@dataclass(frozen=True)
class Row:
    """An address and who has access. ``of`` names the part of the study; ``turned_away`` overrides the status codes."""

    let_in: frozenset[str]
    of: tuple[str, ...] = ()
    method: str = "get"
    turned_away: dict[str, int] = field(default_factory=dict)
    answer: int = 200


NOT_FOUND = dict.fromkeys(SIGNED_IN, 404)
FORBIDDEN = dict.fromkeys(SIGNED_IN, 403)
SLUG, RUN, DRAFT = ("slug",), ("slug", "run"), ("slug", "draft")
VERSION = ("slug", "run", "version")


def rows(names: str, *row: Any, **of_row: Any) -> dict[str, Row]:
    """Return the same row for several names, separated by spaces."""
    return dict.fromkeys(names.split(), Row(*row, **of_row))


TABLE: dict[str, Row] = {
    # Public pages
    "home": Row(EVERYBODY - HOLDER, turned_away={"holder": 302}),
    "set_language": Row(EVERYBODY, method="post", answer=302),
    "healthz": Row(EVERYBODY),
    "readyz": Row(EVERYBODY, answer=503),  # no worker runs
    "metrics": Row(EVERYBODY, answer=404),  # nobody without the token
    # People's own accounts
    "account_login": Row(STRANGERS, turned_away=dict.fromkeys(SIGNED_IN, 302)),
    "account_logout": Row(EVERYBODY, method="post", answer=302),
    **rows(
        "account_overview account_reauthenticate account_email account_change_password mfa_index "
        "mfa_list_webauthn socialaccount_connections",
        SIGNED_IN,
    ),
    **rows(
        "account_inactive account_reset_password account_reset_password_done account_reset_password_from_key_done "
        "socialaccount_login_cancelled",
        EVERYBODY,
    ),
    "account_confirm_email": Row(SIGNED_IN, ("token",)),
    "account_set_password": Row(SIGNED_IN, answer=302),  # they have one
    "account_reset_password_from_key": Row(EVERYBODY, ("format", "token")),
    "mfa_authenticate": Row(EVERYBODY, answer=302),  # nobody is in the middle of signing in
    "mfa_reauthenticate": Row(SIGNED_IN, answer=302),  # they have no second factor
    "mfa_activate_totp": Row(SIGNED_IN, answer=302),  # the password is required again first
    **rows(
        "mfa_deactivate_totp mfa_view_recovery_codes mfa_download_recovery_codes", frozenset(), turned_away=NOT_FOUND
    ),
    **rows("mfa_generate_recovery_codes mfa_add_webauthn mfa_reauthenticate_webauthn", SIGNED_IN, answer=302),
    **rows("mfa_remove_webauthn mfa_edit_webauthn", SIGNED_IN, ("version",), answer=302),
    **rows("mfa_login_webauthn socialaccount_signup", EVERYBODY, answer=302),
    "openid_connect_login": Row(EVERYBODY, ("format",), answer=404),  # no provider is set
    "openid_connect_callback": Row(EVERYBODY, ("format",), answer=404),
    # Pages for administrators of the installation
    **rows("staff_accounts staff_account_new health", ADMINISTRATORS, turned_away=FORBIDDEN),
    **rows("staff_account_invite staff_account_close", ADMINISTRATORS, ("waiting",), turned_away=FORBIDDEN),
    "administrator": Row(ROOT, ("waiting",), turned_away=FORBIDDEN),
    **rows("queue queue_live", OPERATORS | ADMINISTRATORS, turned_away=FORBIDDEN),
    "search": Row(RUNNERS, turned_away=FORBIDDEN),
    # Pages for holders
    "consent:my_studies": Row(SIGNED_IN),
    **rows(
        "consent:study consent:choice consent:withdraw consent:uses consent:later consent:contact_way consent:export",
        HOLDER,
        SLUG,
        turned_away=NOT_FOUND,
    ),
    "consent:learned": Row(EVERYBODY, SLUG, answer=302),  # to the page of uses
    "consent:check_answer": Row(HOLDER, SLUG, "post", turned_away=NOT_FOUND, answer=400),
    "consent:check": Row(HOLDER, SLUG, turned_away=NOT_FOUND, answer=302),  # there is no answer to check
    "consent:decide": Row(HOLDER, SLUG, "post", turned_away=NOT_FOUND, answer=422),
    "consent:erase": Row(HOLDER, SLUG, turned_away=NOT_FOUND, answer=302),  # they take part
    **rows(
        "consent:receipt consent:receipt_text consent:receipt_pdf consent:receipt_json",
        HOLDER,
        ("slug", "version"),
        turned_away=NOT_FOUND,
    ),
    "consent:receipt_proof": Row(HOLDER, ("slug", "version"), answer=404, turned_away=NOT_FOUND),  # no checkpoint
    **rows("glossary privacy accessibility", EVERYBODY),
    "logo": Row(EVERYBODY, answer=404),  # none is set
    "documents": Row(EVERYBODY, answer=404),  # not built
    "document": Row(EVERYBODY, ("path",), answer=404),
    # Pages for people with an invitation. Without a valid one, everybody is sent to the page that asks for the code.
    "join": Row(EVERYBODY),
    "open_link": Row(EVERYBODY, ("token",), answer=302),
    "address": Row(EVERYBODY, ("token",), answer=404),
    "closed": Row(EVERYBODY, answer=302),  # nobody was sent to a closed study
    **rows("leave stay", EVERYBODY, method="post", answer=302),
    "account": Row(EVERYBODY, answer=302),
    # Pages for staff
    "staff:study_new": Row(ADMINISTRATORS, turned_away=FORBIDDEN),
    **rows("staff:members staff:consent_forms", STAFF, SLUG),
    **rows("staff:study_edit staff:study_close staff:webhooks staff:letterhead", OPERATORS, SLUG),
    "staff:people_new": Row(ROOT, SLUG),
    "staff:changes": Row(COMMITTEE | {"auditor"}, SLUG),
    "staff:member_remove": Row(OPERATORS, ("slug", "membership")),
    "staff:role_change": Row(STAFF, ("slug", "role_change")),
    "staff:webhook_test": Row(OPERATORS, ("slug", "webhook"), "post", answer=302),
    "staff:webhook_remove": Row(OPERATORS, ("slug", "webhook")),
    **rows(
        "staff:recruitment staff:disposals staff:holder_looks staff:receipt_check staff:circumstances",
        STEWARDS | {"auditor"},
        SLUG,
    ),
    **rows(
        "staff:holder_look staff:letters staff:paper_consent staff:paper_blank staff:paper_list staff:invitations "
        "staff:link_new staff:invitations_everyone staff:invitations_remind",
        STEWARDS,
        SLUG,
    ),
    "staff:person": Row(STEWARDS, ("slug", "holder")),
    "staff:people_search": Row(STEWARDS, SLUG, "post", answer=404),  # no list is named
    "staff:letters_pdf": Row(STEWARDS, SLUG, "post", answer=422),  # no codes
    "staff:invitation_revoke": Row(STEWARDS, ("slug", "invitation")),
    "staff:study_impact": Row(STAFF, ("slug", "impact")),
    **rows("staff:consent_form_new staff:consent_form_facts", PUBLISHERS, SLUG),
    "staff:consent_form_preview": Row(PUBLISHERS, SLUG, "post"),
    # Without a draft there is nothing to publish or read, so it redirects to the editor.
    "staff:consent_form_publish": Row(PUBLISHERS, SLUG, answer=302),
    "staff:consent_form_as_read": Row(PUBLISHERS, ("slug", "language"), answer=302),
    "staff:consent_form_proposal": Row(PUBLISHERS, ("slug", "proposal")),
    "staff:consents_export": Row(frozenset({"auditor", "root"}), ("slug", "format")),
    "staff:consent_form": Row(STAFF, ("slug", "version")),
    **rows(
        "staff:committee staff:policies staff:datasets staff:encoders staff:alliances staff:ledger staff:ledger_check",
        STAFF,
        SLUG,
    ),
    "staff:policy_new": Row(COMMITTEE, SLUG),
    **rows("staff:policy_odds staff:policy_affordable", COMMITTEE, SLUG, "post"),
    "staff:policy_approve": Row(COMMITTEE, ("slug", "version")),
    "staff:dataset": Row(STAFF, ("slug", "dataset")),
    "staff:encoder_withdraw": Row(STEWARDS, ("slug", "encoder")),
    "staff:alliance": Row(STAFF, ("slug", "hub")),
    "staff:alliance_act": Row(OPERATORS, ("slug", "hub", "act"), "post", answer=302),
    **rows("staff:alliance_keys staff:alliance_leave", OPERATORS, ("slug", "hub")),
    "staff:joint_run_new": Row(USERS, ("slug", "hub")),
    "staff:joint_run_take": Row(USERS, ("slug", "site", "proposal_of_hub")),
    "staff:dataset_remove": Row(STEWARDS, ("slug", "dataset")),
    "staff:import_new": Row(STEWARDS, SLUG),
    **rows(
        "staff:import staff:import_columns staff:import_columns_file staff:import_live staff:import_drop "
        "staff:import_faults",
        STEWARDS,
        ("slug", "import"),
    ),
    "staff:import_store": Row(STEWARDS, ("slug", "import"), "post", answer=302),
    "staff:check_answers": Row(OPERATORS, SLUG, "post", answer=302),
    "staff:head_counts": Row(OPERATORS, SLUG),
    "staff:list_save": Row(RUNNERS, SLUG, "post", answer=404),  # no list is named
    **rows("staff:study staff:runs staff:run_compare staff:models", RUNNERS, SLUG),
    "staff:run_new": Row(USERS, SLUG),
    **rows("staff:run staff:run_live staff:run_students", RUNNERS, RUN),
    "staff:run_tab": Row(RUNNERS, ("slug", "run", "tab")),
    **rows("staff:run_labels staff:run_student_new", USERS, RUN),
    "staff:run_labels_file": Row(USERS, ("slug", "run", "format")),
    **rows("staff:run_student_model staff:run_student_onnx", USERS, VERSION),
    **rows("staff:run_student_publish staff:run_student_withdraw", OPERATORS, VERSION),
    "staff:run_result_file": Row(USERS, RUN, answer=404),  # it redirects to a student
    "staff:run_result_withdraw": Row(OPERATORS, RUN, answer=404),
    "staff:run_edit": Row(frozenset(), DRAFT, turned_away={"root": 403}),  # another person's draft
    "staff:run_withdraw": Row(frozenset(), DRAFT, turned_away={"root": 403}),
    **rows("staff:run_approve staff:run_cancel", OPERATORS, DRAFT),
    "staff:run_approval_undo": Row(OPERATORS, DRAFT, "post", answer=302),
    "staff:joint_run_without": Row(OPERATORS, VERSION, answer=404),  # it is not across sites
    "staff:ledger_export": Row(STAFF, ("slug", "format")),
    **rows("staff:ledger_report staff:ledger_report_pdf", STAFF, RUN),
    "staff:model": Row(RUNNERS, RUN),
    **rows("staff:model_stage staff:model_threshold", OPERATORS, RUN),
    # For programs. Lists contain what the caller may see; 415 is for requests with access that are not JSON.
    **rows("schema api-docs api:keys", EVERYBODY),
    "api-tokens": Row(RUNNERS | ADMINISTRATORS, turned_away=NOT_FOUND),
    "api-token-revoke": Row(frozenset(), ("token",), "post", turned_away=NOT_FOUND),
    **rows(
        "api:root api:studies api:waiting api:learners api:students api:aggregators api:methods "
        "api:representations api:runs api:models",
        SIGNED_IN,
    ),
    **rows("staff:study_budgets staff:study_budget_file", STAFF, SLUG),
    **rows("api:study api:study-budget api:study-example-rows api:study-encoders api:study-alliances", RUNNERS, SLUG),
    "api:study-alliance": Row(RUNNERS, ("slug", "hub")),
    "api:alliance-runs": Row(USERS, ("slug", "hub"), "post", answer=415),  # nothing is sent
    "api:proposal-take": Row(USERS, ("slug", "site", "proposal_of_hub"), "post", answer=415),
    "api:proposal-decline": Row(OPERATORS, ("slug", "site", "proposal_of_hub"), "post"),
    "api:run-sites": Row(RUNNERS, ("run",), answer=404),  # it is not across sites
    "api:run-go-on": Row(OPERATORS, ("run",), "post", answer=404),
    "api:study-datasets": Row(STEWARDS, SLUG, "post", answer=400),  # nothing is sent
    **rows("api:study-imports api:study-consents", STEWARDS, SLUG, "post", answer=400),
    "api:study-import": Row(STEWARDS, ("slug", "import")),
    "api:study-import-store": Row(STEWARDS, ("slug", "import"), "post", answer=409),  # it is not checked
    "api:study-head-counts": Row(OPERATORS, SLUG, "post", answer=415),
    **rows("api:study-webhooks api:study-webhook-deliveries", OPERATORS, SLUG),
    "api:study-webhook-test": Row(OPERATORS, ("slug", "webhook"), "post", answer=202),
    "api:study-webhook": Row(OPERATORS, ("slug", "webhook"), "delete", answer=204),
    "api:run-comparison": Row(SIGNED_IN, answer=400),  # of no run
    "api:run-plan": Row(SIGNED_IN, method="post", answer=415),
    **rows("api:run api:run-costs api:run-events api:run-students", RUNNERS, ("run",)),
    "api:run-planned": Row(OPERATORS, ("run",)),
    "api:run-labels": Row(USERS, ("run",)),
    **rows("api:run-student-publish api:run-student-withdraw", OPERATORS, ("run", "version"), "post", answer=415),
    "api:run-table": Row(USERS, ("run",), answer=404),  # it redirects to a student
    "api:run-rows": Row(USERS, ("run",), answer=404),
    "api:run-table-withdraw": Row(OPERATORS, ("run",), "post", answer=415),
    **rows("api:model api:model-file api:model-onnx api:model-statement", USERS, ("run",), turned_away=NOT_FOUND),
    **rows(
        "api:model-stage api:model-threshold",
        OPERATORS,
        ("run",),
        "post",
        turned_away=dict.fromkeys(SIGNED_IN, 404) | {"researcher": 403},
        answer=415,
    ),
    # For sites, which have no account, but a code or a signature, which nobody has here
    **rows("api:site-name api:site-register", EVERYBODY, ("key",), "post", answer=409),
    "api:site-exchange": Row(EVERYBODY, ("key",), "post", answer=401),
    "api:site-points": Row(EVERYBODY, ("key",), answer=401),
    "api:site-answer": Row(EVERYBODY, ("key", "proposal_of_hub", "version"), "put", answer=401),
    "api:site-total": Row(EVERYBODY, ("key", "proposal_of_hub", "version"), answer=401),
    "api:site-model": Row(EVERYBODY, ("key", "proposal_of_hub", "format"), answer=401),
    "api:model-predict": Row(USERS, ("run",), "post", turned_away=NOT_FOUND, answer=415),
    "api:run-approve": Row(OPERATORS, ("draft",), "post", answer=415),
    "api:run-cancel": Row(OPERATORS, ("draft",), "post"),
    "api:run-withdraw": Row(frozenset(), ("draft",), "post"),  # another person's draft
}


@pytest.fixture
@built_once
def study() -> Study:
    study = roles_fill(study_with_table())
    factories.decide(factories.holder_create(study, "hanna", user=factories.user_create("holder")), "HIGH")
    factories.user_create("outsider")
    factories.user_create("root", is_superuser=True, is_staff=True)
    administrator_set(user=factories.user_create("administrator"), appointed=True, acting_user=None)
    run_finish(run_start(study, **TABLE_RUN))
    run_draft(study, **TABLE_RUN)
    return study


@pytest.fixture
def parts(study: Study) -> dict[str, Any]:
    """Return the values of parameters in addresses, by name."""
    hub, site = alliances_make(study)
    return {
        **{"hub": hub.pk, "site": site.pk, "key": hub.key, "act": "sign", "proposal_of_hub": "ab"},
        **{"slug": study.slug, "version": 1, "format": "csv", "impact": "md", "language": "en"},
        **{"token": "unknown", "path": "index.html", "tab": "timeline"},
        "membership": study.memberships.get(user__username="auditor").pk,
        "role_change": role_propose(study).sequence,
        "dataset": study.datasets.get(kind="private").pk,
        "encoder": study.encoders.create(name="small", digest="", file_digest="", takes={}, width=1).pk,
        "run": study.runs.get(status="finished").pk,
        "draft": study.runs.get(status="draft").pk,
        "proposal": factories.form_propose(study, {"en": "More is asked."}).sequence,
        "waiting": account_create(
            username="waiting", first_name="W.", last_name="Ait", email="waiting@example.org", acting_user=None
        ).pk,
        "import": study.imports.create(
            name="more", kind="private", file="more.csv", schema=study.datasets.first().schema
        ).pk,
        "webhook": WebhookEndpoint.objects.create(
            study=study, url="https://hooks.example.org/", events=[], created_by=User.objects.get(username="operator")
        ).pk,
        "holder": study.holders.get(pseudonym="hanna").public_id,
        "invitation": invitations_create(study=study, acting_user=None, open_places=1)[0].invitation.pk,
    }


def role_propose(study: Study) -> RoleChange:
    """Return a role that an operator has proposed for someone."""
    user, operator = factories.user_create("outsider"), study.memberships.filter(role=Role.OPERATOR).first().user
    membership_add(study=study, user=user, role=Role.RESEARCHER, acting_user=operator)
    return RoleChange.chain(study.pk).last()


def client_of(person: str) -> Client:
    client = Client()
    if person != "anonymous":
        client.force_login(factories.user_create(person))
    return client


def expected(name: str, row: Row, person: str) -> int:
    if person in row.let_in:
        return row.answer
    if person in STRANGERS:
        return 401 if name.startswith("api:") else 302
    return row.turned_away.get(person, 404 if person in OUTSIDERS else 403)


#: These end the session, or change it for later requests.
ENDS = ("account_logout", "leave", "open_link")


@pytest.mark.parametrize(
    "person",  # no row distinguishes the chair from the rest of the committee
    [
        pytest.param(
            each, marks=[] if each in ("anonymous", "committee", "holder", "operator") else [pytest.mark.exhaustive]
        )
        for each in sorted(EVERYBODY)
    ],
)
def test_the_table_tells_who_is_let_in(parts: dict[str, Any], person: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are compared without their text, which decides nothing."""
    wrong, client = {}, client_of(person)
    monkeypatch.setattr(Template, "_render", lambda page, context: "")
    for name, row in TABLE.items():
        url = reverse(name, args=[parts[part] for part in row.of])
        code = expected(name, row, person)
        answer = getattr(client, row.method)(url)
        if answer.status_code != code:
            wrong[name] = f"{answer.status_code}, not {code}"
        if person not in row.let_in:  # turned away for any request
            sent = code if row.method == "post" else client.post(url).status_code
            if sent not in (code, 405):
                wrong[f"post {name}"] = f"{sent}, not {code}"
            if code == 302 and row.let_in.isdisjoint(STRANGERS):
                assert answer.headers["Location"].startswith(reverse("account_login")), name
        if name in ENDS:
            client = client_of(person)
    assert wrong == {}
    assert client.get(reverse("admin:index")).status_code == (200 if person == "root" else 302)


def test_a_run_is_found_in_its_own_study_alone(study: Study, parts: dict[str, Any]) -> None:
    other = factories.study_create("other")
    membership_add(study=other, user=factories.user_create("operator"), role=Role.OPERATOR, acting_user=None)
    client, places = client_of("operator"), parts | {"slug": "other"}
    of_runs = [name for name, row in TABLE.items() if "slug" in row.of and not {"run", "draft"}.isdisjoint(row.of)]
    assert len(of_runs) > 20
    for name in of_runs:
        url = reverse(name, args=[places[part] for part in TABLE[name].of])
        assert client.get(url).status_code == 404, name


def names() -> list[str]:
    """Return all named addresses of the site, except those of the admin, which checks ``is_staff`` itself."""
    found = set(addresses(get_resolver().url_patterns))
    return sorted(name for name in found if not name.startswith("admin:") and not name.endswith(":"))


def addresses_of(parts: dict[str, list[Any]]) -> Iterator[tuple[str, str]]:
    """Yield every address of the site except the admin's, by name, with each of the ``parts`` that it can be about."""
    for name in names():
        for arguments in product(*(parts[part] for part in TABLE[name].of)):
            yield name, reverse(name, args=arguments)


def test_every_address_has_a_row() -> None:
    assert names() == sorted(TABLE)
