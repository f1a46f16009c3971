"""Proposing, approving, cancelling and watching runs, as staff and researchers see it."""

import hashlib
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounting.selectors import Consumption, account_consumption
from consent.models import Role, Study
from consent.permissions import ROLE_PERMISSIONS
from consent.services import membership_add
from tests import factories
from tests.training.runs import (
    TABLE,
    TABLE_RUN,
    run_draft,
    run_finish,
    run_start,
    run_teach,
    study_with_table,
    table_rows,
)
from training.forms.runs import RunForm, initial_for
from training.models import Run, TeacherChunk
from training.services.datasets import dataset_import

pytestmark = pytest.mark.django_db

Commits = Any  # the fixture django_capture_on_commit_callbacks


@pytest.fixture
def study() -> Study:
    study = study_with_table()
    for role in Role.values:
        membership_add(study=study, user=factories.user_create(role), role=role)
    return study


def as_(role: str) -> Client:
    client = Client()
    client.force_login(factories.user_create(role))
    return client


def url(page: str, study: Study, *args: object) -> str:
    return reverse(f"training:{page}", args=[study.slug, *args])


def filled_in(study: Study, **changes: Any) -> dict[str, Any]:
    """What a browser sends for the form as it was opened, with ``changes``."""
    operator = factories.user_create("operator")
    form = RunForm(study=study, acting_user=operator, may_simulate=True, initial=initial_for(study, operator))
    values = {field.html_name: field.value() for field in form}
    sent = {
        name: getattr(value, "pk", value) for name, value in values.items() if value is not None and value is not False
    }
    changes = {"title": "First", "teachers": 6, "aggregator": "gnmax", "sigma": 10, **changes}
    return {name: value for name, value in {**sent, **changes}.items() if value is not None}


def costs_of(run: Run) -> list[Consumption]:
    assert run.account is not None
    return account_consumption(run.account)


# --- Proposing ------------------------------------------------------------------------------------------------------


def test_the_form_opens_with_values_that_suit_the_study(study: Study) -> None:
    values = initial_for(study, factories.user_create("operator"))
    assert values["teachers"] == round(30 / 13)
    assert values["sigma"] == pytest.approx(0.2 * values["teachers"])
    assert values["learner"] == "random_forest"
    assert values["private_dataset"].kind == "private"
    assert 'name="seed"' in as_("operator").get(url("run_new", study)).text
    assert 'name="seed"' not in as_("researcher").get(url("run_new", study)).text


def test_the_plan_is_shown_before_anything_is_saved(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study))
    assert page.status_code == 200
    assert not Run.objects.exists()
    assert [(group.name, group.teachers) for group in page.context["plan"].groups] == [
        ("HIGH", 2),
        ("AVERAGE", 2),
        ("LOW", 2),
    ]
    for words in ("Check the plan of “First”", "High protection: ε 1.000 / 1", "6 teachers in all", "GNMax, σ = 10"):
        assert words in page.text


def test_what_was_checked_is_what_is_saved(study: Study) -> None:
    client = as_("operator")
    changes = {"learner": "random_forest", "learner-random_forest-trees": 7, "learner-random_forest-balanced": "on"}
    page = client.post(url("run_new", study), filled_in(study, **changes))
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?', page.text))
    answer = client.post(url("run_new", study), {**hidden, "confirmed": "1"})
    run = Run.objects.get(created_by__username="operator")
    assert answer.headers["Location"] == url("run", study, run.pk)
    assert (run.status, run.title, run.teachers) == ("draft", "First", 6)
    assert run.aggregator == {"name": "gnmax", "sigma": 10.0}
    assert run.learner_parameters["trees"] == 7
    assert run.learner_parameters["balanced"] is True


