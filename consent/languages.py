"""Languages of a study's consent form: those of the site, and others that the study adds.

Each language has a main text, which is binding, and may have variants, such as a text for young people or an
easy-to-read text. The code of a variant is the language's code with a private part as defined by BCP 47: ``de-x-easy``.
"""

from typing import Any

from django.conf import settings
from django.conf.locale import LANG_INFO
from django.core.exceptions import ValidationError
from django.utils.translation import get_language_info, gettext_lazy
from django.utils.translation import gettext as _


def first_language() -> list[str]:
    """Return the default for a study's languages: the site's first language."""
    return [settings.LANGUAGE_CODE]


#: Variants of a language's main text, by the key after “-x-” in their code.
VARIANTS = {"young": gettext_lazy("for young people"), "easy": gettext_lazy("easy to read")}


def language_of(code: str) -> str:
    """Return the language of a text's code, which may be a variant's code.

    >>> language_of("de-x-easy")
    'de'
    """
    return code.partition("-x-")[0]


def is_variant(code: str) -> bool:
    """Return whether a code belongs to a variant rather than to the main text in its language."""
    return "-x-" in code


def own_name(code: str) -> str:
    """Return a language's own name for itself, followed by the name of the variant, if any, in the reader's language.

    >>> own_name("fr"), own_name("de-x-easy")
    ('Français', 'Deutsch, easy to read')
    """
    return _named(str(get_language_info(language_of(code))["name_local"]).capitalize(), code)


def translated_name(code: str) -> str:
    """Return the name of a language and variant in the reader's language; return an unknown code unchanged."""
    language = language_of(code)
    return _named(str(get_language_info(language)["name_translated"]), code) if language in LANG_INFO else code


def _named(name: str, code: str) -> str:
    key = code.partition("-x-")[2]
    return f"{name}, {VARIANTS.get(key, key)}" if key else name


def languages_check(codes: Any) -> None:
    """Validate a study's list of language codes.

    Raises:
        ValidationError: a code is unknown, or the site's first language is missing from the list.
    """
    unknown = [
        code
        for code in codes
        if "name_local" not in LANG_INFO.get(language_of(code), {})
        or (is_variant(code) and code.partition("-x-")[2] not in VARIANTS)
    ]
    if unknown:
        raise ValidationError(
            _("Unknown language: %(codes)s. Use codes like en, de, fr, pt-br, de-x-easy, de-x-young.")
            % {"codes": ", ".join(unknown)}
        )
    alone = [code for code in codes if is_variant(code) and language_of(code) not in codes]
    if alone:
        message = _(
            "A variant is shown next to the main text of its language. Add the main language of %(codes)s to the list."
        )
        raise ValidationError(message % {"codes": ", ".join(alone)})
    if settings.LANGUAGE_CODE not in codes:
        raise ValidationError(_("Readers of all other languages see the English text, so keep “en” in the list."))
