"""The pages of a study: overview, basics, people, what holders read, what levels mean, data, ledger; and the admin."""

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounting.models import LedgerEntry
from accounting.selectors import account_consumption, standings
from consent import services
from consent.models import EpsilonPolicy, Membership, Role, Study
from consent.selectors import consent_snapshot, policy_in_force
from ipate_web.append_only import triggers_install, triggers_remove
from tests import factories
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_with_table
from training.views import ledger

pytestmark = pytest.mark.django_db


def with_people(study: Study) -> Study:
    for role in Role.values:
        services.membership_add(study=study, user=factories.user_create(role), role=role)
    return study


@pytest.fixture
def study() -> Study:
    return with_people(study_with_table())


@pytest.fixture
def empty() -> Study:
    return with_people(factories.study_create("empty"))


def as_(role: str) -> Client:
    client = Client()
    client.force_login(factories.user_create(role))
    return client


def url(page: str, study: Study, *args: object) -> str:
    return reverse(f"training:{page}", args=[study.slug, *args])


# --- A new study ----------------------------------------------------------------------------------------------------

BASICS = {
    "title": "Sleep",
    "slug": "sleep",
    "purpose": "Find out which nights are followed by good days.",
    "controller": "University Hospital",
    "contact": "sleep@example.org",
    "delta": "1e-5",
}


@pytest.fixture
def root() -> Client:
    factories.user_create("root", is_superuser=True, is_staff=True)
    return as_("root")


def test_who_sets_up_a_study_becomes_its_operator(root: Client) -> None:
    answer = root.post(reverse("training:study_new"), BASICS)
    study = Study.objects.get()
    assert answer.headers["Location"] == url("study", study)
    assert study.delta == 1e-5
    assert [(m.user.username, m.role) for m in study.memberships.all()] == [("root", "operator")]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("slug", "new", "taken by the site"),
        ("slug", "two words", "valid"),
        ("delta", "0.5", "less than or equal"),
        ("title", "", "required"),
        ("contact", "nobody", "name@example.org"),
    ],
)
def test_a_study_that_cannot_be_is_refused_beside_the_field(root: Client, field: str, value: str, told: str) -> None:
    page = root.post(reverse("training:study_new"), {**BASICS, field: value})
    assert page.status_code == 422
    assert told in str(page.context["form"].errors[field])
    assert not Study.objects.exists()


def test_an_empty_study_says_what_comes_next(empty: Study) -> None:
    def left() -> list[bool]:
        return [step.done for step in as_("operator").get(url("study", empty)).context["steps"]]

    assert left() == [False] * 6
    factories.form_publish(empty)
    assert left() == [True, *[False] * 5]
    factories.policy_approve(empty)
    assert left() == [True, True, True, False, False, False]
    page = as_("operator").get(url("study", empty)).text
    assert url("datasets", empty) in page
    assert "No runs yet" in page


def test_the_list_of_steps_offers_only_what_one_may_do(empty: Study) -> None:
    assert url("policy_new", empty) not in as_("operator").get(url("study", empty)).text
    assert url("policy_new", empty) in as_("committee").get(url("study", empty)).text


# --- Overview and basics --------------------------------------------------------------------------------------------


def test_the_overview_counts_holders_and_budgets(study: Study) -> None:
    run_finish(run_start(study, **TABLE_RUN))
    factories.holder_create(study, "undecided")
    page = as_("auditor").get(url("study", study))
    assert page.context["levels"] == [("high protection", 10), ("average protection", 10), ("low protection", 10)]
    assert page.context["taking_part"] == 30
    assert "1 have not decided" in page.text
    for group in standings(study, consent_snapshot(study)):
        assert group.spent > 0
        assert f"{group.spent:.3f}" in page.text
        assert f"{group.remaining:.3f}" in page.text
    assert page.context["steps"] == []
    for odds in (74, 89, 96):
        assert f'<td class="number">{odds}</td>' in page.text


@pytest.mark.parametrize(("delta", "warned"), [(0.01, True), (1e-5, False)])
def test_a_delta_too_large_for_the_study_is_pointed_out(delta: float, warned: bool) -> None:
    study = with_people(study_with_table("delta", delta=delta))
    assert ("is not well below 1 / number of holders" in as_("auditor").get(url("study", study)).text) is warned


