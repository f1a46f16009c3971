"""The pages of a study: overview, basics, people, texts, levels, data, ledger; and the admin."""

import csv
import io
import re
from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounting.group_budgets import head_counts
from accounting.models import HeadCount, Release, ShareRecord
from accounting.shares import shares
from consent import services
from consent.models import ConsentForm, DataHolder, Disposal, Study
from consent.services.erasures import erasure_state
from consent.services.invitations import invitations_create
from tests import factories
from tests.pages import (
    as_,
    person_confirm,
    roles_fill,
    run_form_filled,
    study_with_finished_run,
    study_with_roles,
    text,
    url,
)
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_draft, run_finish, run_start, study_with_table
from training.engine.records import owners_of
from training.models import Dataset
from training.selectors import run_groups
from training.services.erasures import records_erase

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return study_with_roles()


@pytest.fixture
@built_once
def empty() -> Study:
    return roles_fill(factories.study_create("empty"))


@pytest.fixture
def finished() -> Study:
    return study_with_finished_run()


BASICS = {
    "title": "Sleep & Rest",
    "purpose": "Find out which nights are followed by good days.",
    "controller": "University Hospital",
    "contact": "sleep@example.org",
}


@pytest.fixture
def root() -> Client:
    factories.user_create("root", is_superuser=True, is_staff=True)
    return as_("root")


def test_a_study_begins_with_five_questions_and_errors_are_next_to_their_fields(root: Client) -> None:
    new = reverse("staff:study_new")
    assert [field.name for field in root.get(new).context["form"].questions] == [*BASICS, "rehearsal"]
    for field, value, message in (
        ("slug", "new", "This name is reserved"),
        ("slug", "two words", "Use only letters"),
        ("title", "", "required"),
        ("contact", "nobody", "name@example.org"),
    ):
        page = root.post(new, {**BASICS, field: value})
        assert page.status_code == 422, field
        assert message in str(page.context["form"].errors[field]), field
        assert not Study.objects.exists()
    for slug, sent in (("sleep-rest", {}), ("sleep-rest-2", {}), ("study", {"title": "睡眠", "rehearsal": "on"})):
        answer = root.post(new, {**BASICS, **sent})
        study = Study.objects.get(slug=slug)
        assert answer.headers["Location"] == url("study" if study.rehearsal else "people_new", study)
        assert (study.delta, study.rehearsal) == (1e-5, "rehearsal" in sent)
    (member,) = Study.objects.get(slug="sleep-rest").memberships.all()
    assert (member.user.username, member.role) == ("root", "operator")


def test_an_administrator_appoints_the_people_of_a_study_and_leaves_it(root: Client) -> None:
    page = root.post(reverse("staff:study_new"), BASICS).url
    study = Study.objects.get()
    assert page == url("people_new", study)
    name = {"first_name": "N.", "last_name": "Ew"}
    people = [
        {"role": "operator", "username": "olga", "email": "olga@example.org", **name},
        {"role": "data_steward", "username": "sven", "email": "s@example.org", **name},
        {"role": "researcher", "username": "rita"},
        {"role": "chair", "username": "clara"},
        {"role": "ethics_committee", "username": "carla", "email": "c@example.org", **name},
    ]
    for row, form in zip(people, root.get(page).context["rows"], strict=False):
        row["role"] = form.initial["role"]
    empty = {"people-TOTAL_FORMS": "8", "people-INITIAL_FORMS": "5", "leaves": "on"}

    def sent() -> dict[str, str]:
        return empty | {f"people-{n}-{name}": text for n, row in enumerate(people) for name, text in row.items()}

    refused = root.post(page, sent())
    assert refused.status_code == 422 and "There is no account with this user name" in refused.text
    assert not study.memberships.filter(role="researcher")
    for name in ("clara", "rita"):
        factories.user_create(name)
    assert root.post(page, sent()).url == url("members", study)
    given = {(each.user.username, each.role) for each in study.memberships.select_related("user")}
    assert given == {(row["username"], row["role"]) for row in people}, "nothing waits for a second person"
    assert as_("olga").get(page).status_code == 403 and root.get(page).status_code == 200


