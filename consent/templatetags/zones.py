"""Template filters for moments: always in the reader's zone, which is named."""

from datetime import datetime

from django import template

from common.moments import moment_words, zone_name

register = template.Library()
register.filter("zone", zone_name)


@register.filter
def moment(value: datetime) -> str:
    """Day and time with the zone."""
    return moment_words(value)
