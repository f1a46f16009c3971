"""Charts: what is drawn, and what stands in the table beside it."""

import json

from django.template.loader import render_to_string
from django.utils import translation

from ipate_web.staff.charts import Chart, Series

CHART = Chart(
    [1.02, 2.0], [Series("High", [0.5, None], limit=1.0), Series("Low", [float("inf"), 123456.0])], x_label="order"
)


def test_gaps_and_values_that_json_cannot_hold_are_null() -> None:
    document = json.loads(json.dumps(CHART.document, allow_nan=False))
    assert [series["values"] for series in document["series"]] == [[0.5, None], [None, 123456.0]]
    assert [series["limit"] for series in document["series"]] == [1.0, None]


def test_the_table_has_every_number_in_the_readers_notation() -> None:
    with translation.override("de"):
        table = render_to_string("components/chart_table.html", {"chart": CHART, "caption": "All"})
    assert [cell.split("<")[0] for cell in table.split('"number">')[1:]] == [
        *("Order", "High", "Low"),
        *("1,02", "0,5", "inf"),
        *("2", "–", "1,235e+05"),
    ]
