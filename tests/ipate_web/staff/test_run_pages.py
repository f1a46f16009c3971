"""Proposing, approving, cancelling and following runs, as seen by staff and researchers."""

import csv
import io
import json
import re
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse
from rest_framework.test import APIClient

from accounting.models import Release
from accounting.shares import share_free, shares
from accounting.verification import study_faults
from consent.models import Role, Study
from consent.permissions import ROLE_PERMISSIONS
from consent.services import membership_add
from ipate_web.staff.proposals import initial_for
from tests import factories
from tests.pages import as_, run_form_filled, run_text, study_with_finished_run, study_with_roles, url
from tests.snapshots import built_once
from tests.training.runs import (
    TABLE_RUN,
    rehearsal_with_table,
    run_approve,
    run_draft,
    run_finish,
    run_planned,
    run_start,
    run_teach,
)
from training.models import ProposalChange, Run
from training.services.drawings import head_counts_enter
from training.services.runs import run_edit, run_withdraw

pytestmark = pytest.mark.django_db


@pytest.fixture
def study() -> Study:
    return study_with_roles()


@pytest.fixture
def finished() -> Run:
    return study_with_finished_run(student_learner="shares").runs.get()


@pytest.fixture
@built_once
def rehearsal() -> Study:
    return factories.members_add(rehearsal_with_table(), operator="operator", researcher="researcher")


@pytest.fixture
def separated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a study in which operators decide about runs and handle neither records nor consents."""
    monkeypatch.setitem(ROLE_PERMISSIONS, Role.OPERATOR, ROLE_PERMISSIONS[Role.OPERATOR] - {"consent.view_group_sizes"})


def filled_in(study: Study, **changes: Any) -> dict[str, Any]:
    """Return the data that a browser sends for the form as it was opened, with ``changes``."""
    teachers = {"method": "pate", "teachers": 6, "aggregator": "gnmax", "aggregator-gnmax-sigma": 10}
    return run_form_filled(study, **{"title": "First", **teachers, **changes})


def test_a_plan_is_checked_changed_and_saved_as_it_was_checked(study: Study) -> None:
    client = as_("operator")
    changes = {"learner": "random_forest", "learner-random_forest-trees": 7, "learner-random_forest-balanced": "on"}
    page = client.post(url("run_new", study), filled_in(study, **changes))
    groups = page.context["plan"].groups
    assert [(group.name, group.teachers) for group, _budget in groups] == [("HIGH", 2), ("AVERAGE", 2), ("LOW", 2)]
    assert "Check the plan for “First”" in page.text and "holders come from head counts" in page.text
    for _group, budget in groups:
        assert f'<td class="number">{budget.cap:.4f}</td>' in page.text
        assert budget.allowed == pytest.approx(0.25 * budget.cap), "the approver's preselected share"
    again = client.post(url("run_new", study), filled_in(study, title="Half-baked", change="1"))
    assert 'value="Half-baked"' in again.text
    assert not Run.objects.exists()
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?', page.text))
    client.post(url("run_new", study), {**hidden, "confirmed": "1"})
    run = Run.objects.get(created_by__username="operator")
    assert (run.status, run.title, run.choices["teachers"]) == ("draft", "First", 6)
    assert run.choices["learner_parameters"] | {"trees": 7, "balanced": True} == run.choices["learner_parameters"]


def test_an_operator_sees_the_plan_and_starts_the_run_with_a_share(study, django_capture_on_commit_callbacks) -> None:
    run = run_draft(study, **TABLE_RUN, purpose="Tell the three classes apart.")
    client = as_("operator")
    page = client.get(url("run_approve", run))
    assert "Tell the three classes apart." in page.text and "100.0 % of every cap is free." in page.text
    assert page.context["form"]["per_cent"].value() == 25
    with django_capture_on_commit_callbacks() as sent:
        client.post(url("run_approve", run), {"per_cent": "40"})
    assert sum("send.<locals>.publish" in repr(callback) for callback in sent) == 1, "the run"
    run = run_planned(Run.objects.get(approved_by__username="operator"))
    assert (run.status, run.share) == (Run.Status.APPROVED, 0.4)
    assert share_free(study) == pytest.approx(0.6)
    assert "40.0 % of every cap" in run_text(client, run)
    overview = client.get(url("study", study)).text
    assert "40.0 % reserved, 60.0 % free" in overview
    again = client.post(url("run_approve", run), follow=True)
    assert "This run is no longer a draft" in again.text


def test_nobody_approves_their_own_run_and_the_page_says_who_does(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN)
    proposer, approval = as_("otto"), url("run_approve", run)
    assert "See the plan" in proposer.get(url("run", run)).text
    for page in (url("run", run), approval):
        html = proposer.get(page).text
        assert "You proposed this run yourself, so another operator must approve it." in html
        assert "Possible approvers in this study: olga, operator." in html
        assert "Approve and start" not in html
    assert "You proposed this run yourself, so another" in proposer.post(approval, follow=True).text
    run.refresh_from_db()
    assert (run.status, run.approved_by) == (Run.Status.DRAFT, None)
    assert "Approve and start" in as_("olga").get(approval).text
    study.memberships.filter(role=Role.OPERATOR).exclude(user__username="otto").delete()
    assert "There is no other operator yet" in proposer.get(url("run", run)).text
    membership_add(study=study, user=factories.user_create("olga"), role=Role.OPERATOR, acting_user=None)
    Run.objects.filter(pk=run.pk).update(created_by=None)
    page = as_("olga").get(approval).text
    assert "The account that proposed this run was deleted," in page and "Approve and start" not in page


def test_cancelling_says_what_stays_and_ends_the_run(study: Study) -> None:
    run = run_teach(run_start(study, **TABLE_RUN))
    client = as_("operator")
    assert "Nothing has been released yet." in client.get(url("run_cancel", run)).text
    run.refresh_from_db()
    assert not run.has_ended, "opening the question changes nothing"
    page = client.post(url("run_cancel", run), follow=True)
    assert "An operator has cancelled the run." in page.text
    run.refresh_from_db()
    assert run.status == Run.Status.CANCELLED
    assert "This run has already ended" in client.post(url("run_cancel", run), follow=True).text


@pytest.fixture
def draft(study: Study) -> Run:
    """Return the researcher's draft."""
    return run_draft(study, proposer=factories.user_create("researcher"), title="First", **TABLE_RUN)


