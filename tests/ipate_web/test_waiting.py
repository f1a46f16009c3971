"""Waiting tasks are shown to the roles that can do them, to nobody else, and only until they are done."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from consent import services
from consent.models import Disposal, Role, Study
from consent.services.erasures import erasure_ask
from ipate_web.waiting import Kind, Waiting, waiting_for
from tests import factories
from tests.pages import as_
from tests.training.runs import TABLE_RUN, run_draft, run_start, study_with_table
from training.models import Run
from training.services.erasures import records_erase, study_close

pytestmark = pytest.mark.django_db

ROLES = list(Role.values)


def member(study: Study, role: str) -> User:
    """Return someone with only this role."""
    return factories.member(study, f"{role}-of-{study.slug}", role)


def tasks_of(study: Study, kind: str) -> dict[str, list[str]]:
    """Return the texts of the tasks of one kind in ``study``, by role."""
    found = {}
    for role in ROLES:
        tasks = [each for each in waiting_for(member(study, role)) if each.study == study and each.kind == kind]
        if tasks:
            found[role] = [task.text for task in tasks]
    return found


def task(study: Study, role: str, kind: str) -> Waiting:
    return next(each for each in waiting_for(member(study, role)) if each.kind == kind)


@pytest.fixture
def study() -> Study:
    return study_with_table()


def test_proposals_wait_for_those_who_approve_them(study: Study) -> None:
    run = run_draft(study, title="First", **TABLE_RUN)
    values = {"high": 0.5, "average": 1, "low": 2, "reason": "Less."}
    policy = services.epsilon_policy_propose(study=study, acting_user=factories.user_create("carla"), **values)
    form = factories.form_propose(study, {"en": "More is asked."})
    assert tasks_of(study, Kind.RUN) == {"operator": ["Run: First"]}
    assert set(tasks_of(study, Kind.POLICY)) == set(tasks_of(study, Kind.FORM)) == {"committee", "chair"}
    assert task(study, "operator", Kind.RUN).since == run.created_at
    assert task(study, "chair", Kind.POLICY).since == policy.proposed_at
    assert task(study, "chair", Kind.FORM).since == form.proposed_at
    assert [each.kind for each in waiting_for(run.created_by) if each.is_own] == [Kind.RUN]
    services.epsilon_policy_approve(policy=policy, acting_user=member(study, "chair"))
    assert tasks_of(study, Kind.POLICY) == {}
    rosa = member(study, "researcher")
    Run.objects.filter(pk=run.pk).update(created_by=rosa)
    assert [(each.kind, each.is_own) for each in waiting_for(rosa)] == [(Kind.RUN, True)]
    assert not task(study, "operator", Kind.RUN).is_own


def test_silent_and_failed_runs_wait_for_those_who_can_do_something(study: Study) -> None:
    run = run_start(study, **TABLE_RUN)
    assert tasks_of(study, Kind.SILENT) == {}
    long_ago = timezone.now() - timedelta(hours=1)
    Run.objects.filter(pk=run.pk).update(heartbeat=long_ago)
    assert set(tasks_of(study, Kind.SILENT)) == {"operator"}
    assert task(study, "operator", Kind.SILENT).since == long_ago
    rosa = member(study, "researcher")
    Run.objects.filter(pk=run.pk).update(status=Run.Status.FAILED, ended_at=timezone.now(), created_by=rosa)
    assert tasks_of(study, Kind.SILENT) == {}
    assert set(tasks_of(study, Kind.FAILED)) == {"operator", "researcher"}
    assert str(run.pk) in task(study, "operator", Kind.FAILED).url
    run_draft(study, **TABLE_RUN)
    assert tasks_of(study, Kind.FAILED) == {}, "another is proposed"


def test_erasures_that_were_not_done_wait_for_the_steward(study: Study) -> None:
    first, second, third = study.holders.order_by("pk")[:3]
    for holder in (first, second, third):
        services.consent_withdraw(holder=holder, acting_user=None)
        erasure_ask(holder=holder, acting_user=None)
    form = study.consent_forms.get()
    services.consent_give(holder=third, level="LOW", form=form, acting_user=None)  # who takes part again
    assert tasks_of(study, Kind.ERASURES) == {"steward": ["2 people's records need to be erased"]}
    request = Disposal.objects.filter(holder=first).latest("sequence")
    assert task(study, "steward", Kind.ERASURES).since == request.recorded_at
    records_erase(study.pk)
    assert tasks_of(study, Kind.ERASURES) == {}


def test_a_closed_study_and_another_ones_tasks_wait_for_nobody(study: Study) -> None:
    run_draft(study, **TABLE_RUN)
    operator, elsewhere = member(study, "operator"), factories.study_create("elsewhere")
    assert {each.study for each in waiting_for(member(elsewhere, "operator"))} == {elsewhere}
    study_close(study=study, reason="Done.", acting_user=operator, erase_after=timezone.localdate())
    assert waiting_for(operator) == []
    assert waiting_for(factories.user_create("nobody")) == []


def test_more_studies_need_no_more_queries(study: Study) -> None:
    def queries(user: Any) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert waiting_for(user)
        return len(captured)

    user = factories.user_create("everything")

    def busy(study: Study) -> None:
        run_draft(study, **TABLE_RUN)
        holder = study.holders.order_by("pk").first()
        services.consent_withdraw(holder=holder, acting_user=None)
        erasure_ask(holder=holder, acting_user=None)
        for role in ("operator", "steward"):
            services.membership_add(study=study, user=user, role=role, acting_user=None)

    busy(study)
    once = queries(user)
    busy(study_with_table("second"))
    assert queries(user) == once
    assert once <= 19
    root = factories.user_create("root", is_superuser=True)
    assert queries(root) <= 21


def test_home_and_api_list_the_same_tasks(study: Study) -> None:
    run = run_draft(study, title="First", **TABLE_RUN)
    client = as_(member(study, "operator"))
    page = client.get("/").content.decode()
    document = client.get("/api/v1/waiting").json()["waiting"]
    assert [each["kind"] for each in document] == ["provenance", "run"]
    assert document[-1] == {
        "study": "table",
        "kind": "run",
        "text": "Run: First",
        "url": f"http://127.0.0.1:8000/studies/table/runs/{run.pk}/approve/",
        "since": run.created_at.replace(second=0, microsecond=0).isoformat().replace("+00:00", "Z"),
        "answer_by": None,
        "own": False,
    }
    for each in document:
        assert f'href="{each["url"].removeprefix("http://127.0.0.1:8000")}"' in page
    auditor = as_(member(study, "auditor"))
    assert "No open tasks" in auditor.get("/").content.decode()
    assert auditor.get("/api/v1/waiting").json() == {"waiting": []}
