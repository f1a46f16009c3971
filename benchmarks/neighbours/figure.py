"""A line chart as SVG, without a drawing library: shares over a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 660, 56, 390
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56606b", "#e69f00")
"""Distinct with any colour vision (Okabe, Ito 2008); each line also has its own mark, and its name at the end."""
_MARKS = (
    '<circle r="4.5"/>',
    '<rect x="-4" y="-4" width="8" height="8"/>',
    '<path d="M0 -5.5 5 4H-5Z"/>',
    '<path d="M0 -6 5 0 0 6 -5 0Z"/>',
    '<path d="M0 5.5 5 -4H-5Z"/>',
    '<path d="M-5 -5H5L-5 5H5Z"/>',
)
_APART = 15  # pixels between the names of two lines


@dataclass(frozen=True)
class Line:
    """A line of the chart. values: shares by their position on the horizontal axis."""

    name: str
    values: dict[float, float]


def per_cent(share: float) -> str:
    """Return a share in whole per cent."""
    return f"{100 * share:.0f} %"


def figure(
    lines: Sequence[Line],
    *,
    title: str,
    across: str,
    up: str,
    target: float | None = None,
    target_label: str = "",
    span: tuple[float, float] = (0.0, 1.0),
    shown: Callable[[float], str] = per_cent,
) -> str:
    """Return the chart of at most six lines, with a dashed line at `target` if given.

    span: smallest and largest value of the vertical axis.  shown: format of its values.
    """
    places = sorted({place for line in lines for place in line.values})
    first, last = math.log(places[0]), math.log(places[-1])

    def x(place: float) -> float:
        return LEFT + (RIGHT - LEFT - 20) * (math.log(place) - first) / max(last - first, 1e-9)

    def y(share: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (share - span[0]) / (span[1] - span[0])

    parts = [f'<text x="{LEFT}" y="26" font-size="15" font-weight="bold">{escape(title)}</text>']
    for fifth in range(6):
        value = span[0] + (span[1] - span[0]) * fifth / 5
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{RIGHT}" stroke="#d9dde1"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{shown(value)}</text>')
    for place in places:
        parts.append(f'<text x="{x(place):.1f}" y="{BOTTOM + 20}" text-anchor="middle">{place:,.7g}</text>')
    middle = (LEFT + RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{BOTTOM + 44}" text-anchor="middle">{escape(across)}</text>')
    parts.append(f'<text transform="translate(18 {(TOP + BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{up}</text>')
    if target is not None:
        parts.append(
            f'<path d="M{LEFT} {y(target):.1f}H{RIGHT}" stroke="#1b1f23" stroke-width="1.5" stroke-dasharray="6 4"/>'
        )
        parts.append(f'<text x="{LEFT + 4}" y="{y(target) - 6:.1f}">{escape(target_label)}</text>')
    names = _names_apart([y(line.values[max(line.values)]) for line in lines])
    for line, name, colour, mark in zip(lines, names, COLOURS, _MARKS, strict=False):
        points = [(x(place), y(share)) for place, share in sorted(line.values.items())]
        path = "L".join(f"{across:.1f} {height:.1f}" for across, height in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        placed = (f'<g transform="translate({across:.1f} {height:.1f})">{mark}</g>' for across, height in points)
        parts.append(f'<g fill="{colour}">{"".join(placed)}</g>')
        end = f'<text x="{points[-1][0] + 24:.1f}" y="{name + 4:.1f}">{escape(line.name)}</text>'
        marked = f'<g fill="{colour}" transform="translate({points[-1][0] + 14:.1f} {name:.1f})">{mark}</g>'
        parts.append(marked + end)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="13"><title>{escape(title)}</title><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        f'<g fill="#1b1f23">{"".join(parts)}</g></svg>\n'
    )


def _names_apart(heights: Sequence[float]) -> list[float]:
    """Return the heights, moved down where two names would otherwise overlap."""
    placed = list(heights)
    order = sorted(range(len(placed)), key=lambda one: placed[one])
    for upper, lower in pairwise(order):
        placed[lower] = max(placed[lower], placed[upper] + _APART)
    return placed