def test_settings_come_in_parts_and_begin_with_what_is_missing(root: Client) -> None:
    root.post(reverse("staff:study_new"), BASICS)
    study = Study.objects.get()
    first = root.get(url("study_edit", study)).context
    assert first["part"].name == "missing" and "officer" in "".join(first["form"].fields)
    contact = root.get(url("study_edit", study, "contact")).context["form"]
    rows = [[field.name for field in row] for row in contact.rows]
    assert ["contact_hours", "contact_hours_de"] in rows and ["controller_address"] in rows
    assert root.get(url("study_edit", study, "nothing")).status_code == 404
    sent = {"controller_address": "Road 1", "supervisory_authority": "Authority", "without_officer": "on"}
    sent |= {"data_categories": "Nights.", "data_source": "Watches.", "retention": "A year."}
    sent |= {"without_recipients": "on", "retention_de": "Ein Jahr."}
    assert root.post(url("study_edit", study, "missing"), sent).url == url("study", study)
    assert root.get(url("study_edit", study)).context["part"].name == "about", "nothing is missing"
    wrong = root.post(url("study_edit", study, "privacy"), {"delta": "0.5"})
    assert wrong.status_code == 422 and "less than or equal" in str(wrong.context["form"].errors["delta"])
    found = root.get(url("study_edit", study), {"field": "delta"}).context["part"]
    root.post(url("study_edit", study, "privacy"), {"delta": "1e-6"})
    study.refresh_from_db()
    assert (found.name, study.title, study.purpose) == ("privacy", BASICS["title"], BASICS["purpose"])
    assert study.translations == {"de": {"retention": "Ein Jahr."}}, "parts without texts keep it"


def test_a_rehearsal_asks_nobody() -> None:
    study, message = roles_fill(rehearsal_with_table()), "A rehearsal study does not ask people for consent"
    page = as_("operator").get(url("study", study))
    assert [step.done for step in page.context["steps"]] == [True, False, False]
    for words in ("Who takes part", "every holder&#x27;s cap", "Head counts"):
        assert words not in page.text
    for name in ("recruitment", "policies", "consent_forms", "invitations", "ledger"):
        assert f'href="{url(name, study)}"' not in page.text
    values = {"high": "0.5", "average": "2", "low": "5", "reason": "To try.", "confirmed": "1"}
    assert message in as_("committee").post(url("policy_new", study), values).text
    assert message in as_("steward").post(url("invitations", study), {"pseudonyms": "P-1", "open_places": "0"}).text
    client = as_("operator")
    client.post(url("consent_form_new", study), {"en": "# What we ask\nYour records.", "publish": "1"})
    seen = client.get(url("consent_form_publish", study)).context["form"]["seen"].value()
    assert message in client.post(url("consent_form_publish", study), {"seen": seen}, follow=True).text
    assert not study.consent_forms.exists()


def test_an_empty_study_says_what_comes_next(empty: Study) -> None:
    def done(role: str = "operator") -> list[bool]:
        return [step.done for step in as_(role).get(url("study", empty)).context["steps"]]

    assert done() == [True, True, False, False, True, *[False] * 7], "people, facts and an example of harm exist"
    factories.form_publish(empty)
    factories.policy_approve(empty)
    invitations_create(study=empty, acting_user=None, pseudonyms=["P-1"])
    assert done() == [*[True] * 7, *[False] * 5], "decision-makers do not learn that someone was asked"
    assert done("steward") == [*[True] * 7, False, True, *[False] * 3]


