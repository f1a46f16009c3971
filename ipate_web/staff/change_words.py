"""Changes to a study's configuration in words, as shown on pages."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import DateField, DateTimeField, Field, ForeignKey, QuerySet
from django.utils.formats import date_format, number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from common.templatetags.components import capfirst
from common.templatetags.moments import moment, moment_text
from consent.languages import translated_name
from consent.models import Change, ConfigurationChange, Recorded, SealedChange, Study, recorded_models
from consent.people.exports import holder_mark
from consent.services.webhooks import EVENTS
from ipate_web.run_words import learner_label, percent, target_words
from ipate_web.staff.comparison import parameter_label, parameter_value
from training.comparison import dotted
from training.models import Run

#: Names of fields, in any model, that no form shows.
_FIELDS = {
    "approved_at": _("approved at"),
    "approved_by": _("approved by"),
    "artifact": _("file"),
    "batch_size": _("batch size"),
    "closed_at": _("closed at"),
    "closing": _("closing"),
    "code_hash": _("code"),
    "created_at": _("created at"),
    "created_by": _("created by"),
    "digest": _("file checksum"),
    "events": _("events"),
    "expired_at": _("records erased at"),
    "holder": _("data holder"),
    "imported_at": _("imported at"),
    "imported_by": _("imported by"),
    "key": _("identifier"),
    "labelled_dataset": _("labelled public rows"),
    "linked_at": _("linked at"),
    "most_records": _("rows per person"),
    "plan": _("plan"),
    "private_dataset": _("private dataset"),
    "public_dataset": _("public dataset"),
    "refusal": _("statement that people may say no"),
    "rehearsed": _("rehearsal parameters"),
    "removed_at": _("removed at"),
    "returned_at": _("letter returned at"),
    "returned_by": _("letter return recorded by"),
    "revision": _("revision"),
    "revoked_at": _("revoked at"),
    "revoked_by": _("revoked by"),
    "salutation": _("salutation"),
    "schema": _("schema"),
    "secret": _("secret"),
    "snapshot_at": _("consents as of"),
    "student_parameters": _("student parameters"),
    "test_dataset": _("test dataset"),
    "text": _("what the letter is about"),
    "translations": _("texts in other languages"),
    "url": _("address"),
    "user": _("account"),
}
#: Rows of a model by key.
Rows = dict[str, Any]
#: Number of characters of a value shown on a page; the file for auditors has the full value.
_LONGEST = 600
#: Number of characters of all values of a change that a list shows without folding them.
_BRIEF = 200


#: JSON fields of runs that pages show parameter by parameter, with the first part of the parameters' dotted names.
_PARAMETERS = {"choices": "choices", "rehearsed": "rehearsed", "student_parameters": "student_learner"}
#: JSON fields with texts by language and name.
_TEXTS = ("texts", "translations")


@dataclass(frozen=True)
class Value:
    """Value of a field before and after a change, in words or as a time; empty if there was or is none."""

    field: str
    before: str | date
    after: str | date

    @property
    def texts(self) -> tuple[str, str]:
        """Both values as plain text."""
        return _text(self.before), _text(self.after)

    @property
    def marked(self) -> tuple[SafeString, SafeString]:
        """Both values in HTML, where the language of texts is unknown."""
        return _marked(self.before), _marked(self.after)


@dataclass(frozen=True)
class ListedChange:
    """Change and its row, in words; for a sealed change, ``values`` is empty and ``fields`` lists the fields' names."""

    change: Change
    what: str
    row: str
    by: str
    values: list[Value]
    fields: list[str]

    @property
    def is_open(self) -> bool:
        return isinstance(self.change, ConfigurationChange)

    @property
    def is_edit(self) -> bool:
        """Whether the row existed before and after the change."""
        return self.change.before is not None and self.change.after is not None

    @property
    def is_brief(self) -> bool:
        """Whether the values fit into a cell of a table."""
        return self.is_edit and sum(len(text) for value in self.values for text in value.texts) <= _BRIEF


