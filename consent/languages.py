"""Languages of a study's consent form: those of the site, and others that the study adds."""

from typing import Any

from django.conf import settings
from django.conf.locale import LANG_INFO
from django.core.exceptions import ValidationError
from django.utils.translation import get_language_info
from django.utils.translation import gettext as _


def first_language() -> list[str]:
    """Default of a study's languages: the site's first language."""
    return [settings.LANGUAGE_CODE]


def own_name(code: str) -> str:
    """Name of a language in that language.

    >>> own_name("fr")
    'Français'
    """
    return str(get_language_info(code)["name_local"]).capitalize()


def translated_name(code: str) -> str:
    """Name of a language in the reader's language; an unknown code is returned unchanged."""
    return str(get_language_info(code)["name_translated"]) if code in LANG_INFO else code


def languages_check(codes: Any) -> None:
    """Validate a study's list of language codes.

    Raises:
        ValidationError: an unknown code, or the site's first language is not in the list.
    """
    unknown = [code for code in codes if "name_local" not in LANG_INFO.get(code, {})]
    if unknown:
        raise ValidationError(
            _("Unknown language: %(codes)s. Use codes like en, de, fr, pt-br.") % {"codes": ", ".join(unknown)}
        )
    if settings.LANGUAGE_CODE not in codes:
        raise ValidationError(_("English is what readers of all other languages see; keep “en” in the list."))