def test_the_overview_counts_holders_and_shares(study: Study) -> None:
    run = run_finish(run_start(study, share=0.5, **TABLE_RUN))
    run_start(study, share=0.25, **TABLE_RUN, title="Waiting")
    factories.holder_create(study, "undecided")
    page = as_("auditor").get(url("study", study))
    assert page.context["levels"] == [("high protection", 10), ("average protection", 10), ("low protection", 10)]
    assert page.context["taking_part"] == 30 and "Not decided: 1 " in page.text
    rows = page.context["budgets"].rows
    assert [row.name for row in rows] == ["High protection", "Average protection", "Low protection"]
    for row, group in zip(rows, run_groups(run), strict=True):
        assert row.group.share_used == pytest.approx(group.spent_share) and row.group.share_reserved == 0.25
        looks = ["use-1", "reserved", "left"]
        assert [(part.look, float(part.width)) for part in row.segments] == [
            (look, pytest.approx(100 * share, abs=1e-3))
            for look, share in zip(looks, (row.group.share_used, 0.25, row.group.share_left), strict=True)
        ]
    assert page.context["share_free"] == pytest.approx(0.75 - shares(study)[run.pk].used)
    assert f'hx-get="{url("study_budgets", study)}"' in page.text, "a run is in progress"
    assert "running low" not in page.text
    client = as_("operator")
    sent = {"delta": study.delta, "budget_warning": "0.9"}
    assert client.post(url("study_edit", study, "privacy"), sent).url == url("study", study)
    low = "The budget is running low for High protection"
    assert low in text(client.get(url("study_budgets", study))) and low in text(client.get("/"))
    file = list(csv.DictReader(io.StringIO(client.get(url("study_budget_file", study)).text)))
    assert float(file[0]["share"]) == rows[0].group.uses[0].share
    chart = as_("auditor").get(url("recruitment", study), headers={"accept-language": "de"}).context["chart"]
    assert chart.x == [timezone.localdate().strftime("%d.%m.%Y")]
    page = as_("auditor").get(url("study", study))
    assert page.context["head_counts"] == head_counts(study) and page.context["steps"] == []
    for odds in (57, 62, 66):
        assert f'<td class="number">{odds} in 100</td>' in page.text


def test_the_overview_takes_few_queries(finished: Study, django_assert_max_num_queries) -> None:
    for person, most in (("operator", 35), ("steward", 45), ("chair", 33)):
        client = as_(person)
        client.get(url("study", finished))
        with django_assert_max_num_queries(most):
            client.get(url("study", finished))


def test_a_researcher_has_an_overview_of_what_they_can_use_and_of_who_acts(finished: Study) -> None:
    run_draft(finished, **TABLE_RUN)
    page = as_("researcher").get(url("study", finished))
    assert [(task.text, str(actor)) for task, actor in page.context["others"]] == [("Run: A small run", "an operator")]
    for words in ("What a run can use", "Published models", f'href="{url("run_new", finished)}"'):
        assert words in page.text
    for hidden in (url("study_budgets", finished), url("dataset", finished, 1)[:-2], url("study_edit", finished)):
        assert hidden not in page.text
    tasks = as_("operator").get(url("study", finished)).context["tasks"]
    assert [task.text for task in tasks if task.kind == "run"] == ["Run: A small run"]


def test_holders_asked_by_a_new_form_stay_in_the_numbers(study: Study) -> None:
    factories.form_publish(study, {"en": "More."}, renewal="required")
    message = "The consents of 30 people have ended or are suspended, so their records are not used"
    for page in ("study", "recruitment"):
        assert message in re.sub(r"\s+", " ", as_("auditor").get(url(page, study)).text)


def test_editable_fields_do_not_reveal_decisions(empty: Study) -> None:
    """δ and the texts become fixed as soon as a form and a policy are both in force."""
    factories.policy_approve(empty, effective_from=timezone.now() + timedelta(days=1))
    factories.form_publish(empty)
    client, address = as_("operator"), url("study_edit", empty, "privacy")
    assert "delta" in client.get(address).context["form"].fields, "the policy is not in force yet"
    services.study_update(study=empty, delta=2e-6)
    factories.policy_approve(empty)

    def shown() -> tuple[str, dict[str, list[str]]]:
        with pytest.raises(ValidationError, match="Data holders base their decisions on this") as refused:
            services.study_update(study=empty, delta=3e-6)
        page = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", client.get(address).text)
        return page, refused.value.message_dict

    before = shown()
    assert 'name="delta"' not in before[0]
    holder = factories.holder_create(empty)
    services.consent_give(holder=holder, level="HIGH", form=empty.consent_forms.get(), acting_user=None)
    assert shown() == before


