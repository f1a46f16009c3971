"""Changing and withdrawing a draft: on pages and over the API, by its proposer alone, until it is approved."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse
from rest_framework.test import APIClient

from accounting.verification import study_faults
from consent.models import Study
from tests import factories
from tests.ipate_web.staff.test_run_pages import filled_in
from tests.pages import as_, study_with_roles, url
from tests.training.runs import TABLE_RUN, run_draft
from training.models import ProposalChange, Run
from training.services.drafts import run_edit, run_withdraw
from training.services.runs import run_approve

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
def study() -> Study:
    return study_with_roles()


@pytest.fixture
def draft(study: Study) -> Run:
    """Of the researcher."""
    return run_draft(study, proposer=factories.user_create("researcher"), title="First", **TABLE_RUN)


def proposal(run: Run, **changes: Any) -> dict[str, Any]:
    """The draft as the API takes it, with changes."""
    datasets = {name: getattr(run, f"{name}_id") for name in ("private_dataset", "public_dataset", "test_dataset")}
    names = ("title", "method", "variant", "choices", "student_learner", "batch_size")
    return {"study": run.study.slug, **datasets, **{name: getattr(run, name) for name in names}, **changes}


def test_the_proposer_changes_a_draft_on_its_page(study: Study, draft: Run) -> None:
    client = as_("researcher")
    form = client.get(url("run_edit", draft)).context["form"]
    assert (form["title"].value(), form["aggregator-gnmax-sigma"].value()) == ("First", 10.0)
    sent = {
        field.html_name: getattr(value := field.value(), "pk", value)
        for field in form
        if field.value() is not None and field.value() is not False
    } | {"title": "Second", "aggregator-gnmax-sigma": 12}
    checked = client.post(url("run_edit", draft), sent)
    assert "Check the plan of “Second”" in checked.text and "Change the draft" in checked.text
    draft.refresh_from_db()
    assert draft.title == "First", "nothing is saved yet"
    client.post(url("run_edit", draft), sent | {"confirmed": "1"})
    draft.refresh_from_db()
    assert (draft.title, draft.choices["aggregator"]["sigma"], draft.revision, draft.status) == (
        "Second",
        12,
        2,
        "draft",
    )
    (change,) = ProposalChange.objects.all()
    assert change.content == [
        {"name": "title", "before": "First", "after": "Second"},
        {"name": "choices.aggregator.sigma", "before": 10.0, "after": 12.0},
    ]
    assert list(study_faults(study)) == [], "it is chained"
    page = client.get(url("run", draft)).text
    assert "Changes of the proposal" in page and "researcher" in page
    assert "Changes of the proposal" in as_("operator").get(url("run_approve", draft)).text
    client.post(url("run_edit", draft), sent | {"confirmed": "1"})
    assert ProposalChange.objects.count() == 1, "nothing was changed"


def test_a_refused_edit_changes_nothing(draft: Run) -> None:
    sent = filled_in(draft.study, teachers=0, confirmed="1")
    assert as_("researcher").post(url("run_edit", draft), sent).status_code == 422
    with pytest.raises(ValidationError):
        run_edit(run=draft, acting_user=factories.user_create("researcher"), title="")
    draft.refresh_from_db()
    assert (draft.title, draft.revision) == ("First", 1)


def test_nobody_else_changes_or_withdraws_it(draft: Run) -> None:
    for page in ("run_edit", "run_withdraw"):
        assert as_("operator").get(url(page, draft)).status_code == 403
        assert as_("operator").post(url(page, draft), {"confirmed": "1"}).status_code == 403
    for act in (run_edit, run_withdraw):
        with pytest.raises(ValidationError, match="Somebody else proposed this run"):
            act(run=draft, acting_user=factories.user_create("operator"))
    page = as_("operator").get(url("run", draft)).text
    assert url("run_edit", draft) not in page and url("run_cancel", draft) in page


def test_an_unseen_draft_is_not_approved(draft: Run) -> None:
    page = as_("operator").get(url("run_approve", draft))
    assert '<input type="hidden" name="revision" value="1">' in page.text
    values = {field.attname: getattr(draft, field.attname) for field in Run._meta.fields}
    kept = {name: values[name] for name in ("title", "batch_size", "choices", "variant")}
    changed = kept | {"title": "Another", "student_learner": draft.student_learner, "method": "pate"}
    changed |= {name: getattr(draft, name) for name in ("private_dataset", "public_dataset", "test_dataset")}
    run_edit(run=draft, acting_user=factories.user_create("researcher"), **changed)
    answer = as_("operator").post(url("run_approve", draft), {"per_cent": 10, "revision": 1}, follow=True)
    assert "The proposal was changed since you looked." in answer.text
    draft.refresh_from_db()
    assert draft.status == "draft"
    run_approve(run=draft, acting_user=factories.user_create("operator"), share=0.1, revision=2)
    draft.refresh_from_db()
    assert draft.status == "approved"


def test_a_revision_of_thousands_of_digits_is_no_error(draft: Run) -> None:
    sent = {"per_cent": 10, "revision": "9" * 5_000}
    assert as_("operator").post(url("run_approve", draft), sent).status_code == 302


def test_a_withdrawn_run_is_shown_as_such_and_stays_so(study: Study, draft: Run) -> None:
    client = as_("researcher")
    assert "Withdraw “First”?" in client.get(url("run_withdraw", draft)).text
    page = client.post(url("run_withdraw", draft), follow=True).text
    assert "withdrawn</span>" in page and "Its proposer has withdrawn the proposal." in page
    draft.refresh_from_db()
    assert (draft.status, draft.has_ended) == ("withdrawn", True)
    assert run_withdraw(run=draft, acting_user=factories.user_create("researcher")).status == "withdrawn"
    assert ProposalChange.objects.get().kind == "withdrawn"
    with pytest.raises(ValidationError, match="withdrawn"):
        run_approve(run=draft, acting_user=factories.user_create("operator"))
    for page in ("run_edit", "run_withdraw"):
        assert client.get(url(page, draft)).status_code == 302


def test_the_api_changes_and_withdraws(study: Study, draft: Run) -> None:
    api = APIClient()
    api.force_login(factories.user_create("researcher"))
    address = reverse("api:run", args=[draft.pk])
    changed = api.put(address, proposal(draft, title="Second"), format="json")
    assert changed.status_code == 200, changed.content
    assert (changed.json()["title"], changed.json()["revision"]) == ("Second", 2)
    wrong = api.put(address, proposal(draft, choices=draft.choices | {"teachers": 0}), format="json")
    assert wrong.status_code == 400 and wrong.json()["errors"][0]["field"] == "choices.teachers"
    other = api.put(address, proposal(run_draft(study, **TABLE_RUN)), format="json")
    assert other.status_code == 200, "a proposal of the same study"
    operator = APIClient()
    operator.force_login(factories.user_create("operator"))
    assert operator.put(address, proposal(draft), format="json").status_code == 403
    stale = operator.post(reverse("api:run-approve", args=[draft.pk]), {"revision": 1}, format="json")
    assert stale.status_code == 409 and "changed since" in stale.json()["detail"]
    withdraw = reverse("api:run-withdraw", args=[draft.pk])
    assert operator.post(withdraw).status_code == 403
    assert api.post(withdraw).json()["status"] == "withdrawn"
    assert operator.post(reverse("api:run-cancel", args=[draft.pk])).status_code == 409


def test_never_after_the_approval(draft: Run) -> None:
    run_approve(run=draft, acting_user=factories.user_create("operator"), share=0.1)
    api = APIClient()
    api.force_login(factories.user_create("researcher"))
    refused = api.put(reverse("api:run", args=[draft.pk]), proposal(draft, title="Late"), format="json")
    assert refused.status_code == 409 and "Only a draft can be changed" in refused.json()["detail"]
    refused = api.post(reverse("api:run-withdraw", args=[draft.pk]))
    assert refused.status_code == 409 and "Only a draft can be withdrawn" in refused.json()["detail"]
    draft.refresh_from_db()
    assert (draft.title, draft.status) == ("First", "approved")
    assert not ProposalChange.objects.exists()