def test_what_holders_relied_on_cannot_be_edited(study: Study, empty: Study) -> None:
    client = as_("operator")
    client.post(url("study_edit", empty), {**BASICS, "title": "Naps"})
    empty.refresh_from_db()
    assert (empty.title, empty.slug, empty.controller) == ("Naps", "empty", "University Hospital")
    purpose = study.purpose
    page = client.get(url("study_edit", study))
    assert not {"purpose", "controller", "delta", "slug"} & set(page.context["form"].fields)
    client.post(url("study_edit", study), {**BASICS, "title": "Renamed"})
    study.refresh_from_db()
    assert (study.title, study.purpose) == ("Renamed", purpose)


# --- People ---------------------------------------------------------------------------------------------------------


def test_an_operator_gives_and_takes_roles(empty: Study) -> None:
    factories.user_create("nadia")
    client = as_("operator")
    client.post(url("members", empty), {"username": "nadia", "role": "auditor"})
    membership = Membership.objects.get(study=empty, user__username="nadia")
    page = client.get(url("member_remove", empty, membership.pk))
    assert "Is nadia no longer auditor?" in page.text
    client.post(url("member_remove", empty, membership.pk))
    assert not Membership.objects.filter(pk=membership.pk).exists()


def test_a_name_that_nobody_has_is_pointed_out(empty: Study) -> None:
    page = as_("operator").post(url("members", empty), {"username": "nobody", "role": "auditor"})
    assert page.status_code == 422
    assert "Nobody with this user name" in page.text


def test_the_last_operator_stays(empty: Study) -> None:
    client = as_("operator")
    Membership.objects.get(study=empty, user__username="olga").delete()
    membership = Membership.objects.get(study=empty, role="operator")
    page = client.post(url("member_remove", empty, membership.pk), follow=True)
    assert "A study needs an operator." in page.text
    assert Membership.objects.filter(pk=membership.pk).exists()


def test_others_see_the_people_and_change_nothing(empty: Study) -> None:
    page = as_("auditor").get(url("members", empty)).text
    assert "Give a role" not in page
    assert as_("auditor").post(url("members", empty), {"username": "auditor", "role": "operator"}).status_code == 403
    assert not Membership.objects.filter(user__username="auditor", role="operator").exists()


# --- What the levels mean -------------------------------------------------------------------------------------------

EPSILONS = {"high": "0.5", "average": "2", "low": "5", "reason": "High should mean more."}


def version_in_force(study: Study) -> int:
    policy = policy_in_force(study)
    assert policy is not None
    return policy.version


