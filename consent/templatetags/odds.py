"""Odds as a picture."""

from typing import Any

from django import template

from consent.forms import CHANCE

register = template.Library()


def _dots(first: int, end: int) -> str:
    """Points ``first`` up to ``end`` of a grid of ten by ten, ten apart, as a path of round line ends."""
    return "".join(f"M{5 + 10 * (n % 10)} {5 + 10 * (n // 10)}h0" for n in range(first, end))


@register.inclusion_tag("consent/icon_array.html")
def icon_array(right: int) -> dict[str, Any]:
    """100 dots, one a guess: those right by chance alone, those right beyond that (up to ``right``), the wrong ones."""
    return {
        "right": right,
        "more": right - CHANCE,
        "wrong": 100 - right,
        "by_chance_dots": _dots(0, CHANCE),
        "more_dots": _dots(CHANCE, right),
        "wrong_dots": _dots(right, 100),
    }
