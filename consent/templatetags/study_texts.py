"""Template filters for what a study says of itself, in the reader's language."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language

from consent.models import Study
from consent.wording.facts import contact_text, study_text, together

register = template.Library()


@register.filter
def text_of(study: Study, field: str) -> SafeString | str:
    """Text of a study for the reader, marked with its language where that is another than the page's."""
    return text_in(study, field)


@register.simple_tag
def text_in(study: Study, field: str, language: str | None = None) -> SafeString | str:
    """Text of a study in a language that the reader chose; their own by default."""
    text = study_text(study, field, language)
    if text.language == get_language():
        return text.text
    return format_html('<span lang="{}">{}</span>', text.language, text.text)


@register.filter
def words_of(study: Study, field: str) -> str:
    """Text of a study for the reader, where no markup can stand: titles of pages, mails, addresses."""
    return study_text(study, field).text


@register.filter
def contact_of(study: Study) -> str:
    """Whom holders can ask, and how, where no markup can stand: mails and letters."""
    return contact_text(study)


@register.filter
def together_of(study: Study) -> str:
    """With whom a study learns together, and what leaves it for that; empty where it learns alone."""
    return together(study.alliance)
