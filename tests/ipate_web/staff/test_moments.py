"""Moments on pages of staff: seconds, zone, and nothing finer than the minute where timing must not be told."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.template import Context, Template
from django.utils import timezone, translation

WHEN = datetime(2026, 7, 1, 12, 3, 4, 567, tzinfo=UTC)


def shown(tag: str = "{% moment when %}", when: datetime | None = WHEN) -> str:
    return Template("{% load moments %}" + tag).render(Context({"when": when}))


@pytest.mark.parametrize(
    ("language", "zone", "text"),
    [
        ("en", "UTC", '<time datetime="2026-07-01T12:03:04+00:00">2026-07-01 12:03:04 UTC</time>'),
        ("de", "Europe/Berlin", '<time datetime="2026-07-01T14:03:04+02:00">01.07.2026 14:03:04 MESZ</time>'),
    ],
)
def test_seconds_and_zone(language: str, zone: str, text: str) -> None:
    with translation.override(language), timezone.override(ZoneInfo(zone)):
        assert shown() == text


def test_without_seconds_nothing_finer_leaves() -> None:
    page = shown("{% moment when seconds=False %}")
    assert page == '<time datetime="2026-07-01T12:03:00+00:00">2026-07-01 12:03 UTC</time>'


def test_no_moment_is_a_dash() -> None:
    assert shown(when=None) == "–"


def test_a_caption_has_the_same_words_alone() -> None:
    assert shown("{{ when|moment_text }}") == "2026-07-01 12:03:04 UTC"
