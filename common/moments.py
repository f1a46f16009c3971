"""Formatting of times in the reader's language and time zone, with the zone's name."""

from datetime import datetime

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

#: Zones whose abbreviations differ between languages.
_ZONES = {"CET": _("CET"), "CEST": _("CEST")}


def zone_name(moment: datetime) -> str:
    """Return the abbreviation of the reader's time zone at a given time, in their language."""
    name = timezone.localtime(moment).tzname() or ""
    return str(_ZONES.get(name, name))


def moment_words(moment: datetime) -> str:
    """Return a date and time with its zone, in the reader's language."""
    return f"{date_format(timezone.localtime(moment), 'DATETIME_FORMAT')} ({zone_name(moment)})"