def test_giving_a_role_does_not_reveal_an_account(empty: Study) -> None:
    factories.user_create("ada@example.org")
    for name in ("ada@example.org", "nobody@example.org"):
        page = as_("operator").post(url("members", empty), {"username": name, "role": "auditor"})
        assert page.status_code == 422
        assert "No active account has this user name" in page.text


def test_a_dataset_is_described_without_its_rows(study: Study) -> None:
    dataset = study.datasets.get(kind="private")
    run_draft(study, **TABLE_RUN)
    page = as_("auditor").get(url("dataset", study, dataset.pk)).text
    for words in ("length", "<td>number</td>", "a, b, c", "A small run"):
        assert words in page
    assert "p-001" not in page
    assert dataset.digest not in page, "it could be compared with guesses"
    public = study.datasets.get(kind="public")
    assert public.digest in as_("auditor").get(url("dataset", study, public.pk)).text
    listed = as_("auditor").get(url("datasets", study)).text
    assert "import_dataset" in listed
    assert f'<td class="number">{dataset.holders}</td>' in listed


@pytest.fixture
@built_once
def ending() -> Study:
    return roles_fill(study_with_table(holders=6))


def test_a_steward_erases_records_of_a_nonparticipant(ending: Study) -> None:
    steward, auditor, page = as_("steward"), as_("auditor"), url("disposals", ending)
    holder = DataHolder.objects.get(study=ending, pseudonym="p-001")
    sent = {"pseudonym": "p-001", "reason": "Her letter of 3 March."}
    assert "Withdraw first" in person_confirm(steward, page, sent).text
    services.consent_withdraw(holder=holder, acting_user=None, keep=True)
    assert "This pseudonym does not exist in this study" in steward.post(page, sent | {"pseudonym": "p-9"}).text
    assert auditor.post(page, sent).status_code == 403
    shown = steward.post(page, sent)
    assert shown.status_code == 200 and "Is this the person?" in shown.text and "Her letter of 3 March." in shown.text
    assert not erasure_state(holder).requested_at, "nothing is recorded before someone confirms"
    other = DataHolder.objects.exclude(pk=holder.pk).filter(study=ending)[0]
    assert steward.post(page, sent | {"person": str(other.public_id)}).status_code == 200, "another was shown"
    assert person_confirm(steward, page, sent).status_code == 302
    records_erase(ending.pk)
    assert holder.pk not in owners_of(Dataset.objects.get(study=ending, kind="private"))
    seen = auditor.get(page).text
    assert "Her letter of 3 March." in seen and "steward" in seen
    assert "p-001" not in seen and 'name="pseudonym"' not in seen
    assert "This pseudonym does not exist" not in steward.post(page, sent).text, "the pseudonym still finds them"


def test_a_study_is_closed_once_with_a_last_day_and_then_offers_nothing_that_is_refused(ending: Study) -> None:
    olga, sent = as_("olga"), run_form_filled(ending, title="Typed at length")
    offers = {
        ("olga", "runs"): "run_new",
        ("olga", "consent_forms"): "consent_form_new",
        ("olga", "study"): "head_counts",
        ("steward", "invitations"): "invitations_everyone",
        ("chair", "policies"): "policy_new",
    }
    services.holders_register(study=ending, pseudonyms=["P-9"])
    for (who, name), offer in offers.items():
        assert f'href="{url(offer, ending)}' in as_(who).get(url(name, ending)).text, offer
    close = url("study_close", ending)
    assert "You cannot reopen a closed study" in olga.get(close).text
    assert olga.post(close, {"reason": "Done."}).status_code == 422
    last = timezone.localdate() + timedelta(days=9)
    assert olga.post(close, {"reason": "Done.", "erase_after": last.isoformat()}).status_code == 302
    assert close not in olga.get(url("study", ending)).text and olga.get(close).status_code == 302
    (row,) = Disposal.objects.filter(study=ending)
    assert (row.kind, row.reason, row.recorded_by.username) == ("closed", "Done.", "olga")
    for (who, name), offer in offers.items():
        page = as_(who).get(url(name, ending)).text
        assert page.count("It no longer learns anything new") == 1 and f'href="{url(offer, ending)}' not in page, offer
    form = ConsentForm.objects.get(study=ending)
    assert olga.post(url("consent_form_publish", ending), {"seen": form.digest}).status_code == 302
    page = olga.post(url("run_new", ending), sent | {"confirmed": "1"})
    assert page.status_code == 422 and "It no longer invites people, stores new data or" in page.text
    assert 'value="Typed at length"' in page.text and not ending.runs.exists()


