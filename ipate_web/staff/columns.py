"""Forms for the columns of a table and the outcome to learn. Columns are edited one by one, or all in a file."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args, get_origin, get_type_hints

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from pydantic.fields import FieldInfo

from common.declarations import Number, Pairs
from common.reading import UnreadableError, table_read_named
from common.spreadsheets import CsvWriter, harmless
from ipate_web.staff.fields import LinesField
from learning.formats.columns import ALL, KINDS, LAST, RULES, CodeColumn, Dated, TargetColumn
from learning.formats.table import SEPARATORS
from learning.formats.values import DATE_ORDERS
from learning.outcomes import OUTCOME_LABELS, Classes, Labels, Numbers, Times

DATED = ("value", "time", "date")
"""Uses of columns that may contain dates, if the time between two dates is learned."""
AT_ONCE = 50
"""Number of columns on a page, because a request may have at most 1,000 fields."""
#: Text for an empty cell in a list of missing values.
_EMPTY = "(empty)"


class TargetForm(forms.Form):
    """Form for the outcome to learn. Each kind has its own fields."""

    learned = forms.ChoiceField(
        label=_("What to learn"), choices=[(kind, _(label)) for kind, label in OUTCOME_LABELS.items()]
    )
    classes = LinesField(
        label=_("Classes, one per line"), help_text=_("List them in the order of their numbers, starting with class 0.")
    )
    smallest = forms.FloatField(
        label=_("Smallest number"),
        required=False,
        help_text=_("Use subject knowledge, not these rows. Values outside the range are set to its nearer end."),
    )
    largest = forms.FloatField(label=_("Largest number"), required=False)
    unit = forms.CharField(label=_("Unit"), required=False, max_length=30, help_text=_("For example mmHg or days."))
    ends = LinesField(
        label=_("Interval ends, one per line"),
        help_text=_(
            "The model learns the probability of the event for each interval. The timeline ends where the last "
            "interval ends."
        ),
    )

    def clean(self) -> dict[str, Any]:
        data, kind = self.cleaned_data, self.cleaned_data.get("learned")
        if kind == Numbers.kind:
            for name in ("smallest", "largest"):
                if data.get(name) is None and name not in self.errors:
                    self.add_error(name, _("Enter a number."))
        if kind == Times.kind:
            try:
                data["ends"] = [number_read(line) for line in data.get("ends", [])]
            except ValueError as error:
                self.add_error("ends", ValidationError(_("“%(text)s” is not a number."), params={"text": str(error)}))
        return data

    def document(self, columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the part of a schema that declares the outcome; the form must be valid.

        Labels are named after their columns.
        """
        data, kind = self.cleaned_data, self.cleaned_data["learned"]
        if kind == Classes.kind:
            return {"classes": data["classes"]}
        target: dict[str, Any] = {"kind": kind}
        if kind == Numbers.kind:
            target |= {"minimum": whole(data["smallest"]), "maximum": whole(data["largest"]), "unit": data["unit"]}
        elif kind == Times.kind:
            target |= {"ends": data["ends"], "unit": data["unit"]}
        else:
            target |= {"names": [each["part"] for each in columns if each["role"] == "target"]}
        return {"classes": [], "target": target}

    @staticmethod
    def initial_of(schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the form's values for a schema in JSON."""
        target = schema.get("target", {"kind": Classes.kind})
        return {
            "learned": target["kind"],
            "classes": "\n".join(schema.get("classes", [])),
            "smallest": target.get("minimum"),
            "largest": target.get("maximum"),
            "unit": target.get("unit", ""),
            "ends": "\n".join(f"{end:g}" for end in target.get("ends", [])),
        }


def number_read(text: str) -> float | int:
    """Return a number as people write it, with a point or a comma. Raises ValueError with the text."""
    try:
        number = float(text.strip().replace(",", "."))
    except ValueError as error:
        raise ValueError(text.strip()) from error
    if not math.isfinite(number):
        raise ValueError(text.strip())
    return whole(number)


def whole(number: float) -> float | int:
    """Return a whole number as an integer."""
    return int(number) if float(number).is_integer() else number


def _cell(text: str) -> str:
    """Return a cell as it appears in a file."""
    return "" if text == _EMPTY else text


def _pairs(lines: Sequence[str], *, of_numbers: bool) -> dict[str, Any]:
    """Return pairs of a spelling and its meaning.

    Raises:
        ValueError: a meaning is not a number; the message is the line that contains it.
    """
    if not of_numbers:
        return {_cell(a.strip()): b.strip() for a, _sign, b in (line.partition("=") for line in lines)}
    meant = {}
    for line in lines:
        written, sign, number = line.rpartition("=")
        try:
            meant[_cell(written.strip())] = number_read(number if sign else "")
        except ValueError as error:
            raise ValueError(line) from error
    return meant


@dataclass(frozen=True)
class _Declared:
    """Field of the form that a kind of column declares.

    Attributes:
        key: Its name in JSON.
        about: Its type and description in the kind.
    """

    key: str
    about: FieldInfo

    @property
    def pairs(self) -> Pairs | None:
        return next((each for each in self.about.metadata if isinstance(each, Pairs)), None)

    def field(self) -> forms.Field:
        """Return the form field."""
        label, of = _(self.about.title or ""), self.about.annotation
        if get_origin(of) is tuple:
            return LinesField(label=label, rows=1)
        if get_origin(of) is Literal:
            choices = [(value, _WORDS.get(value, value)) for value in get_args(of)]
            return forms.ChoiceField(label=label, required=False, choices=choices)
        if of is int:
            return forms.IntegerField(label=label, required=False, min_value=1)
        return (forms.BooleanField if of is bool else forms.FloatField)(label=label, required=False)

    def to_json(self, value: Any) -> Any:
        """Return the form's values as JSON; None for an empty number or choice."""
        if self.pairs:
            return _pairs(value, of_numbers=self.pairs.values is Number)
        if isinstance(value, list):
            return [_cell(text) for text in value]
        return whole(value) if isinstance(value, float) else None if value == "" else value

    def initial(self, value: Any) -> Any:
        """Return the form's value for a value in JSON."""
        if self.pairs:
            pairs = (value or {}).items()
            return "\n".join(
                f"{written or _EMPTY} = {meant if isinstance(meant, str) else f'{meant:g}'}" for written, meant in pairs
            )
        return "\n".join(text or _EMPTY for text in value) if isinstance(value, list) else value


#: Words for choices of a column that are symbols or codes.
_WORDS = {
    **{written: _(words) for written, words in DATE_ORDERS.items()},
    "years": _("years"),
    "months": _("months"),
    "days": _("days"),
}
_KINDS = {use: kind for kind in KINDS for use in kind.uses}


def _declared(kind: type) -> dict[str, _Declared]:
    """Return the fields of a kind of column that appear in the form under their own names."""
    hints = get_type_hints(kind, include_extras=True)
    abouts = {each.name: FieldInfo.from_annotation(hints[each.name]) for each in fields(kind)}
    return {name: _Declared(about.alias or name, about) for name, about in abouts.items() if about.title}


_DECLARED = {kind: _declared(kind) for kind in KINDS}


def _uses(name: str) -> str:
    """Return the uses of a column for which the form shows a field."""
    if name in ("counted", "reference", "unit", "written"):
        return " ".join(DATED)
    if name == "called":
        return "flag"
    return " ".join(use for use, kind in _KINDS.items() if (kind.rules if name == "rule" else name in _DECLARED[kind]))


class ColumnForm(forms.Form):
    """Form for one column of a table, with the fields that its kinds declare."""

    name = forms.CharField(label=_("Name"), max_length=200)
    use = forms.ChoiceField(label=_("Used as"), choices=[(use, _(kind.uses[use])) for use, kind in _KINDS.items()])
    counted = forms.ChoiceField(
        label=_("Count the time"), required=False, choices=(("until", _("until")), ("since", _("since")))
    )
    reference = forms.CharField(label=_("A date, or a column of dates"), required=False, max_length=200)
    called = forms.CharField(
        label=_("Name of the label, if it differs from the column name"), required=False, max_length=200
    )
    rule = forms.ChoiceField(
        label=_("If a person has several rows"),
        required=False,
        choices=[(rule, _(words)) for rule, words in RULES.items()],
    )
    facts: Mapping[str, Any] = {}
    shown: Mapping[str, str] = {}  # uses for which each field is shown

    @property
    def groups(self) -> list[tuple[str, list[forms.BoundField]]]:
        """Return fields that only some kinds have, grouped by the uses for which they are shown."""
        named = [name for name in self.fields if name not in ("name", "use", "rule", "missing")]
        grouped = dict.fromkeys(self.shown[name] for name in named)
        return [(uses, [self[name] for name in named if self.shown[name] == uses]) for uses in grouped]

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if data.get("use") in TargetColumn.uses:
            try:
                _pairs(data.get("spellings", []), of_numbers=True)
            except ValueError as error:
                problem = ValidationError(_("“%(line)s” needs a number, as in “ND = 0”."), params={"line": str(error)})
                self.add_error("spellings", problem)
        return data

    def document(self) -> dict[str, Any]:
        """Return the column as JSON; the form must be valid."""
        data, kind = self.cleaned_data, _KINDS[self.cleaned_data["use"]]
        document = {"name": data["name"], "role": kind.role}
        if kind.role == "feature":
            document["type"] = data["use"]
        for name, declared in _DECLARED[kind].items():
            value = declared.to_json(data[name])
            if value is not None:
                document[declared.key] = value
        if kind is TargetColumn:
            document["part"] = (data["called"] or data["name"]) if data["use"] == "flag" else data["use"]
        if data["use"] in DATED and data["reference"]:
            document[data["counted"] or "until"] = data["reference"]
        elif issubclass(kind, Dated):
            document = {name: value for name, value in document.items() if name not in ("unit", "written")}
        elif kind is CodeColumn and data["rule"] == ALL:
            document["several"] = True
        return document

    @staticmethod
    def initial_of(column: Mapping[str, Any], target: str) -> dict[str, Any]:
        """Return the form's values for a column in JSON, in a schema with this kind of ``target`` (or none)."""
        entries = dict.fromkeys(ColumnForm.base_fields) | {
            "name": column["name"],
            "use": column.get("type") or column["role"],
            "counted": "since" if column.get("since") else "until",
            "reference": column.get("since") or column.get("until"),
        }
        if column["role"] == "target":
            is_label = target == Labels.kind
            entries["use"] = "flag" if is_label else column["part"]
            entries["called"] = column["part"] if is_label and column["part"] != column["name"] else ""
        declared = _DECLARED[_KINDS.get(str(entries["use"]), TargetColumn)]
        return entries | {name: each.initial(column.get(each.key)) for name, each in declared.items()}


ColumnForm.base_fields |= {name: each.field() for declared in _DECLARED.values() for name, each in declared.items()}
ColumnForm.shown = {name: _uses(name) for name in ColumnForm.base_fields}
ColumnFormSet = forms.formset_factory(ColumnForm, extra=0, max_num=AT_ONCE, absolute_max=AT_ONCE)


class Columns:
    """A schema's columns in JSON, each with its rule, for forms and files.

    Attributes:
        schema: The schema.
        initial: The form values of each column.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        kind = schema.get("target", {}).get("kind", "")
        rules = (schema.get("one_record") or {}).get("rules", {})
        self.initial = [
            ColumnForm.initial_of(column, kind) | {"rule": rules.get(column["name"], LAST)}
            for column in schema.get("columns", [])
        ]

    @property
    def uses(self) -> list[tuple[str, Any]]:
        """Return each column's name and use, in words."""
        words = dict(ColumnForm.base_fields["use"].choices)  # type: ignore[attr-defined]
        return [(each["name"], words.get(each["use"], each["use"])) for each in self.initial]

    def changed(self, forms_by_place: Mapping[int, "ColumnForm"]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return all columns in JSON, updated from the given valid forms, and all rules that are not the default."""
        columns = list(self.schema["columns"])
        rules = {each["name"]: each["rule"] for each in self.initial}
        for place, form in forms_by_place.items():
            rules.pop(columns[place]["name"], None)
            columns[place] = form.document()
            rules[form.cleaned_data["name"]] = form.cleaned_data["rule"]
        return columns, {name: rule for name, rule in rules.items() if rule not in ("", LAST)}

    def schema_with(self, forms_by_place: Mapping[int, "ColumnForm"]) -> dict[str, Any]:
        """Return the schema with columns updated from the given valid forms. It may be inconsistent."""
        columns, rules = self.changed(forms_by_place)
        one = self.schema.get("one_record") or ({} if rules else None)
        return {**self.schema, "columns": columns, **({} if one is None else {"one_record": {**one, "rules": rules}})}

    def written(self) -> str:
        """Return all columns as CSV with a byte order mark, for spreadsheets."""
        file = io.StringIO()
        writer = CsvWriter(file)
        writer.writerow(_FIELDS)
        for each in self.initial:
            values = (
                "yes" if value is True else "" if value is None or value is False else value for value in each.values()
            )
            named = dict(zip(each, values, strict=True))
            writer.writerow([named.get(field, "") for field in _FIELDS])
        return "\ufeff" + file.getvalue()


_FIELDS = tuple(ColumnForm.base_fields)


class ColumnsFileForm(forms.Form):
    """Form for a file of all columns that was saved from this page and edited."""

    file = forms.FileField(
        label=_("Edited file"),
        help_text=_("A CSV file with the same columns in any order. Columns that are missing stay unchanged."),
    )

    def __init__(self, *args: Any, columns: Columns, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._columns = columns

    def clean_file(self) -> dict[int, ColumnForm]:
        """Return forms by the position of their column. Raises ValidationError, which lists all errors by row."""
        try:
            text = self.cleaned_data["file"].read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValidationError(_("The file is not UTF-8 text. Save it as “CSV UTF-8”.")) from error
        first = text.partition("\n")[0]
        try:
            rows = [row for _line, row in table_read_named(text, delimiter=max(SEPARATORS, key=first.count))]
        except UnreadableError as error:
            raise ValidationError(_("This is not a CSV file (%(error)s).") % {"error": error}) from error
        if not rows or not {"name", "use"} <= rows[0].keys():
            raise ValidationError(
                _("The first row must contain the names of the fields, as in the file that you downloaded.")
            )
        places = {each["name"]: place for place, each in enumerate(self._columns.initial)}
        by_place: dict[int, ColumnForm] = {}
        problems: list[str] = []
        for number, row in enumerate(rows[1:], 2):
            values = {name: _without_mark(value) for name, value in row.items() if name in _FIELDS and value}
            place = places.get(values.get("name", ""))
            if place is None or place in by_place:
                problems.append(
                    _("Row %(row)d: “%(name)s” is not a column of the file, or appears twice.")
                    % {"row": number, "name": values.get("name", "")}
                )
                continue
            form = ColumnForm({**values, "use": values.get("use", "ignore")})
            if form.is_valid():
                by_place[place] = form
            else:
                message = " ".join(
                    f"{form.fields[field].label}: {' '.join(map(str, texts))}"
                    if field in form.fields
                    else " ".join(map(str, texts))
                    for field, texts in form.errors.items()
                )
                problems.append(
                    _("Row %(row)d (%(name)s): %(problem)s")
                    % {"row": number, "name": values["name"], "problem": message}
                )
        if problems:
            raise ValidationError(problems)
        return by_place

    def changes(self) -> dict[int, ColumnForm]:
        """Return the forms of columns by position; the form must be valid."""
        return self.cleaned_data["file"]


def _without_mark(cell: str) -> str:
    """Return a cell without the mark that keeps spreadsheets from reading it as a formula."""
    return cell[1:] if cell.startswith("'") and harmless(cell[1:]) == cell else cell


class ManyColumnsForm(forms.Form):
    """Form that changes all columns with the same use, or with names of the same pattern."""

    of = forms.ChoiceField(label=_("Current kind"))
    called = forms.CharField(
        label=_("Name pattern"),
        required=False,
        max_length=200,
        help_text=_(
            "* matches any characters, so lab_* matches all names that begin with lab_. Leave empty for all names."
        ),
    )
    use = forms.ChoiceField(label=_("New kind"), required=False)
    minimum = forms.FloatField(label=_("Smallest value"), required=False)
    maximum = forms.FloatField(label=_("Largest value"), required=False)
    missing = LinesField(label=_("Unknown values, one per line"), help_text=_("(empty) means an empty cell."), rows=2)
    rule = forms.ChoiceField(label=_("If a person has several rows"), required=False)

    def __init__(self, *args: Any, columns: Columns, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._columns = columns
        uses, unchanged = _choices("use"), ("", _("unchanged"))
        present = {each["use"] for each in columns.initial}
        everything = ("", _("any"))
        _choose(self.fields["of"], [everything, *((use, words) for use, words in uses if use in present)])
        self.fields["of"].required = False
        _choose(self.fields["use"], [unchanged, *uses])
        _choose(self.fields["rule"], [unchanged, *_choices("rule")])

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if self.errors:
            return data
        new = {name: data[name] for name in ("use", "minimum", "maximum", "rule") if data[name] not in (None, "")}
        if data["missing"]:
            new["missing"] = "\n".join(data["missing"])
        if not new:
            self.add_error("use", _("Enter at least one change."))
            return data
        data["changes"] = {}
        for place, each in enumerate(self._columns.initial):
            alike = data["of"] in ("", each["use"]) and fnmatchcase(each["name"], data["called"] or "*")
            form = ColumnForm(
                {name: value for name, value in {**each, **new}.items() if value is not None and value is not False}
            )
            if alike and form.is_valid():
                data["changes"][place] = form
        if not data["changes"]:
            self.add_error("of", _("No columns match."))
        return data

    def changes(self) -> dict[int, ColumnForm]:
        """Return the forms of columns by position; the form must be valid."""
        return self.cleaned_data["changes"]


def _choices(field: str) -> list[tuple[str, Any]]:
    return list(ColumnForm.base_fields[field].choices)  # type: ignore[attr-defined]


def _choose(field: forms.Field, choices: Sequence[tuple[str, Any]]) -> None:
    field.choices = choices  # type: ignore[attr-defined]
