"""Template tag for odds as an icon array."""

from collections.abc import Iterable
from typing import Any

from django import template

from consent.forms import Option
from consent.promises.odds import CHANCE

register = template.Library()


def _dots(first: int, end: int) -> str:
    """SVG path of points ``first`` to ``end`` (exclusive) of a ten by ten grid, ten units apart."""
    return "".join(f"M{5 + 10 * (n % 10)} {5 + 10 * (n // 10)}h0" for n in range(first, end))


@register.inclusion_tag("consent/icon_array.html")
def icon_array(right: int) -> dict[str, Any]:
    """Icon array of 100 guesses: right by chance, right beyond chance (up to ``right``), wrong."""
    return {
        "right": right,
        "more": right - CHANCE,
        "wrong": 100 - right,
        "by_chance_dots": _dots(0, CHANCE),
        "more_dots": _dots(CHANCE, right),
        "wrong_dots": _dots(right, 100),
    }


@register.filter
def times_high(options: Iterable[Option], level: str) -> int:
    """How many times as much the study may learn at a level as at high protection, whatever else can be answered."""
    return next(option.times_high for option in options if option.value == level)