def test_one_can_go_back_and_change_it(study: Study) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, title="Half-baked", change="1"))
    assert 'value="Half-baked"' in page.text
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"title": ""}, "title", "required"),
        ({"teachers": 31}, "teachers", "at most"),
        ({"sigma": -1}, "sigma", "Give a number above 0."),
        ({"sigma": ""}, "sigma", "required"),
        ({"learner": "oracle"}, "learner", "oracle"),
        ({"learner": "random_forest", "learner-random_forest-trees": 0}, "learner-random_forest-trees", "greater than"),
        ({"seed": 3}, "seed", "Only a simulation"),
        ({"batch_size": 0}, "batch_size", "greater than"),
        ({"aggregator": "confident_gnmax", "threshold": -5}, "threshold", "Give a number above 0."),
    ],
)
def test_what_is_wrong_is_said_beside_the_field(study: Study, changes: dict[str, Any], field: str, told: str) -> None:
    page = as_("operator").post(url("run_new", study), filled_in(study, **changes))
    assert page.status_code == 422
    assert told in str(page.context["form"].errors[field])
    assert "There is a problem" in page.text
    assert not Run.objects.exists()


def test_parameters_of_what_was_not_chosen_cannot_be_wrong(study: Study) -> None:
    changes = {"learner": "random_forest", "learner-cnn-epochs": "many", "threshold": "", "gamma": "x"}
    assert as_("operator").post(url("run_new", study), filled_in(study, **changes)).status_code == 200


def test_a_small_group_is_pointed_out_with_the_choice_made(study: Study) -> None:
    small = study_with_table("small", levels="HHHHHHHHHHHHHHAAAAAAAAAAAAAAAL")
    membership_add(study=small, user=factories.user_create("operator"), role=Role.OPERATOR)
    page = as_("operator").post(url("run_new", small), filled_in(small, teachers=4, small_groups="leave_out"))
    assert "Group Low protection has too few holders for one teacher" in page.text
    assert "Left out: Low protection." in page.text


def test_a_run_that_cannot_be_planned_can_be_saved_but_not_approved(study: Study) -> None:
    waiting = factories.study_create("waiting", delta=1e-4)
    membership_add(study=waiting, user=factories.user_create("operator"), role=Role.OPERATOR)
    for kind, rows in (("private", table_rows(9, [f"p{i}" for i in range(9)])), ("public", table_rows(6))):
        dataset_import(study=waiting, name=kind, kind=kind, rows=rows, schema=TABLE)
    client = as_("operator")
    sent = filled_in(waiting, teachers=3, test_dataset=None)
    page = client.post(url("run_new", waiting), sent)
    assert "The study has no approved ε policy." in page.text
    client.post(url("run_new", waiting), {**sent, "confirmed": "1"})
    run = Run.objects.get()
    page = client.get(url("run_approve", waiting, run.pk))
    assert "cannot be carried out" in page.text
    assert "Yes, start the run" not in page.text
    page = client.post(url("run_approve", waiting, run.pk), follow=True)
    assert "The study has no approved ε policy." in page.text
    run.refresh_from_db()
    assert run.status == Run.Status.DRAFT


def test_a_study_without_data_says_what_is_missing(study: Study) -> None:
    empty = factories.study_create("empty")
    membership_add(study=empty, user=factories.user_create("operator"), role=Role.OPERATOR)
    page = as_("operator").get(url("run_new", empty))
    assert page.context["missing"] == ["private", "public"]
    assert reverse("training:datasets", args=["empty"]) in page.text


def test_a_similar_run_begins_with_the_values_of_the_earlier(study: Study) -> None:
    run = run_draft(study, **{**TABLE_RUN, "learner": "nearest_neighbour", "learner_parameters": {"neighbours": 3}})
    page = as_("operator").get(url("run_new", study), {"like": str(run.pk)})
    form = page.context["form"]
    assert form["learner-nearest_neighbour-neighbours"].value() == 3
    assert (form["sigma"].value(), form["aggregator"].value(), form["teachers"].value()) == (10.0, "gnmax", 6)
    assert as_("operator").get(url("run_new", study), {"like": "nonsense"}).status_code == 200


def test_a_researcher_proposes_without_learning_group_sizes(study: Study) -> None:
    client = as_("researcher")
    page = client.post(url("run_new", study), filled_in(study))
    assert "plan" not in page.context
    assert "30 holders" not in page.text
    client.post(url("run_new", study), filled_in(study, confirmed="1", simulation="on"))
    assert Run.objects.get().simulation is False