def test_the_summary_says_data_purposes_levels_risks_and_who_decided() -> None:
    study = factories.study_open(recipients="The archive | Acme.", title="Digits *and* more")
    olga, pdf, md = as_("olga"), url("study_impact", study, "pdf"), url("study_impact", study, "md")
    assert pdf in olga.get(url("study", study)).text and olga.get(pdf).content.startswith(b"%PDF-")
    assert olga.get(url("study_impact", study, "html")).status_code == 404
    answer = olga.get(md)
    assert answer["Content-Disposition"] == 'attachment; filename="digits-impact.md"'
    for part in (
        "| Purpose | Learn to read handwritten digits. |",
        "| Who else sees raw records | The archive \\| Acme. |",
        "| High protection | 1 | 56 | 61 |",
        "| Consent form, version 1 | olga | conrad |",
        study.consent_forms.get().digest[:16],
        "| ε policy, version 1 | carla | conrad |",
    ):
        assert part in answer.text, part
    for name in ("carla", "conrad"):
        factories.user_create(name).delete()
    assert "| ε policy, version 1 | deleted account | deleted account |" in olga.get(md).text


def test_accounts_can_only_be_looked_at(finished: Study, root: Client, clerk: User) -> None:
    """The account book and the charges have no page."""
    for model in (HeadCount, Release, ShareRecord):
        base, row = f"admin:accounting_{model._meta.model_name}", model.objects.first()
        assert root.get(reverse(f"{base}_changelist")).status_code == 200
        assert root.get(reverse(f"{base}_change", args=[row.pk])).status_code == 200
        assert root.post(reverse(f"{base}_change", args=[row.pk]), {}).status_code == 403
        assert root.post(reverse(f"{base}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
        assert root.get(reverse(f"{base}_add")).status_code == 403
    page = as_("clerk").get(reverse("admin:app_list", args=["accounting"]))
    listed = [model["object_name"] for app in page.context["app_list"] for model in app["models"]]
    assert listed == ["HeadCount", "Release", "ShareRecord"]


@pytest.fixture
def clerk(db: None) -> User:
    """Return someone who may view everything in the admin."""
    clerk = factories.user_create("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    return clerk


SECRETS_IN_THE_ADMIN = {
    "accounting_release": {"charges", "charges_digest", "hash", "previous_hash"},
    "training_dataset": {"rows", "holders", "digest", "seen_classes"},
}


def test_the_admin_shows_secrets_only_to_superusers(finished: Study, root: Client, clerk: User) -> None:
    client = as_("clerk")
    for page, secrets in SECRETS_IN_THE_ADMIN.items():
        row = apps.get_model(*page.split("_")).objects.earliest("pk")
        address, listing = reverse(f"admin:{page}_change", args=[row.pk]), reverse(f"admin:{page}_changelist")
        shown = {f"field-{name}" for name in secrets}
        for seen in (client.get(address).text, client.get(listing).text):
            assert not [name for name in shown if name in seen]
        for secret in secrets:  # nor can they be guessed by searching for them
            assert client.get(listing, {f"{secret}__isnull": "0"}).status_code == 400
        assert all(name in root.get(address).text for name in shown)
    found = client.get(reverse("admin:accounting_release_changelist"), {"kind__exact": "model"})
    assert [release.kind for release in found.context["cl"].queryset] == ["model"], "lists can be filtered by it"
