"""Information that people get about a study: texts in each of its languages, and the facts in its consent form.

The study's own fields are in the site's first language; ``Study.translations`` has the others. A text that is missing
in the reader's language is shown in the first language and marked as such.

Pages show the facts of the version in force, which are in the study's row. Each version keeps its own copy for
receipts, so the facts to which someone consented never change. GDPR Articles 13 and 14 define which facts a study has
to state.
"""

import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.conf import settings
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from consent.languages import is_variant
from consent.models import ConsentForm, ConsentFormProposal, LawfulBasis, Study
from consent.wording.rendering import DiffLine, sentence_differences

#: Fields with a text in each language of a study.
TRANSLATED = (
    *("title", "purpose", "data_categories", "recipients", "retention", "data_source", "harm", "mail_opening"),
    "contact_hours",
)
#: Facts in the order of forms and receipts.
FACTS = (
    "purpose",
    "controller",
    "controller_address",
    "contact",
    "data_protection_officer",
    "without_officer",
    "supervisory_authority",
    "data_categories",
    "data_source",
    "recipients",
    "without_recipients",
    "retention",
    "retention_until",
    "after_withdrawal",
    "lawful_basis",
    "jurisdiction",
    "after_death",
    "after_incapacity",
    "alliance",
)
#: Facts that tell people whom they can contact.
TURNED_TO = {"controller_address", "contact", "data_protection_officer", "without_officer", "supervisory_authority"}
#: Facts on which people rely when they decide. If any of them change, people who consented are asked again first.
RELIED_ON = {name for name in FACTS if name not in TURNED_TO}
#: Facts with a text in each language of a study.
TRANSLATED_FACTS = tuple(name for name in TRANSLATED if name in FACTS)
#: Statements that replace names: that no one else sees raw records, or that no officer is required.
INSTEAD = {"recipients": "without_recipients", "data_protection_officer": "without_officer"}
#: Required statements, with the paragraphs of GDPR Articles 13 and 14 that require them.
REQUIRED = {
    "purpose": "13(1)(c), 14(1)(c)",
    "controller": "13(1)(a), 14(1)(a)",
    "controller_address": "13(1)(a), 14(1)(a)",
    "contact": "13(1)(a), 14(1)(a)",
    "data_protection_officer": "13(1)(b), 14(1)(b)",
    "lawful_basis": "13(1)(c), 14(1)(c)",
    "data_categories": "14(1)(d)",
    "recipients": "13(1)(e), 14(1)(e)",
    "retention": "13(2)(a), 14(2)(a)",
    "supervisory_authority": "13(2)(d), 14(2)(e)",
    "data_source": "14(2)(f)",
}
#: Words for a person or company that processes records for the controller.
_PROCESSORS = re.compile(
    r"\bprocessors?\b|\bservice providers?\b|\b(?:sub)?contractors?\b|\bon (?:our|its|their) behalf\b|"
    r"\bAuftrags(?:daten)?verarbeite\w*|\bDienstleister\w*|\b(?:Sub|Nach)unternehme[rn]\w*|"
    r"\bin (?:unserem|ihrem|seinem) Auftrag\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class StudyText:
    """A text of a study, and its language."""

    text: str
    language: str

    def __str__(self) -> str:
        return self.text


def study_text(study: Study, field: str, language: str | None = None) -> StudyText:
    """Return a study's text in ``language`` (default: the reader's), or else in the site's first language."""
    language = (language or get_language() or settings.LANGUAGE_CODE).split("-")[0]
    translated = study.translations.get(language, {}).get(field, "")
    if translated:
        return StudyText(translated, language)
    return StudyText(getattr(study, field), settings.LANGUAGE_CODE)


def contact_text(study: Study) -> str:
    """Return the contact for questions: person, telephone with its hours, email address."""
    hours, number = study_text(study, "contact_hours").text, study.contact_telephone
    if number:
        number = _("phone %(number)s") % {"number": number}
        number = f"{number} ({hours})" if hours else number
    return ", ".join(part for part in (study.contact_name, number, study.contact) if part)


def texts_missing(study: Study) -> dict[str, list[str]]:
    """Return, for each other language of the study, the fields whose text exists only in the first language."""
    missing = {}
    for language in study.languages:
        if language != settings.LANGUAGE_CODE and not is_variant(language):
            texts = study.translations.get(language, {})
            fields = [field for field in TRANSLATED if getattr(study, field) and not texts.get(field)]
            if fields:
                missing[language] = fields
    return missing


def facts_of(study: Study) -> dict[str, Any]:
    """Return the facts in a study's row in JSON form, with texts in other languages under ``translations``."""
    facts = {name: getattr(study, name) for name in FACTS}
    if isinstance(facts["retention_until"], date):
        facts["retention_until"] = facts["retention_until"].isoformat()
    translations = {
        language: {name: texts[name] for name in TRANSLATED_FACTS if texts.get(name)}
        for language, texts in study.translations.items()
    }
    return {**facts, "translations": {language: texts for language, texts in sorted(translations.items()) if texts}}


def study_with(study: Study, facts: Mapping[str, Any]) -> Study:
    """Return a copy of a study with other facts; the copy must not be saved."""
    changed = copy(study)
    for name in FACTS:
        if name in facts:
            setattr(changed, name, facts[name])
    if isinstance(changed.retention_until, str):
        changed.retention_until = date.fromisoformat(changed.retention_until)
    languages = {*study.translations, *facts.get("translations", {})}
    changed.translations = {
        language: {
            **{name: text for name, text in study.translations.get(language, {}).items() if name not in FACTS},
            **facts.get("translations", {}).get(language, {}),
        }
        for language in sorted(languages)
    }
    return changed


def study_of_form(form: ConsentForm | ConsentFormProposal, study: Study | None = None) -> Study:
    """Return the study with the facts of a version of its form; pass ``study`` if it has already been loaded."""
    return study_with(study or form.study, form.facts)


@dataclass(frozen=True)
class Missing:
    """Fact that a study has not stated: its field, its name, and the paragraphs that require it."""

    field: str
    label: str
    articles: str


def facts_missing(study: Study) -> list[Missing]:
    """Return required facts that the study has not stated; none for a rehearsal, which does not ask people."""
    if study.rehearsal:
        return []
    lacking = [
        name
        for name in REQUIRED
        if not str(getattr(study, name)).strip() and not (name in INSTEAD and getattr(study, INSTEAD[name]))
    ]
    missing = [Missing(name, fact_label(name), REQUIRED[name]) for name in lacking]
    if study.lawful_basis == LawfulBasis.OTHER and not study.jurisdiction:
        missing.append(Missing("jurisdiction", fact_label("jurisdiction"), "13(1)(c), 14(1)(c)"))
    return missing


def fact_label(name: str) -> str:
    """Return the name of a fact on pages."""
    return capfirst(str(Study._meta.get_field(name).verbose_name))  # type: ignore[union-attr]


def fact_words(study: Study, language: str | None = None) -> list[tuple[str, str]]:
    """Return the stated facts of a study in words, with their names."""
    words = []
    for name in FACTS:
        text = _words(study, name, language)
        if text:
            words.append((fact_label(name), text))
    return words


def _words(study: Study, name: str, language: str | None) -> str:
    value = getattr(study, name)
    if name in INSTEAD.values():
        return ""
    if name in INSTEAD and not value and getattr(study, INSTEAD[name]):
        return _("nobody") if name == "recipients" else _("none is required")
    if isinstance(value, date):
        return date_format(value, "DATE_FORMAT")
    if name == "alliance":
        return together(value)
    field = Study._meta.get_field(name)
    if getattr(field, "choices", None):
        return str(getattr(study, f"get_{name}_display")())
    return str(study_text(study, name, language)) if name in TRANSLATED_FACTS else str(value or "")


def together(alliance: Mapping[str, Any]) -> str:
    """Return the partners that a study learns with, and the data shared with them; empty if it learns on its own."""
    if not alliance:
        return ""
    text = _(
        "Together with %(sites)s. %(hub)s asks all of them the same questions and adds up their answers. Records "
        "stay where they are. Only totals over all of an organisation's people leave it, after random noise has been "
        "added. The limit that each person chose also applies to these totals. People who take part in two of these "
        "organisations are counted in each of them."
    )
    return text % {"sites": ", ".join(alliance["sites"]), "hub": alliance["hub"]}


def changed_facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return names of facts that differ. A text in a newly added language is not a difference."""
    changed = [name for name in FACTS if before.get(name) != after.get(name)]
    translations = after.get("translations", {})
    for language, texts in before.get("translations", {}).items():
        changed += [name for name, text in texts.items() if translations.get(language, {}).get(name) != text]
    return list(dict.fromkeys(changed))


def contradictions(texts: Mapping[str, str], study: Study) -> Iterator[str]:
    """Yield mentions of a processor in a form's texts if, according to the facts, no one else sees raw records."""
    if study.recipients:
        return
    for text in texts.values():
        yield from dict.fromkeys(match.group() for match in _PROCESSORS.finditer(text))


def languages_of_facts(study: Study) -> list[str]:
    """Return the languages in which a study's facts are written, beginning with its first language."""
    return list(dict.fromkeys([settings.LANGUAGE_CODE, *study.languages, *study.translations]))


def fact_differences(older: Study, newer: Study) -> list[DiffLine]:
    """Return facts that differ, by name: first texts in the reader's language, then texts in other languages."""
    lines: list[DiffLine] = []
    for language in (None, *languages_of_facts(newer)):
        before, now = dict(fact_words(older, language)), dict(fact_words(newer, language))
        for label in {**now, **before}:
            line = sentence_differences(_named(label, before.get(label)), _named(label, now.get(label)))
            lines += [each for each in line if each not in lines]
    return lines


def _named(label: str, text: str | None) -> str:
    return f"{label}: {text or '–'}"