def proposal(run: Run, **changes: Any) -> dict[str, Any]:
    """Return the draft as the API accepts it, with changes."""
    datasets = {name: getattr(run, f"{name}_id") for name in ("private_dataset", "public_dataset", "test_dataset")}
    names = ("title", "method", "variant", "choices", "student_learner", "batch_size")
    return {"study": run.study.slug, **datasets, **{name: getattr(run, name) for name in names}, **changes}


def api_of(name: str) -> APIClient:
    api = APIClient()
    api.force_login(factories.user_create(name))
    return api


def test_the_proposer_changes_a_draft_on_its_page(study: Study, draft: Run) -> None:
    client, edit = as_("researcher"), url("run_edit", draft)
    form = client.get(edit).context["form"]
    assert (form["title"].value(), form["aggregator-gnmax-sigma"].value()) == ("First", 10.0)
    values = {field.html_name: getattr(value := field.value(), "pk", value) for field in form}
    sent = {name: value for name, value in values.items() if value is not None and value is not False}
    assert client.post(edit, sent | {"teachers": 0, "confirmed": "1"}).status_code == 422
    sent |= {"title": "Second", "aggregator-gnmax-sigma": 12}
    checked = client.post(edit, sent)
    assert "Check the plan for “Second”" in checked.text and "Edit draft" in checked.text
    draft.refresh_from_db()
    assert (draft.title, draft.revision) == ("First", 1), "nothing is saved yet"
    for _ in range(2):  # nothing is changed the second time
        client.post(edit, sent | {"confirmed": "1"})
    draft.refresh_from_db()
    assert (draft.title, draft.choices["aggregator"]["sigma"]) == ("Second", 12)
    assert (draft.revision, draft.status) == (2, "draft")
    (change,) = ProposalChange.objects.all()
    assert change.content == [
        {"name": "title", "before": "First", "after": "Second"},
        {"name": "choices.aggregator.sigma", "before": 10.0, "after": 12.0},
    ]
    assert list(study_faults(study)) == [], "it is chained"
    page = client.get(url("run", draft)).text
    assert "Changes to the proposal" in page and "researcher" in page
    assert "Changes to the proposal" in as_("operator").get(url("run_approve", draft)).text


