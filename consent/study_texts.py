"""Texts of a study about itself, in each of its languages.

The study's own fields are in the site's first language; ``Study.translations`` has the others. A text that is missing
in the reader's language is shown in the first, and marked as such.
"""

from dataclasses import dataclass

from django.conf import settings
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from consent.languages import is_variant
from consent.models import Study

#: Fields that have a text in each language of a study.
TRANSLATED = (
    *("title", "purpose", "data_categories", "recipients", "retention", "data_source", "harm", "mail_opening"),
    "contact_hours",
)


@dataclass(frozen=True)
class StudyText:
    """A text of a study, and the language that it is in."""

    text: str
    language: str

    def __str__(self) -> str:
        return self.text


def study_text(study: Study, field: str, language: str | None = None) -> StudyText:
    """Text of a study in ``language`` (default: the reader's), or in the site's first if there is none."""
    language = (language or get_language() or settings.LANGUAGE_CODE).split("-")[0]
    translated = study.translations.get(language, {}).get(field, "")
    if translated:
        return StudyText(translated, language)
    return StudyText(getattr(study, field), settings.LANGUAGE_CODE)


def contact_text(study: Study, language: str | None = None) -> str:
    """Whom holders can ask, and how: person, telephone with its hours, address of mails."""
    hours, number = study_text(study, "contact_hours", language).text, study.contact_telephone
    if number:
        number = _("telephone %(number)s") % {"number": number}
        number = f"{number} ({hours})" if hours else number
    return ", ".join(part for part in (study.contact_name, number, study.contact) if part)


def texts_missing(study: Study) -> dict[str, list[str]]:
    """Fields that have a text in the first language, and none in another that the study promises, by language."""
    missing = {}
    for language in study.languages:
        if language != settings.LANGUAGE_CODE and not is_variant(language):
            texts = study.translations.get(language, {})
            fields = [field for field in TRANSLATED if getattr(study, field) and not texts.get(field)]
            if fields:
                missing[language] = fields
    return missing
