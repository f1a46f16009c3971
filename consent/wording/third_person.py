"""Third person: texts of pages, receipts and emails for someone who answers for another person.

Guardians and proxies read “Anna Example's records” where others read “your records”. The text is chosen during
translation: by :func:`gettext` and :func:`gettext_lazy` of this module, and by the tags ``translate`` and
``blocktranslate`` of every template (:mod:`consent.templatetags.elements`), but not by ``_("…")`` in other tags.
Templates and services therefore need each text only once, addressed to the reader. Each language, including English,
has a catalogue ``person`` with the same texts about another person, whose name is ``%(person)s``. If a text is missing
from this catalogue, it is about the reader and stays unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from gettext import NullTranslations
from gettext import translation as catalogue

from django.conf import settings
from django.utils import translation
from django.utils.functional import lazy

from common.sentences import gettext_noop

_NAME = "%(person)s"
_NAMELESS = gettext_noop("this person")
#: Characters with a special meaning in a page or in placeholders.
_MARKS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "%%"})
#: Person whom texts are about; None if they address the reader.
_spoken_about: ContextVar[str | None] = ContextVar("spoken about", default=None)


@contextmanager
def in_third_person(person: str) -> Iterator[None]:
    """Make the texts inside the block refer to ``person``.

    If ``person`` is empty because the pseudonym was erased, a general name that fits every text is used.
    """
    token = _spoken_about.set(person)
    try:
        yield
    finally:
        _spoken_about.reset(token)


@cache
def texts_in(language: str) -> NullTranslations:
    """Return the third-person texts in a language, or in the site's first language if there are none."""
    languages = [translation.to_locale(each) for each in (language, settings.LANGUAGE_CODE)]
    return catalogue("person", settings.LOCALE_PATHS[0], languages)


def third_person(message: str) -> str | None:
    """Return a text about the person, in the active language; None if the text is missing or addresses the reader."""
    person = _spoken_about.get()
    if person is None or not message:
        return None
    text = texts_in(translation.get_language() or settings.LANGUAGE_CODE).gettext(message)
    if text == message:
        return None
    name = person.translate(_MARKS) or translation.gettext(_NAMELESS)
    if text.startswith(_NAME):
        text = (name if person else name[:1].upper() + name[1:]) + text.removeprefix(_NAME)
    return text.replace(_NAME, name)


def gettext(message: str) -> str:
    """Return the translation of a text, in the third person where there is one."""
    third = third_person(message)
    return translation.gettext(message) if third is None else third


gettext_lazy = lazy(gettext, str)