def test_an_unseen_draft_is_not_approved(draft: Run) -> None:
    client, approve = as_("operator"), url("run_approve", draft)
    assert '<input type="hidden" name="revision" value="1">' in client.get(approve).text
    names = ("batch_size", "choices", "variant", "student_learner", "private_dataset", "public_dataset", "test_dataset")
    changed = {name: getattr(draft, name) for name in names} | {"title": "Another", "method": "pate"}
    run_edit(run=draft, acting_user=factories.user_create("researcher"), **changed)
    for revision in (1, "", "two", "9" * 5_000):
        answer = client.post(approve, {"per_cent": 10, "revision": revision}, follow=True)
        assert "The proposal has changed since you opened it" in answer.text
    draft.refresh_from_db()
    assert draft.status == "draft"
    run_approve(run=draft, acting_user=factories.user_create("operator"), share=0.1, revision=2)
    draft.refresh_from_db()
    assert draft.status == "approved"


def test_a_withdrawn_run_stays_withdrawn_and_is_shown_as_such(draft: Run) -> None:
    client = as_("researcher")
    assert "Withdraw “First”?" in client.get(url("run_withdraw", draft)).text
    page = client.post(url("run_withdraw", draft), follow=True).text
    assert "withdrawn</span>" in page and "The person who proposed this run has withdrawn it." in page
    draft.refresh_from_db()
    assert (draft.status, draft.has_ended) == ("withdrawn", True)
    assert run_withdraw(run=draft, acting_user=factories.user_create("researcher")).status == "withdrawn"
    assert ProposalChange.objects.get().kind == "withdrawn"
    with pytest.raises(ValidationError, match="withdrawn"):
        run_approve(run=draft, acting_user=factories.user_create("operator"))
    for page in ("run_edit", "run_withdraw"):
        assert client.get(url(page, draft)).status_code == 302


def test_the_api_changes_and_withdraws_until_the_approval(study: Study, draft: Run) -> None:
    api, operator, address = api_of("researcher"), api_of("operator"), reverse("api:run", args=[draft.pk])
    changed = api.put(address, proposal(draft, title="Second"), format="json")
    assert changed.status_code == 200, changed.content
    assert (changed.json()["title"], changed.json()["revision"]) == ("Second", 2)
    wrong = api.put(address, proposal(draft, choices=draft.choices | {"teachers": 0}), format="json")
    assert wrong.status_code == 400 and wrong.json()["errors"][0]["field"] == "choices.teachers"
    assert operator.put(address, proposal(draft), format="json").status_code == 403
    stale = operator.post(reverse("api:run-approve", args=[draft.pk]), {"revision": 1}, format="json")
    assert stale.status_code == 409 and "changed since" in stale.json()["detail"]
    withdraw = reverse("api:run-withdraw", args=[draft.pk])
    assert operator.post(withdraw).status_code == 403
    assert api.post(withdraw).json()["status"] == "withdrawn"
    assert operator.post(reverse("api:run-cancel", args=[draft.pk])).status_code == 409

    late = run_draft(study, proposer=factories.user_create("researcher"), **TABLE_RUN)
    run_approve(run=late, acting_user=factories.user_create("operator"), share=0.1)
    refused = api.put(reverse("api:run", args=[late.pk]), proposal(late, title="Late"), format="json")
    assert refused.status_code == 409 and "Only a draft can be changed" in refused.json()["detail"]
    refused = api.post(reverse("api:run-withdraw", args=[late.pk]))
    assert refused.status_code == 409 and "Only a draft can be withdrawn" in refused.json()["detail"]
    late.refresh_from_db()
    assert late.status == "approved" and not ProposalChange.objects.filter(run=late.pk).exists()


