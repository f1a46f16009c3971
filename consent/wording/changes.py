"""Changes to a study's configuration in words, as shown on pages."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Field, ForeignKey, QuerySet
from django.utils.text import Truncator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from common.templatetags.components import capfirst
from consent.models import Change, ConfigurationChange, Recorded, SealedChange, Study, recorded_models
from consent.people.exports import holder_mark

#: Names of fields, in any model, that no form shows.
_FIELDS = {
    "approved_at": _("approved at"),
    "approved_by": _("approved by"),
    "artifact": _("file"),
    "batch_size": _("batch size"),
    "closed_at": _("closed at"),
    "code_hash": _("code"),
    "created_at": _("created at"),
    "created_by": _("created by"),
    "digest": _("file checksum"),
    "events": _("events"),
    "expired_at": _("records erased at"),
    "holder": _("data holder"),
    "imported_at": _("imported at"),
    "imported_by": _("imported by"),
    "labelled_dataset": _("labelled public rows"),
    "linked_at": _("linked at"),
    "plan": _("plan"),
    "private_dataset": _("private dataset"),
    "public_dataset": _("public dataset"),
    "rehearsed": _("rehearsal parameters"),
    "removed_at": _("removed at"),
    "returned_at": _("letter returned at"),
    "returned_by": _("letter return recorded by"),
    "revision": _("revision"),
    "revoked_at": _("revoked at"),
    "revoked_by": _("revoked by"),
    "schema": _("schema"),
    "secret": _("secret"),
    "snapshot_at": _("consents as of"),
    "student_parameters": _("student parameters"),
    "test_dataset": _("test dataset"),
    "translations": _("texts in other languages"),
    "url": _("address"),
    "user": _("account"),
}
#: Number of characters of a value shown on a page; the file for auditors has the full value.
_LONGEST = 600
#: Number of characters of all values of a change that a list shows without folding them.
_BRIEF = 200


@dataclass(frozen=True)
class Value:
    """Value of a field before and after a change, in words; empty if there was or is none."""

    field: str
    before: str
    after: str


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
        return self.is_edit and sum(len(value.before) + len(value.after) for value in self.values) <= _BRIEF


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
    names = {model: _names(model, keys) for model, keys in wanted.items()}
    return [_line(each, models.get(each.model), names) for each in changes]


def _values(change: Change) -> Iterator[tuple[str, Any]]:
    for state in (change.before, change.after):
        yield from (state or {}).items()


def _related(model: type[Recorded], name: str) -> type | None:
    field = _field(model, name)
    return field.related_model if isinstance(field, ForeignKey) else None


def _field(model: type[Recorded], name: str) -> Field | None:
    """Return a field of a model; None if only an earlier version of the model had it."""
    return next((field for field in model._meta.concrete_fields if field.name == name), None)


def _names(model: Any, keys: set[str]) -> dict[str, str]:
    try:
        rows = model._default_manager.filter(pk__in=[key for key in keys if key != "None"])
        return {str(row.pk): str(row) for row in rows}
    except (ValidationError, ValueError):  # a key that the site never wrote, so rows were tampered with
        return {}


def _line(change: Change, model: type[Recorded] | None, names: dict[type, dict[str, str]]) -> ListedChange:
    who = str(change.changed_by_id) if change.changed_by_id else ""
    by = names[get_user_model()].get(who) or (gettext("deleted account %(number)s") % {"number": who} if who else "")
    if model is None:
        return ListedChange(change, change.model, change.row, by, [], [])
    before, after = change.before or {}, change.after or {}
    fields = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    titles = {name: _title(model, name) for name in fields}
    is_open = isinstance(change, ConfigurationChange)
    return ListedChange(
        change,
        what=capfirst(str(model._meta.verbose_name)),
        row=names[model].get(change.row, change.row) if is_open else holder_mark(f"{change.model} {change.row}"),
        by=by,
        values=[
            Value(title, *(_words(model, name, state.get(name), names) for state in (before, after)))
            for name, title in titles.items()
            if is_open
        ],
        fields=list(titles.values()),
    )


def _title(model: type[Recorded], name: str) -> str:
    field = _field(model, name)
    words = str(_FIELDS.get(name) or (field.verbose_name if field else name))
    return capfirst(words)


def _words(model: type[Recorded], name: str, value: Any, names: dict[type, dict[str, str]]) -> str:
    """Return a field's value in words; empty if there is none."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    related = _related(model, name)
    if related is not None:
        return names[related].get(str(value), str(value))
    field = _field(model, name)
    choices = dict(field.flatchoices) if field else {}
    if isinstance(value, str) and value in choices:
        return str(choices[value])
    if value in model.own_words:
        return gettext(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Truncator(text).chars(_LONGEST)
