"""Moments are told in the reader's zone, which is named in their language; German times say “Uhr”."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone, translation

from common.moments import moment_words

EVENING = datetime(2026, 11, 23, 19, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("language", "zone", "words"),
    [
        ("en", "UTC", "23 November 2026, 19:02 (UTC)"),
        ("en", "Europe/Berlin", "23 November 2026, 20:02 (CET)"),
        ("de", "Europe/Berlin", "23. November 2026 um 20:02 Uhr (MEZ)"),
    ],
)
def test_a_moment_names_its_zone(language: str, zone: str, words: str) -> None:
    with translation.override(language), timezone.override(ZoneInfo(zone)):
        assert moment_words(EVENING) == words


def test_summer_time_has_its_own_name() -> None:
    with translation.override("de"), timezone.override(ZoneInfo("Europe/Berlin")):
        assert moment_words(datetime(2026, 7, 1, 10, tzinfo=UTC)) == "1. Juli 2026 um 12:00 Uhr (MESZ)"