def test_a_finished_run_shows_public_charges_and_the_student(finished: Run) -> None:
    page, text = as_("committee").get(url("run", finished)), run_text(as_("committee"), finished)
    groups = page.context["groups"]
    assert [(group.name, group.epsilon) for group in groups] == [("HIGH", 1), ("AVERAGE", 2), ("LOW", 3)]
    for group in groups:
        assert 0 < group.spent_share <= group.allowed_share
        assert f'<td class="number">{group.cap:.4f}</td>' in text
        assert f'<td class="number">{100 * group.spent_share:.1f} %</td>' in text
        assert f"promised and kept: ε {group.epsilon:g}, for everything that the study releases" in text
    (drawn,) = re.findall(r'id="costs-data" type="application/json">(.*?)</script>', text)
    assert json.loads(drawn)["series"][2]["values"][-1] == pytest.approx(groups[2].spent_share)
    released = Release.objects.filter(run=finished.pk, kind="labels").order_by("batch")
    assert groups[0].spent == pytest.approx(sum(release.content["charges"][0] for release in released))
    assert page.context["classes"].x == ["a", "b", "c"]
    card = finished.student.card
    assert f"ridge penalty: {card['learner']['chosen']['penalty']:.2g}" in text
    card["evaluation"]["classes"][1]["precision"] = None
    finished.student.save()
    classes = as_("researcher").get(url("run", finished)).context["classes"]
    assert classes.document["series"][1]["values"][1] is None, "a class that the student never predicts has no bar"


def test_operator_sees_the_same_of_runs_as_every_reader(study: Study, separated: None) -> None:
    """So they see no secrets: 30 holders have consented, and the head counts say 20 at each level."""
    counts = dict.fromkeys(("HIGH", "AVERAGE", "LOW"), 20)
    head_counts_enter(study=study, acting_user=factories.user_create("olga"), counts=counts)
    roles = ("operator", "researcher")
    assert initial_for(study)["aggregator-gnmax-sigma"] == 1.0, "for 5 teachers, of about 13 holders each"
    for page in [as_(role).post(url("run_new", study), filled_in(study)) for role in roles]:
        assert [group.holders for group, _budget in page.context["plan"].groups] == [20, 20, 20]
        assert not tells_thirty(page.text)
    run = run_finish(run_start(study, **TABLE_RUN))
    for address in (url("run_tab", run, "cost"), f"{url('run_live', run)}?tab=cost"):
        shown = [as_(role).get(address).text.partition('id="run-live"')[2] for role in roles]
        for text in shown:
            assert "Charges by group" in text
            assert "accuracy of teachers" not in text.lower() and "teachers&#x27; accuracy" not in text.lower()
            assert "Not for publication." not in text and not tells_thirty(text)
        tables = [re.findall(r"<td[^>]*>(.*?)</td>", text) for text in shown]
        assert tables[0] == tables[1] != []


def test_exact_numbers_are_for_those_who_handle_records_and_consents(study: Study, separated: None) -> None:
    # Public numbers that pages may show, all different from the exact ones.
    counts = {"HIGH": 12, "AVERAGE": 11, "LOW": 13}
    head_counts_enter(study=study, acting_user=factories.user_create("olga"), counts=counts)
    run, dataset = run_start(study, **TABLE_RUN), study.datasets.get(kind="private")
    addresses = [url(name, study) for name in ("study", "datasets", "policies", "head_counts", "runs")]
    for address in (*addresses, url("dataset", study, dataset.pk), url("run", run)):
        text = as_("operator").get(address).text
        assert "Who takes part" not in text and not tells_thirty(text), address
    assert as_("operator").get(url("recruitment", study)).status_code == 403
    for address in (url("run", run), url("run_approve", run_draft(study, **TABLE_RUN))):
        assert "30 rows" not in as_("olga").get(address).text, "pages for deciding about runs show it to nobody"


