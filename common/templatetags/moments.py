"""Template tag for dates and times on staff pages, with seconds and zone, machine-readable in ``datetime``."""

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from common.moments import zone_name

register = template.Library()


@register.simple_tag
def moment(value: datetime | None, seconds: bool = True) -> SafeString | str:
    """Return a time in the reader's time zone, with the zone's name.

    Args:
        value: the time; None is shown as a dash.
        seconds: whether seconds are shown. Without them, even ``datetime`` contains only the minute, for readers who
            must not learn how long a computation took.
    """
    if value is None:
        return "–"
    local = timezone.localtime(value).replace(microsecond=0)
    if not seconds:
        local = local.replace(second=0)
    day, clock, zone = moment_text(local, seconds).split(" ", 2)
    return format_html('<time datetime="{}">{} {}</time>', local.isoformat(), day, f"{clock}\xa0{zone}")


@register.filter
def moment_text(value: datetime, seconds: bool = True) -> str:
    """Return the time as :func:`moment` shows it, as plain text for captions and files."""
    local = timezone.localtime(value)
    clock = local.strftime("%H:%M:%S" if seconds else "%H:%M")
    return f"{date_format(local, 'SHORT_DATE_FORMAT')} {clock} {zone_name(local)}"
