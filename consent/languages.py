"""The languages in which a study promises its consent form: those of the site, and others that it adds."""

from typing import Any

from django.conf import settings
from django.conf.locale import LANG_INFO
from django.core.exceptions import ValidationError
from django.utils.translation import get_language_info
from django.utils.translation import gettext as _


def first_language() -> list[str]:
    """What a study promises unless it says more."""
    return [settings.LANGUAGE_CODE]


def own_name(code: str) -> str:
    """What a language is called by those who speak it.

    >>> own_name("fr")
    'Français'
    """
    return str(get_language_info(code)["name_local"]).capitalize()


def translated_name(code: str) -> str:
    """What a language is called in the reader's; a code that nobody knows stands for itself."""
    return str(get_language_info(code)["name_translated"]) if code in LANG_INFO else code


def languages_check(codes: Any) -> None:
    """A list of known codes, the site's first language among them; raises ValidationError."""
    unknown = [code for code in codes if "name_local" not in LANG_INFO.get(code, {})]
    if unknown:
        raise ValidationError(
            _("Unknown language: %(codes)s. Use codes like en, de, fr, pt-br.") % {"codes": ", ".join(unknown)}
        )
    if settings.LANGUAGE_CODE not in codes:
        raise ValidationError(_("English is what readers of all other languages see; keep “en” in the list."))
