"""Schemas as plain JSON documents, for files and for the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from training.formats.columns import (
    CategoricalColumn,
    HolderColumn,
    Icd9Column,
    IgnoredColumn,
    LabelColumn,
    NumericColumn,
)
from training.formats.rows import DataError
from training.formats.schema import Column, ImageSchema, Schema, TabularSchema


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """Schema as a JSON-serialisable dict that ``schema_from_json`` reads back.

    >>> schema = ImageSchema(8, 8, 1, ("0", "1"))
    >>> schema_from_json(schema_to_json(schema)) == schema
    True
    """
    if isinstance(schema, ImageSchema):
        return {"kind": "image", **asdict(schema), "classes": list(schema.classes)}
    return {
        "kind": "table",
        "columns": [_column_to_json(column) for column in schema.columns],
        "classes": list(schema.classes),
        "delimiter": schema.delimiter,
        "header": schema.header,
        "comment": schema.comment,
        "decimal": schema.decimal,
    }


def schema_from_json(document: Any) -> Schema:
    """Schema declared by a JSON document.

    Raises:
        DataError: names the error in the document.
    """
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in ("image", "table"):
        raise DataError(
            "The schema says neither “kind”: “table” nor “image”.", "Make it an object with one of the two."
        )
    fields = {key: value for key, value in document.items() if key != "kind"}
    return _image_from_json(fields) if kind == "image" else _table_from_json(fields)


def records_alike(document: Any, other: Any) -> bool:
    """Whether records under two stored schemas are encoded alike, however their files are written.

    >>> columns = [{"name": "age", "role": "feature", "type": "numeric", "minimum": 0, "maximum": 100}]
    >>> table = {"kind": "table", "columns": columns, "classes": ["no", "yes"]}
    >>> records_alike(table, table | {"delimiter": ";", "columns": [*columns, {"name": "id", "role": "ignore"}]})
    True
    """
    first, second = schema_from_json(document), schema_from_json(other)
    if isinstance(first, TabularSchema) and isinstance(second, TabularSchema):
        return (first.features, first.classes) == (second.features, second.classes)
    return first == second


def _image_from_json(fields: dict[str, Any]) -> ImageSchema:
    _check_keys(fields, {"height", "width", "channels", "classes"}, set(), "the image schema")
    return ImageSchema(fields["height"], fields["width"], fields["channels"], _texts(fields, "classes"))


def _table_from_json(fields: dict[str, Any]) -> TabularSchema:
    options = {"delimiter": str, "header": bool, "comment": str, "decimal": str}
    _check_keys(fields, {"columns", "classes"}, set(options), "the table schema")
    for name, kind in options.items():
        if not isinstance(fields.get(name, kind()), kind):
            raise DataError(f"“{name}” is {fields[name]!r}.", f"Make it a {kind.__name__}.")
    if not isinstance(fields["columns"], list):
        raise DataError("“columns” is no list.", "Make it a list with one object per column.")
    columns = tuple(_column_from_json(column) for column in fields["columns"])
    given = {name: fields[name] for name in options if name in fields}
    return TabularSchema(columns, _texts(fields, "classes"), **given)


_PLAIN_ROLES: dict[str, type[HolderColumn | IgnoredColumn]] = {"holder": HolderColumn, "ignore": IgnoredColumn}


def _column_to_json(column: Column) -> dict[str, Any]:
    match column:
        case HolderColumn():
            return {"name": column.name, "role": "holder"}
        case IgnoredColumn():
            return {"name": column.name, "role": "ignore"}
        case LabelColumn():
            return {"name": column.name, "role": "label", "labels": dict(column.spellings)}
        case NumericColumn():
            numeric = {"type": "numeric", "minimum": column.minimum, "maximum": column.maximum}
            return {"name": column.name, "role": "feature", **numeric, "missing": list(column.missing)}
        case CategoricalColumn():
            categorical = {"type": "categorical", "values": list(column.values), "other": column.other}
            return {"name": column.name, "role": "feature", **categorical, "missing": list(column.missing)}
        case Icd9Column():
            return {"name": column.name, "role": "feature", "type": "icd9", "missing": list(column.missing)}


def _column_from_json(document: Any) -> Column:
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise DataError("A column has no name.", "Give every column an object with “name” and “role”.")
    name = document["name"]
    fields = {key: value for key, value in document.items() if key not in ("name", "role", "type")}
    match document.get("role"), document.get("type"):
        case ("holder" | "ignore") as role, None:
            _check_keys(fields, set(), set(), f"the column “{name}”")
            return _PLAIN_ROLES[role](name)
        case "label", None:
            _check_keys(fields, set(), {"labels"}, f"the column “{name}”")
            labels = fields.get("labels", {})
            if not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
                raise DataError("“labels” maps no spellings to classes.", "Make it an object of texts.", column=name)
            return LabelColumn(name, tuple(labels.items()))
        case "feature", "numeric":
            _check_keys(fields, {"minimum", "maximum"}, {"missing"}, f"the column “{name}”")
            for key in ("minimum", "maximum"):
                if not isinstance(fields[key], int | float) or isinstance(fields[key], bool):
                    raise DataError(f"“{key}” is {fields[key]!r}.", "Make it a number.", column=name)
            return NumericColumn(name, fields["minimum"], fields["maximum"], _texts(fields, "missing", name))
        case "feature", "categorical":
            _check_keys(fields, {"values"}, {"missing", "other"}, f"the column “{name}”")
            if not isinstance(fields.get("other", False), bool):
                raise DataError("“other” is neither true nor false.", "Make it one of them.", column=name)
            values, missing = _texts(fields, "values", name), _texts(fields, "missing", name)
            return CategoricalColumn(name, values, missing, fields.get("other", False))
        case "feature", "icd9":
            _check_keys(fields, set(), {"missing"}, f"the column “{name}”")
            return Icd9Column(name, _texts(fields, "missing", name))
    raise DataError(
        f"Role {document.get('role')!r} with type {document.get('type')!r} is unknown.",
        "Use the role holder, label or ignore; or feature with the type numeric, categorical or icd9.",
        column=name,
    )


def _texts(fields: Mapping[str, Any], key: str, column: str | None = None) -> tuple[str, ...]:
    texts = fields.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"“{key}” is no list of texts.", "Write it as [“…”, “…”].", column=column)
    return tuple(texts)


def _check_keys(fields: Mapping[str, Any], required: set[str], optional: set[str], where: str) -> None:
    if missing := required - fields.keys():
        raise DataError(f"In {where}, {', '.join(sorted(missing))} is missing.", "Add it.")
    if unknown := fields.keys() - required - optional:
        allowed = ", ".join(sorted(required | optional)) or "nothing more"
        raise DataError(f"In {where}, {', '.join(sorted(unknown))} is unknown.", f"Allowed: {allowed}.")