def test_a_policy_is_proposed_with_its_odds_in_view(study: Study) -> None:
    client = as_("committee")
    page = client.post(url("policy_new", study), EPSILONS)
    rows = page.context["comparison"]
    assert [(row["before"].right_guesses, row["after"].right_guesses) for row in rows] == [
        (74, 63),
        (89, 89),
        (96, 100),
    ]
    for consequence in ("applies at once", "no change", "only after they consent anew"):
        assert consequence in page.text
    assert EpsilonPolicy.objects.filter(study=study).count() == 1
    client.post(url("policy_new", study), {**EPSILONS, "confirmed": "1"})
    assert EpsilonPolicy.objects.filter(study=study).count() == 2
    assert version_in_force(study) == 1, "it counts only once a second person approves it"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"high": "3"}, "must rise from high to low protection"),
        ({"high": "0"}, "must rise from high to low protection"),
        ({"high": "-1"}, "greater than or equal to 0"),
        ({"low": "11"}, "above this installation&#x27;s cap of 10"),
        ({"average": "nan"}, "Enter a number"),
        ({"reason": " "}, "required"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(study: Study, changes: dict[str, str], told: str) -> None:
    page = as_("committee").post(url("policy_new", study), {**EPSILONS, **changes, "confirmed": "1"})
    assert page.status_code == 422
    assert told in page.text
    assert EpsilonPolicy.objects.filter(study=study).count() == 1


def test_a_second_person_puts_it_in_force(study: Study) -> None:
    as_("committee").post(url("policy_new", study), {**EPSILONS, "confirmed": "1"})
    page = as_("committee").get(url("policy_approve", study, 2))
    assert "You proposed this policy yourself." in page.text
    assert "Yes, put it in force" not in page.text
    page = as_("committee").post(url("policy_approve", study, 2), follow=True)
    assert "approved by a second person" in page.text
    assert version_in_force(study) == 1
    services.membership_add(study=study, user=factories.user_create("conrad"), role=Role.COMMITTEE)
    assert "Version 2 waits for a second person" in as_("conrad").get(url("policies", study)).text
    as_("conrad").post(url("policy_approve", study, 2))
    assert version_in_force(study) == 2
    assert "waits for a second person" not in as_("conrad").get(url("policies", study)).text


# --- Data -----------------------------------------------------------------------------------------------------------


def test_a_dataset_is_described_without_its_rows(study: Study) -> None:
    dataset = study.datasets.get(kind="private")
    run_draft(study, **TABLE_RUN)
    page = as_("auditor").get(url("dataset", study, dataset.pk)).text
    for words in ("length", "numeric", "a, b, c", dataset.digest, "A small run"):
        assert words in page
    assert "p-001" not in page
    listed = as_("auditor").get(url("datasets", study)).text
    assert "import_dataset" in listed
    assert f'<td class="number">{dataset.holders}</td>' in listed


# --- Ledger ---------------------------------------------------------------------------------------------------------


def test_the_ledger_lists_what_was_charged(study: Study) -> None:
    run = run_finish(run_start(study, **TABLE_RUN))
    other = run_finish(run_start(study, **TABLE_RUN, title="Second"))
    client = as_("auditor")
    page = client.get(url("ledger", study))
    entries = 3 * (run.batches.count() + other.batches.count())  # one for each group
    assert [row["entry"].sequence for row in page.context["rows"]] == list(range(entries, 0, -1))
    only = client.get(url("ledger", study), {"run": str(other.pk), "level": "HIGH"})
    assert {row["title"] for row in only.context["rows"]} == {"Second"}
    assert {row["entry"].group.level for row in only.context["rows"]} == {"HIGH"}
    assert other.account is not None
    for item in account_consumption(other.account):
        assert f"{item.past:.3f}" in only.text
        assert f"{item.spent:.3f}" in only.text
    assert client.get(url("ledger", study), {"run": "nonsense", "level": "x"}).status_code == 200
    assert run.title in page.text


def test_the_ledger_of_a_study_without_votes_says_so(empty: Study) -> None:
    assert "The ledger is empty" in as_("auditor").get(url("ledger", empty)).text


def test_a_chain_is_found_whole_or_broken(study: Study) -> None:
    run_finish(run_start(study, **TABLE_RUN))
    address = url("ledger_check", study)
    whole = as_("auditor").get(address, headers={"HX-Request": "true"}).text
    assert "Ledger entry: a chain of 9 rows, recomputed just now." in whole
    assert "ε policy: a chain of 1 row, recomputed just now." in whole
    assert "<html" not in whole
    assert "<html" in as_("auditor").get(address).text
    triggers_remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounting_ledgerentry SET labels = 0 WHERE sequence = 4")
    triggers_install(connection)
    broken = as_("auditor").get(address).text
    assert "Ledger entry: the chain is broken." in broken
    assert "ledger entry 4" in broken


def test_of_a_long_chain_the_page_looks_at_the_end(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    run_finish(run_start(study, **TABLE_RUN))
    monkeypatch.setattr(ledger, "ROWS_CHECKED", 3)
    address = url("ledger_check", study)
    said = "Ledger entry: a chain of 9 rows, the last 3 recomputed just now."
    assert said in as_("auditor").get(address).text
    triggers_remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounting_ledgerentry SET labels = 0 WHERE sequence = 6")
        assert said in as_("auditor").get(address).text
        cursor.execute("UPDATE accounting_ledgerentry SET labels = 0 WHERE sequence = 7")
    assert "ledger entry 7" in as_("auditor").get(address).text
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounting_ledgerentry WHERE sequence > 5")
    triggers_install(connection)
    assert "the chain ends here, but was 9 long" in as_("auditor").get(address).text


# --- The admin ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["runaccount", "privacygroup", "ledgerentry"])
def test_accounts_can_only_be_looked_at(root: Client, study: Study, model: str) -> None:
    run_finish(run_start(study, **TABLE_RUN))
    base = f"admin:accounting_{model}"
    row = LedgerEntry._meta.apps.get_model("accounting", model).objects.first()
    assert root.get(reverse(f"{base}_changelist")).status_code == 200
    assert root.get(reverse(f"{base}_change", args=[row.pk])).status_code == 200
    assert root.post(reverse(f"{base}_change", args=[row.pk]), {}).status_code == 403
    assert root.post(reverse(f"{base}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    assert root.get(reverse(f"{base}_add")).status_code == 403


@pytest.mark.parametrize(
    ("model", "repairable"),
    [
        ("dataset", {"name"}),
        ("run", {"title", "purpose", "claimed_by", "message"}),
        ("teacherchunk", {"claimed_by"}),
        ("votebatch", set()),
        ("query", set()),
        ("studentmodel", set()),
    ],
)
def test_of_runs_and_data_only_names_and_claims_are_repaired(
    root: Client, study: Study, model: str, repairable: set[str]
) -> None:
    run_finish(run_start(study, **TABLE_RUN))
    base = f"admin:training_{model}"
    row = LedgerEntry._meta.apps.get_model("training", model).objects.first()
    assert root.get(reverse(f"{base}_changelist")).status_code == 200
    page = root.get(reverse(f"{base}_change", args=[row.pk]))
    form: Any = page.context["adminform"].form
    assert set(form.fields) == repairable
    assert root.post(reverse(f"{base}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403


@pytest.fixture
def clerk(db: None) -> User:
    """Somebody who may look at everything in the admin but private costs."""
    clerk = factories.user_create("clerk", is_staff=True)
    clerk.user_permissions.set(
        Permission.objects.filter(codename__startswith="view_").exclude(codename__contains="private")
    )
    return clerk


SECRETS_IN_THE_ADMIN = {
    "accounting_privacygroup": {"past_rdp", "spent_rdp", "reserved_rdp", "allowance", "retired_at"},
    "accounting_ledgerentry": {"rdp"},
    "training_dataset": {"seen_classes"},
    "training_run": {"plan", "teacher_accuracy"},
    "training_votebatch": {"silent_teachers", "simulated_rdp"},
}


@pytest.mark.parametrize(("page", "secrets"), SECRETS_IN_THE_ADMIN.items())
def test_the_admin_hides_secrets_from_those_who_may_not_see_costs(
    study: Study, clerk: User, page: str, secrets: set[str]
) -> None:
    run_finish(run_start(study, **TABLE_RUN))
    row = apps.get_model(*page.split("_")).objects.earliest("pk")
    client, address = as_("clerk"), reverse(f"admin:{page}_change", args=[row.pk])
    shown = {f"field-{name}" for name in secrets}
    assert not [name for name in shown if name in client.get(address).text]
    for secret in secrets:  # nor can they be guessed by looking for them
        assert client.get(reverse(f"admin:{page}_changelist"), {f"{secret}__isnull": "0"}).status_code == 400
    clerk.user_permissions.add(Permission.objects.get(codename="view_private_costs"))
    assert all(name in client.get(address).text for name in shown)


def test_the_admin_still_filters_by_what_it_lists(study: Study, clerk: User) -> None:
    run_finish(run_start(study, **TABLE_RUN))
    address = reverse("admin:accounting_privacygroup_changelist")
    found = as_("clerk").get(address, {"level__exact": "LOW", "account__study__id__exact": study.pk})
    assert [group.level for group in found.context["cl"].queryset] == ["LOW"]


def test_the_admin_leads_from_no_holder_to_a_level(study: Study, clerk: User) -> None:
    """Through what they have spent: there are pages of neither the histories nor of who has which."""
    run_finish(run_start(study, **TABLE_RUN))
    page = as_("clerk").get(reverse("admin:app_list", args=["accounting"]))
    assert [model["object_name"] for app in page.context["app_list"] for model in app["models"]] == [
        "AccountRecord",
        "LedgerEntry",
        "PrivacyGroup",
        "RunAccount",
    ]