def tells_thirty(page: str) -> bool:
    """Return whether a page says how many people take part."""
    return "30" in re.findall(r">\s*(\d+)\s*<", page) or "30 holders" in page or "30 rows" in page


def test_everybody_reads_why_a_run_failed_and_staff_why_it_waits(study: Study) -> None:
    waits, failed = "Waiting for another run of this study.", "No label was released."
    waiting, ended = run_start(study, share=0.5, **TABLE_RUN), run_draft(study, **TABLE_RUN)
    Run.objects.filter(pk=waiting.pk).update(message=waits)
    Run.objects.filter(pk=ended.pk).update(status="failed", message=failed)
    for role in ("operator", "researcher"):
        assert (waits in as_(role).get(url("run", waiting)).text) == (role == "operator")
        assert failed in as_(role).get(url("run", ended)).text
    assert "Ask one of the study's operators what to do." in as_("researcher").get(url("run", ended)).text


def test_labels_are_listed_and_taken_away_with_their_class(finished: Run) -> None:
    finished.queries.filter(row=0).update(label=None)
    finished.queries.filter(row=2).update(reinforced=True)
    Run.objects.filter(pk=finished.pk).update(reinforced=1)
    client, classes = as_("researcher"), finished.public_dataset.classes
    page = client.get(url("run_labels", finished))
    label = finished.queries.get(row=1).label
    assert label is not None
    assert [shown for _, shown in page.context["rows"]][:2] == [None, classes[label]]
    rejected = client.get(url("run_labels", finished), {"show": "rejected"})
    assert [query.row for query, _ in rejected.context["rows"]] == [0]
    own = client.get(url("run_labels", finished), {"show": "reinforced"})
    assert [query.row for query, _ in own.context["rows"]] == [2]
    assert "1 reinforced" in page.text
    assert "as CSV" in run_text(client, finished)
    assert "as CSV" not in run_text(as_("auditor"), finished)
    answer = client.get(url("run_labels_file", finished, "csv"))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="table-a-small-run-labels.csv"'
    answered = finished.queries.exclude(label=None).order_by("row")
    lines = [[str(query.row), classes[query.label or 0], str(int(query.reinforced))] for query in answered]
    expected = [["row", "label", "reinforced"], *lines]
    assert list(csv.reader(io.StringIO(answer.text))) == expected


EPSILONS = {"HIGH": 1, "AVERAGE": 2, "LOW": 3}
LEVELS = dict.fromkeys(("HIGH-share", "AVERAGE-share", "LOW-share"), 1)
LEVELS |= {f"{level}-epsilon": epsilon for level, epsilon in EPSILONS.items()}


def test_a_rehearsal_is_proposed_approved_and_finished_without_a_share(rehearsal: Study) -> None:
    changes = {**LEVELS, "counted": "data_independent", "conversion": "classic", "seed": 7, "variant": "vanishing"}
    sent = filled_in(rehearsal, **changes)
    page = as_("operator").post(url("run_new", rehearsal), sent)
    assert page.status_code == 200, page.context["form"].errors
    assert "Cap μ²" not in page.text and "The share pays for" not in page.text
    as_("operator").post(url("run_new", rehearsal), {**sent, "confirmed": "1"})
    run = Run.objects.get()
    assert (run.seed, run.rehearsal, run.variant) == (7, True, "vanishing")
    assert (run.rehearsed["method"], run.rehearsed["conversion"]) == ("data_independent", "classic")
    assert run.rehearsed["levels"]["LOW"] == {"share": 1, "epsilon": 3}
    assert "per_cent" not in as_("olga").get(url("run_approve", run)).text
    answer = as_("olga").post(url("run_approve", run), follow=True)
    assert "as soon as a worker has calculated its plan" in answer.text
    run = run_finish(Run.objects.get())
    assert run.status == Run.Status.FINISHED, run.message
    assert "Hypothetical cost for each level" in run_text(as_("researcher"), run)
    assert not Release.objects.exists() and shares(rehearsal) == {}


