"""The pages of a study: overview, basics, people, what holders read, what levels mean, data, ledger; and the admin."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounting.head_counts import head_counts
from accounting.models import Release
from accounting.shares import shares
from consent import services
from consent.models import EpsilonPolicy, Membership, Role, RoleChange, Study
from consent.selectors import policy_in_force
from consent.services.invitations import invitations_create
from tests import factories
from tests.pages import as_, roles_fill, study_with_finished_run, study_with_roles, text, url
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, run_finish, run_start, study_with_table

pytestmark = pytest.mark.django_db


def with_people(study: Study) -> Study:
    return roles_fill(study)


@pytest.fixture
def study() -> Study:
    return study_with_roles()


@built_once
def empty_with_roles() -> Study:
    return with_people(factories.study_create("empty"))


@pytest.fixture
def empty() -> Study:
    return empty_with_roles()


@pytest.fixture
def finished() -> Study:
    return study_with_finished_run()


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


def test_creator_of_a_study_becomes_its_operator(root: Client) -> None:
    answer = root.post(reverse("staff:study_new"), BASICS)
    study = Study.objects.get()
    assert answer.headers["Location"] == url("study", study)
    assert study.delta == 1e-5
    assert [(m.user.username, m.role) for m in study.memberships.all()] == [("root", "operator")]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("slug", "new", "taken by the site"),
        ("slug", "two words", "valid"),
        ("delta", "0.5", "less than or equal"),
        ("title", "", "required"),
        ("contact", "nobody", "name@example.org"),
    ],
)
def test_a_study_that_cannot_be_is_refused_beside_the_field(root: Client, field: str, value: str, message: str) -> None:
    page = root.post(reverse("staff:study_new"), {**BASICS, field: value})
    assert page.status_code == 422
    assert message in str(page.context["form"].errors[field])
    assert not Study.objects.exists()


def test_a_rehearsal_is_chosen_when_a_study_is_set_up_and_never_later(root: Client) -> None:
    assert "It cannot be changed later." in root.get(reverse("staff:study_new")).text
    root.post(reverse("staff:study_new"), {**BASICS, "rehearsal": "on"})
    study = Study.objects.get()
    assert study.rehearsal
    assert [m.role for m in study.memberships.all()] == ["operator", "steward"], "who looks at nobody's secret"
    page = root.get(url("study_edit", study))
    assert "rehearsal" not in page.context["form"].fields
    root.post(url("study_edit", study), {**BASICS, "title": "Naps"})
    study.refresh_from_db()
    assert (study.title, study.rehearsal) == ("Naps", True)
    with pytest.raises(ValidationError, match="decided when it is set up"):
        services.study_update(study=study, rehearsal=False)


def test_a_rehearsal_asks_nobody() -> None:
    study = with_people(rehearsal_with_table())
    page = as_("operator").get(url("study", study))
    assert [(str(step.text), step.done) for step in page.context["steps"]] == [
        ("Import private and public data", True),
        ("Propose and approve a run", False),
        ("Follow it, and look at what it learned", False),
    ]
    for words in ("Who takes part", "holder who decides now", "every holder&#x27;s cap", "Head counts"):
        assert words not in page.text
    for name in ("recruitment", "policies", "consent_forms", "invitations", "ledger"):
        assert f'href="{url(name, study)}"' not in page.text
    message = "A rehearsal study asks nobody."
    values = {"high": "0.5", "average": "2", "low": "5", "reason": "To try.", "confirmed": "1"}
    assert message in as_("committee").post(url("policy_new", study), values).text
    assert message in as_("steward").post(url("invitations", study), {"pseudonyms": "P-1", "open_places": "0"}).text
    client = as_("operator")
    client.post(url("consent_form_new", study), {"en": "# What we ask", "publish": "1"})
    seen = client.get(url("consent_form_publish", study)).context["form"]["seen"].value()
    assert message in client.post(url("consent_form_publish", study), {"seen": seen}, follow=True).text
    assert not study.consent_forms.exists()


@pytest.mark.slow
def test_an_empty_study_says_what_comes_next(empty: Study) -> None:
    def left() -> list[bool]:
        return [step.done for step in as_("operator").get(url("study", empty)).context["steps"]]

    assert left() == [True, *[False] * 9], "all that people have to be told is said"
    factories.form_publish(empty)
    assert left() == [True, True, True, *[False] * 7]
    factories.policy_approve(empty)
    assert left() == [*[True] * 5, *[False] * 5]
    invitations_create(study=empty, acting_user=None, pseudonyms=["P-1"])
    assert left() == [*[True] * 5, *[False] * 5], "who decides is not told that somebody was asked"
    steps = as_("steward").get(url("study", empty)).context["steps"]
    assert [step.done for step in steps] == [*[True] * 5, False, True, *[False] * 3]
    page = as_("operator").get(url("study", empty)).text
    assert url("datasets", empty) in page
    assert "No runs yet" in page


def test_the_list_of_steps_offers_only_what_one_may_do(empty: Study) -> None:
    assert url("policy_new", empty) not in as_("operator").get(url("study", empty)).text
    assert url("policy_new", empty) in as_("committee").get(url("study", empty)).text


# --- Overview and basics --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_overview_counts_holders_and_shares(study: Study) -> None:
    run = run_finish(run_start(study, share=0.5, **TABLE_RUN))
    run_start(study, share=0.25, **TABLE_RUN, title="Waiting")
    factories.holder_create(study, "undecided")
    page = as_("auditor").get(url("study", study))
    assert page.context["levels"] == [("high protection", 10), ("average protection", 10), ("low protection", 10)]
    assert page.context["taking_part"] == 30
    assert "1 have not decided" in page.text
    used = {share["title"]: share["committed"] for share in page.context["shares"]}
    assert used == {run.title: pytest.approx(shares(study)[run.pk].used), "Waiting": 0.25}
    assert page.context["share_free"] == pytest.approx(1 - sum(used.values()))
    assert "25.0 % of 100.0 %" in page.text
    assert page.context["head_counts"] == head_counts(study)
    assert "a public number" in page.text
    assert page.context["steps"] == []
    for odds in (57, 62, 66):
        assert f'<td class="number">{odds}</td>' in page.text


@pytest.mark.slow
def test_nobody_is_warned_of_what_nobody_can_change() -> None:
    """δ is fixed once holders can decide; where it is chosen, its field says how large it may be."""
    study = with_people(study_with_table("delta", delta=0.01))
    assert "number of holders" not in as_("auditor").get(url("study", study)).text
    fresh = with_people(factories.study_create("fresh"))
    assert "well below 1 / number of holders" in as_("operator").get(url("study_edit", fresh)).text


def test_holders_asked_by_a_new_form_stay_in_the_numbers(study: Study) -> None:
    factories.form_publish(study, {"en": "More."}, renewal="required")
    message = "The consents of 30 people have ended or wait for an answer: their records are not used"
    for page in ("study", "recruitment"):
        assert message in re.sub(r"\s+", " ", as_("auditor").get(url(page, study)).text)


def test_editable_fields_do_not_reveal_decisions(empty: Study) -> None:
    """δ and the texts are fixed from the moment on at which a form and a policy are in force together."""
    factories.policy_approve(empty, effective_from=timezone.now() + timedelta(days=1))
    factories.form_publish(empty)
    client, address = as_("operator"), url("study_edit", empty)
    assert "delta" in client.get(address).context["form"].fields, "the policy is not in force yet"
    services.study_update(study=empty, delta=2e-6)
    factories.policy_approve(empty)
    before = client.get(address)
    assert "delta" not in before.context["form"].fields
    with pytest.raises(ValidationError, match="cannot change any more") as refused:
        services.study_update(study=empty, delta=3e-6)
    holder = factories.holder_create(empty)
    services.consent_give(holder=holder, level="HIGH", form=empty.consent_forms.get(), acting_user=None)
    with pytest.raises(ValidationError) as again:
        services.study_update(study=empty, delta=3e-6)
    assert again.value.message_dict == refused.value.message_dict
    assert without_tokens(client.get(address).text) == without_tokens(before.text)


def without_tokens(page: str) -> str:
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page)


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


def decide(person: str, study: Study, decision: str) -> str:
    """Press the button about the latest proposal of a role; what the next page shows."""
    sequence = RoleChange.chain(study.pk).filter(kind__in=RoleChange.PROPOSALS).last().sequence
    return text(as_(person).post(url("role_change", study, sequence), {decision: "1"}, follow=True))


@pytest.mark.slow
def test_roles_need_an_operator_and_a_member_of_oversight(empty: Study) -> None:
    factories.user_create("nadia")
    people, hers = url("members", empty), Membership.objects.filter(study=empty, user__username="nadia")
    client = as_("operator")
    page = text(client.post(people, {"username": "nadia", "role": "researcher"}, follow=True))
    assert "It waits for somebody who watches the study to confirm it." in page
    assert "Role to be given: nadia, researcher" in page
    assert "Can confirm it: auditor, chair, committee." in page
    assert not hers.exists()
    own = text(client.get(url("role_change", empty, RoleChange.chain(empty.pk).last().sequence)))
    assert "It waits for one of these to confirm it: auditor, chair, committee." in own
    assert "Withdraw the proposal" in own and "Yes, confirm it" not in own
    assert as_("operator").post(url("role_change", empty, 999)).status_code == 404
    sequence = RoleChange.chain(empty.pk).last().sequence
    for person in ("steward", "researcher"):
        assert as_(person).post(url("role_change", empty, sequence), {"confirm": "1"}).status_code == 403
    assert "The change is in effect." in decide("auditor", empty, "confirm")
    assert "does not wait any more" in decide("auditor", empty, "confirm")
    membership = hers.get()
    page = client.get(url("member_remove", empty, membership.pk)).text
    assert "Is nadia no longer researcher?" in page
    assert "once somebody else has confirmed it" in page
    client.post(url("member_remove", empty, membership.pk))
    assert hers.exists()
    assert "The proposal is dropped." in decide("committee", empty, "drop")
    client.post(url("member_remove", empty, membership.pk))
    assert "The proposal is dropped." in decide("operator", empty, "drop")
    client.post(url("member_remove", empty, membership.pk))
    decide("chair", empty, "confirm")
    assert not hers.exists()
    record = text(as_("auditor").get(people))
    assert "nadia researcher taken away operator, confirmed by chair" in record


def test_the_page_names_vacant_roles_and_people_on_both_sides(empty: Study) -> None:
    bare = factories.study_create("bare")
    page = text(as_("olga").get(url("members", bare)))
    assert "Nobody has these roles: chair of the ethics committee, auditor." in page
    assert "olga is operator and data steward" in page
    assert "Nobody has these roles" not in text(as_("operator").get(url("members", empty)))


def test_giving_a_role_does_not_reveal_an_account(empty: Study) -> None:
    factories.user_create("ada@example.org")
    for name in ("ada@example.org", "nobody@example.org"):
        page = as_("operator").post(url("members", empty), {"username": name, "role": "auditor"})
        assert page.status_code == 422
        assert "Nobody with this user name" in page.text


def test_a_name_that_nobody_has_is_pointed_out(empty: Study) -> None:
    page = as_("operator").post(url("members", empty), {"username": "nobody", "role": "auditor"})
    assert page.status_code == 422
    assert "Nobody with this user name" in page.text


def test_the_last_operator_stays(empty: Study) -> None:
    client = as_("operator")
    Membership.objects.filter(study=empty, user__username="olga").delete()
    membership = Membership.objects.get(study=empty, role="operator")
    page = client.post(url("member_remove", empty, membership.pk), follow=True)
    assert "The study needs somebody with the role “operator”." in page.text
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
        (57, 54),
        (62, 62),
        (66, 74),
    ]
    for consequence in ("applies at once", "no change", "only after they consent anew"):
        assert consequence in page.text
    assert EpsilonPolicy.objects.filter(study=study).count() == 1
    client.post(url("policy_new", study), {**EPSILONS, "confirmed": "1"})
    assert EpsilonPolicy.objects.filter(study=study).count() == 2
    assert version_in_force(study) == 1, "it counts only once a second person approves it"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"high": "3"}, "must rise from high to low protection"),
        ({"high": "0"}, "must rise from high to low protection"),
        ({"high": "-1"}, "greater than or equal to 0"),
        ({"low": "11"}, "above this installation&#x27;s cap of 10"),
        ({"average": "nan"}, "Enter a number"),
        ({"reason": " "}, "required"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(study: Study, changes: dict[str, str], message: str) -> None:
    page = as_("committee").post(url("policy_new", study), {**EPSILONS, **changes, "confirmed": "1"})
    assert page.status_code == 422
    assert message in page.text
    assert EpsilonPolicy.objects.filter(study=study).count() == 1


def test_a_second_person_puts_it_in_force(study: Study) -> None:
    as_("committee").post(url("policy_new", study), {**EPSILONS, "confirmed": "1"})
    page = as_("committee").get(url("policy_approve", study, 2))
    assert "You proposed this policy yourself." in page.text
    assert "Yes, put it in force" not in page.text
    page = as_("committee").post(url("policy_approve", study, 2), follow=True)
    assert "approved by a second person" in page.text
    assert version_in_force(study) == 1
    services.membership_add(study=study, user=factories.user_create("conrad"), role=Role.COMMITTEE, acting_user=None)
    assert "Version 2 waits for a second person" in as_("conrad").get(url("policies", study)).text
    as_("conrad").post(url("policy_approve", study, 2))
    assert version_in_force(study) == 2
    assert "waits for a second person" not in as_("conrad").get(url("policies", study)).text


# --- Data -----------------------------------------------------------------------------------------------------------


def test_a_dataset_is_described_without_its_rows(study: Study) -> None:
    dataset = study.datasets.get(kind="private")
    run_draft(study, **TABLE_RUN)
    page = as_("auditor").get(url("dataset", study, dataset.pk)).text
    for words in ("length", "numeric", "a, b, c", "A small run"):
        assert words in page
    assert "p-001" not in page
    assert dataset.digest not in page, "it could be compared with guesses"
    public = study.datasets.get(kind="public")
    assert public.digest in as_("auditor").get(url("dataset", study, public.pk)).text
    listed = as_("auditor").get(url("datasets", study)).text
    assert "import_dataset" in listed
    assert f'<td class="number">{dataset.holders}</td>' in listed


# --- The admin ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", ["release", "sharerecord", "headcount"])
def test_accounts_can_only_be_looked_at(finished: Study, root: Client, model: str) -> None:
    base = f"admin:accounting_{model}"
    row = Release._meta.apps.get_model("accounting", model).objects.first()
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
        ("batch", set()),
        ("query", set()),
        ("studentmodel", set()),
    ],
)
def test_repairs_of_runs_and_data_change_names_and_claims_alone(
    finished: Study, root: Client, model: str, repairable: set[str]
) -> None:
    base = f"admin:training_{model}"
    row = Release._meta.apps.get_model("training", model).objects.first()
    assert root.get(reverse(f"{base}_changelist")).status_code == 200
    page = root.get(reverse(f"{base}_change", args=[row.pk]))
    form: Any = page.context["adminform"].form
    assert set(form.fields) == repairable
    assert root.post(reverse(f"{base}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403


@pytest.fixture
def clerk(db: None) -> User:
    """Somebody who may look at everything in the admin."""
    clerk = factories.user_create("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    return clerk


SECRETS_IN_THE_ADMIN = {
    "accounting_release": {"charges", "charges_digest", "hash", "previous_hash"},
    "training_dataset": {"rows", "holders", "digest", "seen_classes"},
}


@pytest.mark.slow
@pytest.mark.parametrize(("page", "secrets"), SECRETS_IN_THE_ADMIN.items())
def test_the_admin_shows_secrets_to_superusers_alone(
    finished: Study, root: Client, clerk: User, page: str, secrets: set[str]
) -> None:
    row = apps.get_model(*page.split("_")).objects.earliest("pk")
    client, address = as_("clerk"), reverse(f"admin:{page}_change", args=[row.pk])
    shown = {f"field-{name}" for name in secrets}
    assert not [name for name in shown if name in client.get(address).text]
    listed = client.get(reverse(f"admin:{page}_changelist")).text
    assert not [name for name in shown if name in listed]
    for secret in secrets:  # nor can they be guessed by looking for them
        assert client.get(reverse(f"admin:{page}_changelist"), {f"{secret}__isnull": "0"}).status_code == 400
    assert all(name in root.get(address).text for name in shown)


def test_the_admin_still_filters_by_what_it_lists(finished: Study, clerk: User) -> None:
    address = reverse("admin:accounting_release_changelist")
    found = as_("clerk").get(address, {"kind__exact": "model", "study__id__exact": finished.pk})
    assert [release.kind for release in found.context["cl"].queryset] == ["model"]


def test_the_admin_leads_from_no_holder_to_an_account(finished: Study, clerk: User) -> None:
    """There is no page of the account book, and none of who was charged."""
    page = as_("clerk").get(reverse("admin:app_list", args=["accounting"]))
    assert [model["object_name"] for app in page.context["app_list"] for model in app["models"]] == [
        "HeadCount",
        "Release",
        "ShareRecord",
    ]


@pytest.mark.parametrize(
    ("page", "title", "way_back"),
    [
        ("policies", "ε policy: {study} – ", ["Studies", "{study}"]),
        ("policy_new", "Propose a policy: {study} – ", ["Studies", "{study}", "ε policy"]),
        ("study", "{study} – ", ["Studies", "{study}"]),
    ],
)
def test_a_page_is_named_by_its_heading_and_leads_back_to_its_section(
    empty: Study, page: str, title: str, way_back: list[str]
) -> None:
    html = as_(Role.COMMITTEE).get(url(page, empty)).text
    named = html[html.index("<title>") + len("<title>") : html.index("</title>")]
    crumbs = html[html.index('class="breadcrumbs"') : html.index('class="subnav"')]
    assert named.startswith(title.format(study=empty.title))
    links = re.findall(r"<li><a [^>]*>([^<]*)</a></li>", crumbs)
    assert links == [each.format(study=empty.title) for each in way_back]
