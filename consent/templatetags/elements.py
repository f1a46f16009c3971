"""Tags and filters for elements of pages: sections, tables, icon arrays of odds, moments and days, checkpoints."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any

from django import template
from django.conf import settings
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from common.moments import moment_words, zone_name
from consent.forms import Option
from consent.models import Checkpoint
from consent.people.circumstances import day_of
from consent.promises.odds import CHANCE

register = template.Library()


@register.simple_block_tag
def section(content: str, name: str, heading: str, kind: str = "stack", level: int = 2) -> SafeString:
    """A section with the id ``name`` of its heading; ``kind`` are its classes, ``level`` is that of the heading.

    Of the kind ``fold`` it is closed at first. ``name`` is then the id of what it holds: a link to that opens it.
    """
    if kind == "fold":
        title = format_html('<h{} id="{}-heading">{}</h{}>', level, name, heading, level)
        opening = format_html('<details class="fold" id="{}-fold"><summary>{}</summary>', name, title)
        return format_html('{}<div class="stack" id="{}">{}</div></details>', opening, name, content)
    opening = format_html('<section class="{}" aria-labelledby="{}">', kind, name)
    return format_html('{}<h{} id="{}">{}</h{}>{}</section>', opening, level, name, heading, level, content)


@register.simple_block_tag
def table(content: str, label: str = "", labelledby: str = "", kind: str = "") -> SafeString:
    """Rows in a table in a region that has a name: `label`, or the text of the element with the id `labelledby`.

    On a phone columns whose head has the class `less` are left out until *All columns* is ticked (components.css).
    """
    name, value = ("aria-labelledby", labelledby) if labelledby else ("aria-label", label)
    all_columns = ""
    if 'class="less' in content:
        all_columns = format_html(
            '<label class="check all-columns"><input type="checkbox" autocomplete="off"> {}</label>', _("All columns")
        )
    return format_html(
        '<div class="{}" tabindex="0" role="region" {}="{}">{}<table class="table">{}</table></div>',
        *(f"table-wrap {kind}".strip(), name, value, all_columns, content),
    )


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


register.filter("zone", zone_name)


@register.filter
def moment(value: datetime) -> str:
    """Day and time with the zone."""
    return moment_words(value)


@register.filter
def days_left(day: date) -> int:
    """Days from today to ``day``; negative once it is over."""
    return (day - day_of(timezone.now())).days


@register.filter
def absolute(number: int) -> int:
    """Number without its sign."""
    return abs(number)


@register.simple_tag
def checkpoint_keys() -> list[str]:
    """Public keys with which signed checkpoints are checked: the present one first."""
    return settings.CHECKPOINT_KEYS


@register.simple_tag
def last_checkpoint() -> Checkpoint | None:
    """The last signed checkpoint of the installation."""
    return Checkpoint.objects.last()
