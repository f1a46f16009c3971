"""Times as people read them: in the reader's zone, which is named."""

from datetime import datetime

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

#: Zones with different abbreviations in other languages.
_ZONES = {"CET": _("CET"), "CEST": _("CEST")}


def zone_name(moment: datetime) -> str:
    """Return the abbreviation of the reader's zone at a time, in their language."""
    name = timezone.localtime(moment).tzname() or ""
    return str(_ZONES.get(name, name))


def moment_words(moment: datetime) -> str:
    """Return day and time with the zone, in the reader's language."""
    return f"{date_format(timezone.localtime(moment), 'DATETIME_FORMAT')} ({zone_name(moment)})"