def test_neither_a_refusal_nor_a_prefilled_value_tells_a_researcher_how_many_holders_there_are() -> None:
    study = study_with_table(holders=305)
    researcher = factories.user_create("researcher")
    membership_add(study=study, user=researcher, role=Role.RESEARCHER)
    client = as_("researcher")
    assert client.get(url("run_new", study)).context["form"]["teachers"].value() == round(310 / 13)
    page = client.post(url("run_new", study), filled_in(study, teachers=5000))
    assert page.status_code == 200
    assert "305 holders" not in page.text


def test_a_plan_is_for_those_who_may_see_what_earlier_votes_have_left(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, started = run_draft(study, **TABLE_RUN), run_start(study, share=0.5, **TABLE_RUN)
    pages = (
        lambda client: client.post(url("run_new", study), filled_in(study)),
        lambda client: client.get(url("run_approve", study, draft.pk)),
        lambda client: client.get(url("run", study, started.pk)),
    )
    assert all("Weight of a vote" in ask(as_("operator")).text for ask in pages)
    everything = ROLE_PERMISSIONS[Role.OPERATOR]
    for permission in ("accounting.view_private_costs", "consent.view_group_sizes"):
        monkeypatch.setitem(ROLE_PERMISSIONS, Role.OPERATOR, everything - {permission})
        assert not any("Weight of a vote" in ask(as_("operator")).text for ask in pages)


# --- Approving and cancelling ---------------------------------------------------------------------------------------


def test_an_operator_sees_what_may_be_spent_and_starts_the_run(
    study: Study, django_capture_on_commit_callbacks: Commits
) -> None:
    run = run_draft(study, **TABLE_RUN, purpose="Tell the three classes apart.")
    client = as_("operator")
    page = client.get(url("run_approve", study, run.pk))
    for words in (
        "Tell the three classes apart.",
        "30 rows, 30 holders",
        "High protection: ε 1.000 / 1.000 / 1",
        "Not for publication.",
    ):
        assert words in page.text
    with django_capture_on_commit_callbacks() as sent:
        client.post(url("run_approve", study, run.pk))
    assert len(sent) == 1
    assert Run.objects.get(approved_by__username="operator").status == Run.Status.APPROVED
    again = client.post(url("run_approve", study, run.pk), follow=True)
    assert "not a draft any more" in again.text


def test_an_operator_says_how_much_a_run_may_spend_and_sees_the_plan_with_it_first(study: Study) -> None:
    run, client = run_draft(study, **TABLE_RUN), as_("operator")
    asked = {"spending": "epsilons", "epsilon_high": "0.25", "epsilon_average": "0.5", "epsilon_low": "9"}
    page = client.post(url("run_approve", study, run.pk), {**asked, "look": "1"})
    for words in (
        "High protection: ε 0.250 / 1.000 / 1",
        "Average protection: ε 0.500",
        "Low protection: ε 3.000 / 3.000 / 3",
    ):
        assert words in page.text
    assert "of the ε = 9 that was asked for, only 3 is left to reserve" in page.text
    run.refresh_from_db()
    assert run.status == Run.Status.DRAFT, "looking changes nothing"
    client.post(url("run_approve", study, run.pk), {"spending": "share", "share": "25", "epsilon_high": "none"})
    run.refresh_from_db()
    assert (run.status, run.spending_share) == (Run.Status.APPROVED, 0.25)
    assert "25.0 % of what was left" in client.get(url("run", study, run.pk)).text
    assert "Reserved for runs" in client.get(reverse("training:study", args=[study.slug])).text


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"spending": "share", "share": ""}, "share"),
        ({"spending": "share", "share": "101"}, "share"),
        ({"spending": "epsilons", "epsilon_high": "1", "epsilon_average": "2"}, "epsilon_low"),
        ({"spending": "epsilons", "epsilon_high": "3", "epsilon_average": "2", "epsilon_low": "1"}, "epsilon_high"),
        ({"spending": "everything"}, "spending"),
    ],
)
def test_a_mistake_in_what_a_run_may_spend_starts_nothing(study: Study, asked: dict[str, str], field: str) -> None:
    run = run_draft(study, **TABLE_RUN)
    page = as_("operator").post(url("run_approve", study, run.pk), asked)
    assert page.status_code == 422
    assert list(page.context["form"].errors) == [field]
    run.refresh_from_db()
    assert run.status == Run.Status.DRAFT


