"""Pages and answers of the API about what another process changes while they are put together.

What another process commits is seen by the next query of a request. Here it commits before each of them in turn.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from consent.models import DataHolder
from consent.selectors import consent_form_in_force
from consent.services import consent_withdraw
from tests.factories import consent_choose, form_publish, holder_create, policy_approve, user_create
from tests.pages import as_, url
from tests.training.asking import ASKING_RUN, run_ask
from tests.training.runs import run_begun, run_draft, run_start, study_with_table
from training.models import Run
from training.services.runs import run_approve, run_cancel, run_withdraw

pytestmark = pytest.mark.django_db


def drafted() -> Run:
    return run_draft(study_with_table(), **ASKING_RUN)


def approved() -> Run:
    return run_start(study_with_table(), share=0.5, **ASKING_RUN)


def asking() -> Run:
    return run_ask(run_begun(approved()), 2)


def approve(run: Run) -> None:
    run_approve(run=run, acting_user=user_create("olga"), share=0.5)


def withdraw(run: Run) -> None:
    run_withdraw(run=run, acting_user=user_create("otto"))


def cancel(run: Run) -> None:
    run_cancel(run=run, acting_user=user_create("olga"))


class Undone(Exception):
    """Ends a transaction without its changes."""


@contextmanager
def committed_before(number: int, change: Callable[[], Any]) -> Iterator[list[str]]:
    """Context in which ``change`` is made before the query of this number, from 0; yields the queries so far."""
    queries: list[str] = []
    is_changing = False

    def execute(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        nonlocal is_changing
        if not is_changing:
            if len(queries) == number:
                is_changing = True
                change()
                is_changing = False
            queries.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(execute):
        yield queries


def looked_at(client: Client, page: str, changing: Run | DataHolder, change: Callable[[Any], Any]) -> None:
    """Ask for the page once for each of its queries, with the change before that one; nothing may break."""
    for number in count():
        try:
            with transaction.atomic():
                with committed_before(number, partial(change, copy(changing))) as queries:
                    response = client.get(page)
                assert response.status_code < 500, (page, queries[number:])
                raise Undone
        except Undone:
            if number >= len(queries):
                return  # no query is left before which it could be made


exhaustive = pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("start", "change"),
    [
        (approved, cancel),
        *(pytest.param(*both, marks=exhaustive) for both in ((drafted, approve), (drafted, withdraw))),
        *(pytest.param(*both, marks=exhaustive) for both in ((approved, run_begun), (asking, run_ask))),
    ],
)
@pytest.mark.parametrize(
    "page",
    [
        lambda run: url("run", run),
        *(
            pytest.param(each, marks=exhaustive)
            for each in (
                lambda run: f"/api/v1/runs/{run.pk}",
                lambda run: "/queue/",
                lambda run: url("run_approve", run),
            )
        ),
    ],
    ids=["page", "api", "queue", "approval"],
)
def test_a_run_that_changes_meanwhile_is_shown(
    start: Callable[[], Run], change: Callable[[Run], Any], page: Callable[[Run], str]
) -> None:
    run = start()
    looked_at(as_("olga"), page(run), run, change)


def policy_change(holder: DataHolder) -> None:
    policy_approve(holder.study, 2, 4, 8)


def form_change(holder: DataHolder) -> None:
    form_publish(holder.study, {"en": "We ask for more."}, renewal="required")


def decide(holder: DataHolder, level: str = "LOW") -> None:
    consent_choose(holder=holder, level=level, form=consent_form_in_force(holder.study))


def withdraw_consent(holder: DataHolder) -> None:
    consent_withdraw(holder=holder, acting_user=None)


@pytest.mark.parametrize("page", ["choice", *(pytest.param(each, marks=exhaustive) for each in ("study", "uses"))])
@pytest.mark.parametrize(
    "change",
    [withdraw_consent, *(pytest.param(each, marks=exhaustive) for each in (policy_change, form_change, decide))],
)
def test_holders_see_their_pages_while_what_they_show_changes(change: Callable[[DataHolder], None], page: str) -> None:
    study, hanna = study_with_table(), user_create("hanna")
    holder = holder_create(study, "P-1", hanna)
    decide(holder, "AVERAGE")
    looked_at(as_(hanna), reverse(f"consent:{page}", args=[study.slug]), holder, change)