#: Return the data that a browser sends for the form as it was opened.
asked = partial(run_form_filled, title="Asked", method="neighbours")


@pytest.fixture
def larger() -> Study:
    return study_with_roles(holders=60)


def test_the_plan_shows_rounds_noise_and_forecast(larger: Study) -> None:
    form = as_("operator").get(url("run_new", larger)).context["form"]
    for name in ("sigma", "radius_share", "first_queries"):
        assert form[f"asking-{name}"].value() is None, "the forecast chooses what is not set"
    page = as_("operator").post(url("run_new", larger), asked(larger, **{"asking-rounds": 2}))
    assert page.status_code == 200, page.context["form"].errors
    assert not Run.objects.exists()
    plan = page.context["plan"]
    assert [each.queries for each in plan.rounds] == [6, 6]
    votes = f'<td class="number">{plan.turnout.levels[0].votes_allowed}</td>'
    for words in ("Votes in the first round", "labelled points of the test dataset", votes):
        assert words in page.text, words
    unlabelled = as_("operator").post(url("run_new", larger), asked(larger, test_dataset=None)).text
    assert "Assumes that half to nine tenths of the voters" in unlabelled


def test_choices_are_saved_and_proposed_again(larger: Study) -> None:
    client, new = as_("operator"), url("run_new", larger)
    changes = {
        "asking-representation": "embedding", "asking-stated-embedding": "on", "asking-rounds": 2,
        "asking-first_queries": 4, "asking-embedded": "on", "asking-sigma": 7.5, "asking-radius_share": 2.5,
        "asking-kernel": "epanechnikov", "asking-records": 1.5, "asking-batch_size": 40, "wanted_labels": 9,
    }  # fmt: skip
    page = client.post(new, asked(larger, **changes))
    assert page.status_code == 200, page.context["form"].errors
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?', page.text))
    client.post(new, {**hidden, "confirmed": "1"})
    run = Run.objects.get()
    assert (run.method, run.variant, run.batch_size, run.wanted_labels) == ("neighbours", "", 40, 9)
    assert run.choices == {
        "representation": "embedding", "representation_parameters": {}, "stated": True, "rounds": 2,
        "first_queries": 4, "embedded": True, "sigma": 7.5, "radius_share": 0.025, "kernel": "epanechnikov",
        "records": 1.5, "encoder": "",
    }  # fmt: skip
    assert "Radius, as the percentage of public points within it</dt><dd>2.5 %" in client.get(url("run", run)).text
    form = client.get(new, {"like": str(run.pk)}).context["form"]
    offered = changes | {"asking-stated-embedding": None, "asking-embedded": True}
    assert {name: form[name].value() for name in offered} == offered


def test_operators_and_stewards_state_where_public_points_come_from(larger: Study) -> None:
    public, private = larger.datasets.get(kind="public"), larger.datasets.get(kind="private")
    message = "The source of the public points is missing"
    assert message in as_("operator").post(url("run_new", larger), asked(larger)).text
    for role, expected in (("operator", 302), ("steward", 302), ("auditor", 403), ("committee", 403)):
        answer = as_(role).post(url("dataset", larger, public.pk), {"provenance": f"As {role} says."})
        assert answer.status_code == expected, role
        shown = as_(role).get(url("dataset", larger, public.pk)).text
        assert ('name="provenance"' in shown) == (expected == 302)
        assert as_(role).post(url("dataset", larger, private.pk), {"provenance": "x"}).status_code == 403
    public.refresh_from_db()
    assert public.provenance == "As steward says." and public.provenance in shown
    assert as_("steward").post(url("dataset", larger, public.pk), {"provenance": "x" * 2001}).status_code == 422
    assert message not in as_("operator").post(url("run_new", larger), asked(larger)).text