def test_cancelling_says_what_stays_and_ends_the_run(study: Study) -> None:
    run = run_teach(run_start(study, **TABLE_RUN))
    client = as_("operator")
    assert "stay released" in client.get(url("run_cancel", study, run.pk)).text
    run.refresh_from_db()
    assert not run.has_ended, "looking at the question changes nothing"
    page = client.post(url("run_cancel", study, run.pk), follow=True)
    assert "An operator has cancelled the run." in page.text
    run.refresh_from_db()
    assert run.status == Run.Status.CANCELLED
    assert "has ended already" in client.post(url("run_cancel", study, run.pk), follow=True).text


# --- Watching -------------------------------------------------------------------------------------------------------


def test_the_live_part_asks_for_itself_until_the_run_has_ended(study: Study) -> None:
    run = run_start(study, **TABLE_RUN)
    address = url("run_live", study, run.pk)
    client = as_("auditor")
    page = client.get(address)
    assert f'hx-get="{address}"' in page.text
    assert 'hx-swap-oob="true"' in page.text, "the timeline goes along"
    assert "HX-Refresh" not in page.headers
    run = run_finish(run)
    page = client.get(address)
    assert "hx-get" not in page.text
    assert page.headers["HX-Refresh"] == "true"


def test_a_run_that_nobody_works_on_is_said_to_wait(study: Study) -> None:
    run = run_start(study, **TABLE_RUN)
    told = "No worker has picked it up yet."
    client, address = as_("operator"), url("run", study, run.pk)
    assert told not in client.get(address).text, "a few seconds are no reason to worry"
    long_ago = timezone.now() - timedelta(seconds=2 * settings.HEARTBEAT_TIMEOUT)
    Run.objects.filter(pk=run.pk).update(heartbeat=long_ago)
    assert told in client.get(address).text
    assert "manage.py up" in client.get(address).text
    assert told in as_("researcher").get(address).text
    assert "manage.py" not in as_("researcher").get(address).text, "who cannot reach the server"
    Run.objects.filter(pk=run.pk).update(started_at=long_ago)
    assert told not in client.get(address).text, "one had picked it up"
    assert "It goes on where it stopped" in client.get(address).text
    Run.objects.filter(pk=run.pk).update(claimed_by="a worker", heartbeat=timezone.now())
    assert "It goes on where it stopped" not in client.get(address).text


def test_teachers_and_points_are_counted(study: Study) -> None:
    run = run_teach(run_start(study, **TABLE_RUN))
    TeacherChunk.objects.filter(pk=run.chunks.earliest("start").pk).update(state=TeacherChunk.State.PENDING)
    progress = as_("operator").get(url("run", study, run.pk)).context["progress"]
    assert (progress.teachers_done, progress.teachers, progress.points) == (5, 6, 12)


def test_how_many_teachers_there_are_is_for_staff(study: Study) -> None:
    """In upsampling it tells the sizes of the groups: twice as many as asked for are a copy more of each holder."""
    run = run_teach(run_start(study, **TABLE_RUN | {"variant": "upsampling", "teachers": 4}))
    assert run.plan["teachers"] == 8
    TeacherChunk.objects.filter(run=run, start__gte=3).update(state=TeacherChunk.State.PENDING)
    bar = re.compile(r'(?s)Teachers trained</label>\s*<span class="number">([^<]*)</span>.*?value="(\d+)" max="(\d+)"')
    for page in ("run", "run_live"):
        seen, unseen = (as_(role).get(url(page, study, run.pk)).text for role in ("operator", "researcher"))
        assert bar.search(seen).groups() == ("3 of 8", "3", "8")  # type: ignore[union-attr]
        assert bar.search(unseen).groups() == ("25 %", "25", "100")  # type: ignore[union-attr]


def test_a_finished_run_shows_costs_and_student(study: Study) -> None:
    run = run_finish(run_start(study, **TABLE_RUN))
    page = as_("committee").get(url("run", study, run.pk))
    for item in costs_of(run):
        assert f"{item.spent:.3f}" in page.text
        assert f'<td class="number">{item.announced:.1f}</td>' in page.text, "the bound as it leaves staff"
    (drawn,) = re.findall(r'id="costs-data" type="application/json">(.*?)</script>', page.text)
    data = json.loads(drawn)
    assert [series["name"] for series in data["series"]] == ["High protection", "Average protection", "Low protection"]
    assert [series["budget"] for series in data["series"]] == [1, 2, 3]
    labels = [point["x"] for point in data["series"][0]["points"]]
    assert labels == [4, 8, 12]
    assert data["series"][2]["points"][-1]["y"] == pytest.approx(costs_of(run)[2].spent)
    assert page.context["classes"]["labels"] == ["a", "b", "c"]
    assert "every public point was put to the vote" in page.text


