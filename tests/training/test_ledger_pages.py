"""The pages of a ledger that somebody has tampered with say so; they do not break."""

import math
import struct
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounting.models import LedgerEntry, PrivacyGroup
from accounting.privacy import DEFAULT_ORDERS
from consent import services
from consent.models import Role, Study
from ipate_web.append_only import triggers_remove
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db

NOT_CURVES = {
    "byte": b"\x00",
    "NaN": struct.pack(f">{len(DEFAULT_ORDERS)}d", *[math.nan] * len(DEFAULT_ORDERS)),
    "infinity": struct.pack(f">{len(DEFAULT_ORDERS)}d", *[math.inf] * len(DEFAULT_ORDERS)),
}


@pytest.fixture
def run() -> Run:
    """Its study has nine entries in the ledger, and no triggers any more."""
    run = run_finish(run_start(study_with_table(), **TABLE_RUN))
    triggers_remove(connection)
    return run


@pytest.fixture
def auditor(run: Run) -> Client:
    services.membership_add(study=run.study, user=user_create("auditor"), role=Role.AUDITOR)
    client = Client()
    client.force_login(user_create("auditor"))
    return client


def url(page: str, study: Study, *args: object, **query: object) -> str:
    return reverse(f"training:{page}", args=[study.slug, *args]) + (f"?{urlencode(query)}" if query else "")


def forge(table: str, column: str, value: bytes | str, where: str = "sequence = 4") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = %s WHERE {where}", [value])


@pytest.mark.parametrize("forged", NOT_CURVES.values(), ids=NOT_CURVES)
@pytest.mark.parametrize("column", ["rdp", "published_rdp", "orders"])
def test_a_curve_that_is_none_is_shown_and_named(run: Run, auditor: Client, column: str, forged: bytes) -> None:
    forge(LedgerEntry._meta.db_table, column, forged)
    listed = auditor.get(url("ledger", run.study))
    assert listed.status_code == 200
    shown = {row["entry"].sequence: (row["cost"], row["published"]) for row in listed.context["rows"]}
    assert [math.isfinite(cost or math.inf) for cost in shown[4]] != [True, True]
    assert all(math.isfinite(cost) for number, costs in shown.items() if number != 4 for cost in costs)
    assert ("cannot be read" in listed.text) == (None in shown[4])
    checked = auditor.get(url("ledger_check", run.study))
    assert checked.status_code == 200
    assert "Ledger entry: the chain is broken." in checked.text
    assert checked.text.count("ledger entry") == 1
    assert "ledger entry 4: its content is not what was recorded (hash differs)." in checked.text


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite takes any text for any column")
def test_an_entry_that_cannot_be_read_is_told(run: Run, auditor: Client) -> None:
    forge(LedgerEntry._meta.db_table, "run", "forged")
    assert "These entries cannot be read any more." in auditor.get(url("ledger", run.study)).text
    assert "ledger entry 4: cannot be read any more" in auditor.get(url("ledger_check", run.study)).text


@pytest.mark.parametrize("forged", [NOT_CURVES["byte"], NOT_CURVES["NaN"]], ids=["byte", "NaN"])
def test_a_total_that_is_no_curve_is_told(run: Run, auditor: Client, forged: bytes) -> None:
    address = url("ledger", run.study, run=run.pk)
    told = "What this run has cost cannot be read any more."
    assert told not in auditor.get(address).text
    forge(PrivacyGroup._meta.db_table, "spent_rdp", forged, "name = 'LOW'")
    assert told in auditor.get(address).text
    assert told not in auditor.get(url("ledger", run.study)).text


@pytest.mark.parametrize("page", ["ledger", "ledger_report"])
def test_a_bound_without_end_is_shown_as_it_is(run: Run, auditor: Client, page: str) -> None:
    forge(PrivacyGroup._meta.db_table, "published_rdp", NOT_CURVES["infinity"], "name = 'LOW'")
    address = url("ledger", run.study, run=run.pk) if page == "ledger" else url(page, run.study, run.pk)
    assert '<td class="number">inf</td>' in auditor.get(address).text


@pytest.mark.parametrize("forged", NOT_CURVES.values(), ids=NOT_CURVES)
def test_there_is_no_report_of_what_cannot_be_read(run: Run, auditor: Client, forged: bytes) -> None:
    forge(LedgerEntry._meta.db_table, "rdp", forged)
    page = auditor.get(url("ledger_report", run.study, run.pk), follow=True)
    assert page.redirect_chain == [(url("ledger", run.study, run=run.pk), 302)]
    assert "There is no report" in page.text
