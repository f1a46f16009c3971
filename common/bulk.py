"""Bulk inserts that validate rows column by column and use the database's fastest way to write."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, models, router

from common.row_hashes import zeros_without_sign


def rows_clean(rows: Sequence[models.Model], *, exclude: Collection[str]) -> None:
    """Validate and normalise rows like ``clean_fields``, but only once for each distinct value of a column.

    Negative zeros in JSON become zeros, because not every database keeps the sign.

    Args:
        rows: rows of one model, at least one; changed in place.
        exclude: names of fields to skip.

    Raises:
        ValidationError: the errors by field.
    """
    errors = {}
    for field in rows[0]._meta.fields:
        if field.name in exclude:
            continue
        try:
            cleaned = _each_once(partial(_cleaned, field, rows[0]), [getattr(row, field.attname) for row in rows])
        except ValidationError as error:
            errors[field.name] = error.error_list
        else:
            for row, value in zip(rows, cleaned, strict=True):
                setattr(row, field.attname, value)
    if errors:
        raise ValidationError(errors)


def rows_insert(rows: Sequence[models.Model]) -> None:
    """Insert rows of one table.

    For several rows, PostgreSQL copies from a stream and SQLite repeats one prepared statement.

    Args:
        rows: unsaved rows of one model, at least one. A single row gets its primary key; several rows do not.
    """
    model = type(rows[0])
    if len(rows) == 1:
        rows[0].save(force_insert=True)
        return
    connection = connections[router.db_for_write(model)]
    fields = [field for field in model._meta.concrete_fields if not field.primary_key]
    prepared = zip(
        *(
            _each_once(
                partial(field.get_db_prep_save, connection=connection), [getattr(row, field.attname) for row in rows]
            )
            for field in fields
        ),
        strict=True,
    )
    quoted = connection.ops.quote_name
    table = f"{quoted(model._meta.db_table)} ({', '.join(quoted(str(field.column)) for field in fields)})"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with connection.wrap_database_errors, cursor.copy(f"COPY {table} FROM STDIN") as stream:
                for row in prepared:
                    stream.write_row(row)
        else:
            places = ", ".join(["%s"] * len(fields))
            cursor.executemany(f"INSERT INTO {table} VALUES ({places})", list(prepared))  # noqa: S608, the model's names


def missing_insert(
    model: type[models.Model], columns: Mapping[str, Sequence[Any]], returned: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Insert the rows that do not violate a unique constraint, and return ``returned`` fields of the inserted rows.

    Args:
        columns: the values of each field, one for each row. Other columns must allow NULL, and SQLite allows 32,766
            values at once.
        returned: names of the fields to return.
    """
    connection, meta = connections[router.db_for_write(model)], model._meta
    fields = [meta.get_field(name) for name in columns]
    prepared = [
        _each_once(partial(field.get_db_prep_save, connection=connection), columns[field.name])  # type: ignore[union-attr]
        for field in fields
    ]
    rows = list(zip(*prepared, strict=True))
    if not rows:
        return []
    quoted = connection.ops.quote_name
    named, wanted = (
        ", ".join(quoted(str(field.column)) for field in some)  # type: ignore[union-attr]
        for some in (fields, [meta.get_field(name) for name in returned])
    )
    table, row = f"{quoted(meta.db_table)} ({named})", f"({', '.join(['%s'] * len(fields))})"
    places = ", ".join([row] * len(rows))
    statement = f"INSERT INTO {table} VALUES {places} ON CONFLICT DO NOTHING RETURNING {wanted}"  # noqa: S608, as above
    with connection.cursor() as cursor:
        cursor.execute(statement, list(chain.from_iterable(rows)))
        return cursor.fetchall()


def _cleaned(field: models.Field, row: models.Model, value: Any) -> Any:
    if field.blank and value in field.empty_values:
        return value
    value = field.clean(value, row)
    return zeros_without_sign(value) if isinstance(field, models.JSONField) else value


def _each_once(work: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """Return the results of ``work`` for all values, computing each distinct value only once."""
    done: dict[Any, Any] = {}
    results = []
    for value in values:
        # Results for unhashable values are reused only if rows share the same object.
        key = (type(value), id(value) if isinstance(value, (list, dict)) else value)
        if key not in done:
            done[key] = work(value)
        results.append(done[key])
    return results
