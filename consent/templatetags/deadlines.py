"""Template filters: how long it is until a day."""

from datetime import date

from django import template
from django.utils import timezone

from consent.people.circumstances import day_of

register = template.Library()


@register.filter
def days_left(day: date) -> int:
    """Days from today to ``day``; negative once it is over."""
    return (day - day_of(timezone.now())).days


@register.filter
def absolute(number: int) -> int:
    """Number without its sign."""
    return abs(number)