def changes_of(study: Study, *, sealed: bool = False) -> QuerySet[Change]:
    """Return changes of a study: the open ones or, if ``sealed``, those that concern people and secrets."""
    return (SealedChange if sealed else ConfigurationChange)._default_manager.filter(study=study)


def models_recorded(*, sealed: bool = False) -> list[tuple[str, str]]:
    """Return the label and name of every model with open fields or, if ``sealed``, with sealed fields."""
    models = [model for model in recorded_models() if (model.sealed_fields if sealed else model.open_fields)]
    return [(model._meta.label_lower, capfirst(str(model._meta.verbose_name))) for model in models]


def change_lines(changes: Iterable[Change]) -> list[ListedChange]:
    """Return changes in words, with one query for each kind of object that they name."""
    changes = list(changes)
    models = {model._meta.label_lower: model for model in recorded_models()}
    wanted: dict[type, set[str]] = {get_user_model(): {str(each.changed_by_id) for each in changes}}
    for each in changes:
        if (model := models.get(each.model)) is not None and isinstance(each, ConfigurationChange):
            wanted.setdefault(model, set()).add(each.row)
            for name, value in _values(each):
                if (related := _related(model, name)) is not None:
                    wanted.setdefault(related, set()).add(str(value))
    rows = {model: _rows(model, keys) for model, keys in wanted.items()}
    return [_line(each, models.get(each.model), rows) for each in changes]


def _values(change: Change) -> Iterator[tuple[str, Any]]:
    for state in (change.before, change.after):
        yield from (state or {}).items()


def _related(model: type[Recorded], name: str) -> type | None:
    field = _field(model, name)
    return field.related_model if isinstance(field, ForeignKey) else None


def _field(model: type[Recorded], name: str) -> Field | None:
    """Return a field of a model; None if only an earlier version of the model had it."""
    return next((field for field in model._meta.concrete_fields if field.name == name), None)


def _rows(model: Any, keys: set[str]) -> Rows:
    try:
        rows = model._default_manager.filter(pk__in=[key for key in keys if key != "None"])
        return {str(row.pk): row for row in rows}
    except (ValidationError, ValueError):  # a key that the site never wrote, so rows were tampered with
        return {}


def _line(change: Change, model: type[Recorded] | None, rows: dict[type, Rows]) -> ListedChange:
    who = str(change.changed_by_id) if change.changed_by_id else ""
    unknown = gettext("deleted account %(number)s") % {"number": who} if who else ""
    by = str(rows[get_user_model()].get(who, unknown))
    if model is None:
        return ListedChange(change, change.model, change.row, by, [], [])
    before, after = change.before or {}, change.after or {}
    fields = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    is_open = isinstance(change, ConfigurationChange)
    return ListedChange(
        change,
        what=capfirst(str(model._meta.verbose_name)),
        row=str(rows[model].get(change.row, change.row)) if is_open else holder_mark(f"{change.model} {change.row}"),
        by=by,
        values=[value for name in fields for value in _changed(model, name, change, rows)] if is_open else [],
        fields=[_title(model, name) for name in fields],
    )


def _title(model: type[Recorded], name: str) -> str:
    field = _field(model, name)
    words = str(_FIELDS.get(name) or (field.verbose_name if field else name))
    return capfirst(words)


def _changed(model: type[Recorded], name: str, change: Change, rows: dict[type, Rows]) -> Iterator[Value]:
    """Yield the values of a field, or of its parts, that differ."""
    before, after = (
        _parts(model, name, (state or {}).get(name), change.row, rows) for state in (change.before, change.after)
    )
    for title in {**before, **after}:
        value = Value(title, before.get(title, ""), after.get(title, ""))
        if value.before != value.after or name == "plan":
            yield value


