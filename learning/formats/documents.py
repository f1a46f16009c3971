"""Schemas as JSON documents, for files and the database, and the JSON Schema of such a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from common.declarations import to_document
from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.columns import KINDS
from learning.formats.rows import DataError, Report
from learning.formats.schema import Schema, TabularSchema
from learning.outcomes import Outcome

_DOCUMENT: TypeAdapter[Schema] = TypeAdapter(Annotated[Schema, Field(discriminator="kind")])


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a document that declares the content of a dataset.

    >>> sorted(json_schema()["$defs"])[:2]
    ['CategoricalColumn', 'CodeColumn']
    """
    described = _DOCUMENT.json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Schema of a dataset", **described}


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """Return a schema as a JSON-serialisable dict; ``schema_from_json`` is the inverse.

    >>> from learning.formats.schema import ImageSchema
    >>> schema = ImageSchema(8, 8, 1, ("0", "1"))
    >>> schema_from_json(schema_to_json(schema)) == schema
    True
    """
    return to_document(schema)


def schema_from_json(document: Any) -> Schema:
    """Return the schema declared by a JSON document.

    Raises:
        DataError: Lists every error in the document.
    """
    try:
        return _DOCUMENT.validate_python(document)
    except ValidationError as error:
        report = Report()
        report.add(*(_fault(document, details) for details in error.errors(include_url=False)))
        report.raise_faults()
        raise


def outcome_of(document: Any) -> Outcome:
    """Return the target declared by a stored schema."""
    return schema_from_json(document).outcome


def encodes_alike(document: Any, other: Any) -> bool:
    """Return whether two stored schemas encode records in the same way, even if their files are formatted differently.

    >>> columns = [{"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100}]
    >>> table = {"kind": "table", "columns": columns, "classes": ["no", "yes"]}
    >>> encodes_alike(table, table | {"delimiter": ";", "columns": [*columns, {"name": "id", "role": "ignore"}]})
    True
    """
    first, second = schema_from_json(document), schema_from_json(other)
    if isinstance(first, TabularSchema) and isinstance(second, TabularSchema):
        return _alike(first) == _alike(second)
    return first == second


def _alike(schema: TabularSchema) -> tuple[object, ...]:
    """Return the parts of a schema that must be equal for encoded records to have the same meaning."""
    rules = None if schema.one_record is None else {(c.name, schema.one_record.rule(c.name)) for c in schema.features}
    return schema.features, schema.outcome, rules


_EXPECTED = {
    "string_type": _("This must be text."),
    "tuple_type": _("This must be a list."),
    "dict_type": _("This must be an object whose values are text."),
    "bool_type": _("This must be true or false."),
    "int_type": _("This must be a whole number."),
    "float_type": _("This must be a number."),
    "literal_error": _("Use a value that the JSON Schema allows."),
}


_TAGS = {kind.role for kind in KINDS} | {use for kind in KINDS if kind.role == "feature" for use in kind.uses}
_KINDS = ("numbers", "times", "labels")


def _fault(document: Any, details: ErrorDetails) -> DataError:
    """Convert an error found by pydantic to a DataError in plain words that names the column."""
    place = [part for part in details["loc"] if part not in ("table", "image")]
    if place[:1] == ["target"]:
        place = ["target", *(part for part in place[1:] if part not in _KINDS)]
    column = _column_at(document, place)
    inner = details.get("ctx", {}).get("error")
    if isinstance(inner, DataError):
        return DataError(inner.problem, inner.remedy, column=inner.column or column)
    if isinstance(inner, ValueError):
        return DataError(_("The schema does not declare correctly what to learn."), str(inner))
    path = ".".join(_path(place[2:] if column is not None else place)) or "–"
    match details["type"]:
        case "missing":
            return DataError(Sentence(_("“%(path)s” is missing."), path=path), _("Add this field."), column=column)
        case "unexpected_keyword_argument":
            remedy = _("Remove this field, or correct its name. The JSON Schema lists the allowed names.")
            return DataError(Sentence(_("“%(path)s” is unknown."), path=path), remedy, column=column)
        case "union_tag_not_found" | "union_tag_invalid" if not place:
            problem = _("The schema has neither “kind”: “table” nor “kind”: “image”.")
            return DataError(problem, _("Set the kind to “table” or “image”."))
        case "union_tag_not_found" | "union_tag_invalid" if place == ["target"]:
            problem = _("The kind of the target is unknown.")
            return DataError(problem, _("Set the kind to numbers, times or labels, or declare classes."))
        case "union_tag_not_found" | "union_tag_invalid":
            entry = details["input"] if isinstance(details["input"], dict) else {}
            problem = Sentence(
                _("Role %(role)s with type %(type)s is unknown."),
                role=repr(entry.get("role")),
                type=repr(entry.get("type")),
            )
            remedy = _(
                "Use the role holder, label, target, text or ignore, or the role feature with the type numeric, "
                "date, categorical, icd9, icd10, atc or loinc."
            )
            return DataError(problem, remedy, column=column)
        case "model_attributes_type" | "dataclass_type":
            problem = Sentence(_("“%(path)s” is not an object."), path=path)
            return DataError(
                problem, _("Write an object with a “kind”, or a column with “name” and “role”."), column=column
            )
    problem = Sentence(_("“%(path)s” is %(value)s."), path=path, value=repr(details["input"])[:60])
    return DataError(problem, _EXPECTED.get(details["type"], details["msg"]), column=column)


def _path(place: list[int | str]) -> Iterator[str]:
    """Yield the path to an error; list items are counted from 1, and names that only select a model are left out."""
    for part in place:
        if isinstance(part, int):
            yield str(part + 1)
        elif part not in _TAGS:
            yield part


def _column_at(document: Any, place: list[int | str]) -> str | None:
    if len(place) > 1 and place[0] == "columns" and isinstance(place[1], int):
        column = document["columns"][place[1]]
        name = column.get("name") if isinstance(column, dict) else None
        return name if isinstance(name, str) else None
    return None
