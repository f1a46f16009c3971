"""Lists that are described once: what follows from a column, and what a reader may choose."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client, RequestFactory

from ipate_web.lists import Column, Reader
from ipate_web.run_list import RUNS
from tests.factories import user_create
from tests.pages import url
from tests.training.runs import TABLE_RUN, run_draft, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def drafts() -> list[Run]:
    study = study_with_table()
    return [run_draft(study, title=title, **TABLE_RUN) for title in ("Bee", "ant", "=cat")]


def test_a_column_is_described_in_one_place(drafts: list[Run], django_assert_num_queries: Any) -> None:
    """The query loads what its cells read, and it is on the page and in the file."""
    seed = Column("seed", "Seed", lambda run, _reader: f"<{run.batch_size}>", fields=("batch_size",))
    listing = replace(RUNS, columns=(*RUNS.columns, seed))
    study, request = drafts[0].study, RequestFactory().get("/", {"columns": ["seed"], "sort": "title"})
    with django_assert_num_queries(3):  # names of proposers, how many rows, the rows
        page = listing.page(request, study.runs.all(), Reader(study))
        assert [column.name for column, _order, _direction in page.headings] == ["title", "seed"]
        assert all(row.endswith(f"<td>&lt;{drafts[0].batch_size}&gt;</td>") for row in page.rows)
    assert [re.sub("<.*?>", "", row.split("</th>")[0]) for row in page.rows] == ["=cat", "ant", "Bee"]
    assert "plan" in page.objects[0].get_deferred_fields()
    rows = list(csv.reader(io.StringIO("".join(page.csv()))))
    assert [row[0] for row in rows] == ["Run", "'=cat", "ant", "Bee"]


def test_a_reader_chooses_columns_order_rows_and_a_file(drafts: list[Run]) -> None:
    client, address = Client(), url("runs", drafts[0].study)
    client.force_login(user_create("olga"))
    page = client.get(address, {"sort": "proposed", "columns": ["status", "proposed"], "size": "20"}).text
    assert re.findall(r'aria-sort="(\w+)"', page) == ["ascending"] and "sort=-proposed" in page
    assert ">Method</th>" not in re.sub(r"\s+", "", page) and page.index("Bee") < page.index("=cat")
    assert client.get(address, {"sort": "-proposed"}).status_code == 200, "the order at first, too, has a name"
    for wrong in ({"sort": "seed"}, {"columns": "plan"}, {"size": "1000000"}, {"status": "lost"}):
        answer = client.get(address, wrong)
        assert answer.status_code == 422 and "Bee" in answer.text, wrong
    file = client.get(address, {"format": "csv", "search": "ant"})
    assert file["Content-Disposition"] == f'attachment; filename="{drafts[0].study.slug}-runs.csv"'
    rows = [row.split(",")[:2] for row in file.getvalue().decode().splitlines()]
    assert rows == [["Run", "Status"], ["ant", "draft"]]


def test_filters_of_a_page_and_of_the_api_are_the_same(drafts: list[Run]) -> None:
    runs = drafts[0].study.runs.all()
    form, parameters = RUNS.form(QueryDict(), runs, Reader(drafts[0].study)), RUNS.parameters("Parameters", "")().fields
    assert set(parameters) - set(form.fields) == {"study", "variant"}
    assert set(form.fields) - set(parameters) == {"columns", "size"}