def _parts(model: type[Recorded], name: str, value: Any, key: str, rows: dict[type, Rows]) -> Mapping[str, str | date]:
    """Return the parts of a field in words, by title; most fields have one part."""
    title = _title(model, name)
    if isinstance(value, dict) and model is Run and name in _PARAMETERS:
        runs = [rows[model][key]] if key in rows[model] else []
        found = {
            parameter_label(path, runs): parameter_value(path, part, runs)
            for path, part in dotted(_PARAMETERS[name], value).items()
            if part not in ("", [], {})
        }
        return {label: words for label, words in found.items() if words != "–"}
    if isinstance(value, dict) and name in _TEXTS and all(isinstance(each, dict) for each in value.values()):
        return {
            f"{_title(model, field)} ({translated_name(language)})": _short(text)
            for language, texts in value.items()
            for field, text in texts.items()
            if isinstance(text, str)
        }
    return {title: _words(model, name, value, rows)}


def _words(model: type[Recorded], name: str, value: Any, rows: dict[type, Rows]) -> str | date:
    """Return a field's value in words or as a time; empty if there is none."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    related = _related(model, name)
    if related is not None:
        return str(rows[related].get(str(value), value))
    field = _field(model, name)
    choices = dict(field.flatchoices) if field else {}
    if isinstance(value, str) and value in choices:
        return str(choices[value])
    if value in model.own_words:
        return gettext(value)
    try:
        if name in _SPECIAL:
            return _short(str(_SPECIAL[name](value)))
        if isinstance(field, DateTimeField):
            return datetime.fromisoformat(value)
        if isinstance(field, DateField):
            return date.fromisoformat(value)
    except (AttributeError, KeyError, TypeError, ValueError):  # a value that the site never wrote
        pass
    if isinstance(value, int | float):
        return str(number_format(value))
    return _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _schema_words(schema: Mapping[str, Any]) -> str:
    """Return what each row contains, and what is learned."""
    if schema["kind"] == "image":
        words = gettext("an image of %(height)s × %(width)s pixels, channels: %(channels)s") % schema
    else:
        words = _pair(_("Columns"), ", ".join(column["name"] for column in schema["columns"]))
    if "target" in schema:
        return "; ".join([words, _pair(_("Learning target"), target_words(schema["target"]))])
    return "; ".join([words, _pair(_("Classes"), ", ".join(schema["classes"]))])


def _pair(name: object, words: str) -> str:
    return f"{name}: {words}"


def _takes_words(takes: Mapping[str, Any]) -> str:
    if takes["kind"] == "image":
        return gettext("images of %(size)s × %(size)s pixels") % takes
    return gettext("texts in pieces of %(length)s tokens") % takes


#: Functions that put values of some fields, in any model, into words.
_SPECIAL: dict[str, Callable[[Any], object]] = {
    "alliance": lambda alliance: alliance["name"],
    "artifact": lambda _path: gettext("stored"),
    "budget_warning": percent,
    "events": lambda events: "; ".join(str(EVENTS[event]) for event in events),
    "languages": lambda codes: ", ".join(map(translated_name, codes)),
    "logo": lambda _picture: gettext("an image"),
    "plan": lambda _plan: gettext("shown on the run's page"),
    "renewal": lambda renewal: renewal["site"],
    "schema": _schema_words,
    "share": percent,
    "student_learner": learner_label,
    "takes": _takes_words,
    "terms": lambda _terms: gettext("in the signed document"),
}


def _short(text: str) -> str:
    return Truncator(text).chars(_LONGEST)


def _text(value: str | date) -> str:
    if isinstance(value, datetime):
        return moment_text(value)
    return str(date_format(value, "SHORT_DATE_FORMAT")) if isinstance(value, date) else value


def _marked(value: str | date) -> SafeString:
    if isinstance(value, datetime):
        return SafeString(moment(value))
    if isinstance(value, date):
        return format_html('<time datetime="{}">{}</time>', value.isoformat(), _text(value))
    return format_html('<bdi lang="">{}</bdi>', value or "–")
