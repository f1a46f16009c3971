"""How staff pages write numbers, times, parameters and charts in the reader's language."""

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from django.template import Context, Template
from django.utils import timezone, translation

from common.sentences import Sentence
from common.templatetags.components import component_render
from ipate_web.run_words import percent, translated, trimmed
from ipate_web.staff.charts import Chart, Series

SERIES = [Series("High", [0.5, None], limit=1.0), Series("Low", [float("inf"), 123456.0])]
CHART = Chart([1.02, 2.0], SERIES, x_label="order")


def test_numbers_are_rounded_and_lose_the_zeros_that_say_nothing() -> None:
    shares = [percent(share) for share in (0.8579, 0.9999, 0.25, 0.0, None)]
    assert shares == ["85.8 %", "100.0 %", "25.0 %", "0.0 %", "–"]
    assert [trimmed(number) for number in (0.5, 200.0, 1.06182)] == ["0.5", "200", "1.062"]


def test_stored_sentences_are_translated_for_the_reader() -> None:
    note = Sentence("Group %(group)s has no holders.", group="HIGH")
    stored = json.loads(json.dumps(note.to_json()))
    assert note == "Group HIGH has no holders."
    assert translated(note) == translated(stored) == "Group High protection has no holders."
    large = "σ = %(sigma)g is large for %(votes)d votes: the noise often outweighs even a unanimous vote."
    numbers, unknown = Sentence(large, sigma=0.5, votes=30), Sentence("<%(count)d> of some kind", count=3)
    assert translated(numbers) == numbers and translated(unknown) == "<3> of some kind"
    assert translated(Sentence("about %(share)d %% of them", share=7)) == "about 7 % of them"
    with translation.override("de"):
        assert translated(note) == translated(stored) == "Die Gruppe „Hoher Schutz“ hat keine Betroffenen."
        assert translated(numbers).startswith("σ = 0,5 ")
        assert translated(unknown) == '<span lang="en">&lt;3&gt; of some kind</span>', "marked as English"
        assert translated("Cancelled by olga.") == '<span lang="en">Cancelled by olga.</span>'


def test_sentences_begin_with_a_capital_letter_but_symbols_stay_small() -> None:
    page = Template("{% for word in words %}{{ word|capfirst }} {% endfor %}")
    assert page.render(Context({"words": ["policy", "ε-Regelung", "", "überall"]})) == "Policy ε-Regelung  Überall "


def test_times_have_seconds_and_zone_unless_they_are_secret() -> None:
    when = datetime(2026, 7, 1, 12, 3, 4, 567, tzinfo=UTC)
    for tag, moment, language, zone, expected in (
        ("{% moment when %}", when, "en", "UTC", "2026-07-01T12:03:04+00:00 2026-07-01 12:03:04\xa0UTC"),
        ("{% moment when %}", when, "de", "Europe/Berlin", "2026-07-01T14:03:04+02:00 01.07.2026 14:03:04\xa0MESZ"),
        ("{% moment when seconds=False %}", when, "en", "UTC", "2026-07-01T12:03:00+00:00 2026-07-01 12:03\xa0UTC"),
        ("{% moment when %}", None, "en", "UTC", "–"),
        ("{{ when|moment_text }}", when, "en", "UTC", "2026-07-01 12:03:04 UTC"),
    ):
        with translation.override(language), timezone.override(ZoneInfo(zone)):
            page = Template("{% load moments %}" + tag).render(Context({"when": moment}))
        machine, _space, words = expected.partition(" ")
        is_marked = tag.startswith("{%") and moment is not None
        assert page == (f'<time datetime="{machine}">{words}</time>' if is_marked else expected), tag


def test_gaps_and_values_of_a_chart_that_json_cannot_hold_are_null() -> None:
    document = json.loads(json.dumps(CHART.document, allow_nan=False))
    assert [series["values"] for series in document["series"]] == [[0.5, None], [None, 123456.0]]
    assert [series["limit"] for series in document["series"]] == [1.0, None]


def test_the_table_of_a_chart_has_every_number_in_the_readers_notation() -> None:
    with translation.override("de"):
        table = component_render("chart_table", chart=CHART, caption="All")
    cells = [cell.split("<")[0].strip() for cell in table.split('"number">')[1:]]
    assert cells == ["Order", "High", "Low", "1,02", "0,5", "inf", "2", "–", "1,235e+05"]