def test_secrets_stay_with_those_who_may_see_them(study: Study) -> None:
    run = run_finish(run_start(study, **TABLE_RUN))
    spent = f"{costs_of(run)[0].spent:.3f}"
    for page in ("run", "run_live"):
        seen, unseen = (as_(role).get(url(page, study, run.pk)).text for role in ("auditor", "researcher"))
        for secret in (spent, "What it costs each group", "Teachers' accuracy", "Not for publication."):
            assert secret in seen
            assert secret not in unseen
        assert f"{run.labels}" in unseen
    assert "30 holders" not in as_("researcher").get(url("run", study, run.pk)).text


def test_why_a_run_failed_is_for_staff(study: Study) -> None:
    run = run_draft(study, **TABLE_RUN)
    Run.objects.filter(pk=run.pk).update(status="failed", message="There are 3 holders for 6 teachers.")
    assert "3 holders" in as_("operator").get(url("run", study, run.pk)).text
    page = as_("researcher").get(url("run", study, run.pk)).text
    assert "3 holders" not in page
    assert "Ask an operator of the study why." in page


def test_simulations_are_marked_wherever_they_are_seen(study: Study) -> None:
    run = run_finish(run_start(study, simulation=True, **TABLE_RUN))
    for page in ("run", "run_labels"):
        assert "nothing that it finds out may leave staff" in as_("operator").get(url(page, study, run.pk)).text
    for page in ("study", "runs"):
        assert ">simulation</span>" in as_("operator").get(url(page, study)).text
    assert "epsilon" not in as_("operator").get(url("run_model", study, run.pk)).headers["Content-Disposition"]


def test_labels_are_listed_with_their_class(study: Study) -> None:
    run = run_finish(run_start(study, **{**TABLE_RUN, "batch_size": 4}))
    run.queries.filter(row=0).update(label=None)
    page = as_("researcher").get(url("run_labels", study, run.pk))
    label = run.queries.get(row=1).label
    assert label is not None
    assert [shown for _, shown in page.context["rows"]][:2] == [None, run.public_dataset.classes[label]]
    rejected = as_("researcher").get(url("run_labels", study, run.pk), {"show": "rejected"})
    assert [query.row for query, _ in rejected.context["rows"]] == [0]


def test_the_model_is_handed_out_as_it_was_stored(study: Study) -> None:
    run = run_finish(run_start(study, **TABLE_RUN))
    answer = as_("researcher").get(url("run_model", study, run.pk))
    assert hashlib.sha256(answer.content).hexdigest() == run.student.digest
    assert answer.headers["Content-Disposition"] == 'attachment; filename="table-a-small-run.skops"'
    draft = run_draft(study, **TABLE_RUN)
    assert as_("researcher").get(url("run_model", study, draft.pk)).status_code == 404


def test_runs_are_filtered_and_come_in_pages(study: Study) -> None:
    for number in range(21):
        run_draft(study, **TABLE_RUN, title=f"Draft {number}")
    Run.objects.filter(title="Draft 3").update(status="cancelled")
    client = as_("auditor")
    assert len(client.get(url("runs", study)).context["page"]) == 20
    assert len(client.get(url("runs", study), {"page": "2"}).context["page"]) == 1
    cancelled = client.get(url("runs", study), {"status": "cancelled"})
    assert [run.title for run in cancelled.context["page"]] == ["Draft 3"]
    assert "No run has this status" in client.get(url("runs", study), {"status": "voting"}).text


def test_a_long_list_of_runs_takes_no_more_queries(study: Study, django_assert_max_num_queries: Any) -> None:
    for number in range(12):
        run_draft(study, **TABLE_RUN, title=f"Draft {number}")
    client = as_("auditor")
    with django_assert_max_num_queries(10):
        client.get(url("runs", study))
