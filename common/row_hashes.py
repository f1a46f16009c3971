"""Canonical hashes of rows in chained tables, which are the same on every database."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from django.db import models

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
#: Magnitude from which PostgreSQL returns every float in JSON as an integer, because it is a whole number.
_WHOLE = 10**16


def row_hash(row: models.Model) -> str:
    """Return the SHA-256 (hexadecimal) of a row's canonical JSON, over every column except the key and the hash.

    The representation of values does not depend on the database.
    """
    columns = hashed_columns(type(row))
    return _content_hash(columns, [getattr(row, column) for column in columns], getattr(row, "added_columns", {}))


@cache
def hashed_columns(model: type[models.Model]) -> tuple[str, ...]:
    """Return the columns covered by the hash of a row."""
    return tuple(
        field.attname for field in model._meta.concrete_fields if not field.primary_key and field.attname != "hash"
    )


def possible_hashes(columns: Sequence[str], values: Sequence[Any], added: Mapping[str, Any]) -> Iterator[str]:
    """Yield the hashes that may have been recorded for a row with these values.

    Args:
        columns: the model's :func:`hashed_columns`.
        values: the row's value of each column.
        added: the table's ``added_columns``; see :class:`common.append_only.Chained`.

    Yields:
        Hashes; none for values without a JSON representation (NaN, infinity), which were never recorded.
    """
    with suppress(ValueError):
        yield _content_hash(columns, values, added)
        yield _content_hash(columns, [_floats_again(value) for value in values], added)


def zeros_without_sign(value: Any) -> Any:
    """Return a JSON value without negative zeros, because PostgreSQL does not keep their sign."""
    if isinstance(value, list):
        return [zeros_without_sign(each) for each in value]
    if isinstance(value, dict):
        return {key: zeros_without_sign(each) for key, each in value.items()}
    return value + 0.0 if isinstance(value, float) else value


def _content_hash(columns: Iterable[str], values: Iterable[Any], added: Mapping[str, Any]) -> str:
    # A column that was added after the first rows is included only if its value differs from the value of those rows.
    content = {
        column: canonical(value)
        for column, value in zip(columns, values, strict=True)
        if not (column in added and value == added[column])
    }
    return hashlib.sha256(_encode(content).encode()).hexdigest()


def json_digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value in hexadecimal, which is the same before and after storage in any database."""
    return hashlib.sha256(_encode(_numbers_alike(value)).encode()).hexdigest()


def _numbers_alike(value: Any) -> Any:
    """Return a JSON value with numbers as floats and no negative zeros, because databases may change number types."""
    if isinstance(value, (list, tuple)):
        return [_numbers_alike(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _numbers_alike(each) for key, each in value.items()}
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value + 0.0 if is_number else value


def canonical(value: Any) -> Any:
    """Return a column's value in JSON form, which is the same on every database."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if value is None or isinstance(value, (bool, int, float, str, list, dict)):
        return value
    return str(value)


def _floats_again(value: Any) -> Any:
    """Return a JSON value as originally written, undoing PostgreSQL's conversion of floats to integers."""
    if isinstance(value, list):
        return [_floats_again(each) for each in value]
    if isinstance(value, dict):
        return {key: _floats_again(each) for key, each in value.items()}
    if isinstance(value, int) and abs(value) >= _WHOLE:
        with suppress(OverflowError):
            if int(Decimal(repr(float(value)))) == value:
                return float(value)
    return value
