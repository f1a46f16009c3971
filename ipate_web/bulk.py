"""Many rows at once: checked column by column, and sent in the database's own way."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper

from ipate_web.row_hashes import zeros_without_sign

#: From so many rows on, they are not sent as one statement.
MANY = 200


def rows_clean(rows: Sequence[models.Model], *, exclude: Collection[str]) -> None:
    """What ``clean_fields`` would do to each row, looking at each value of a column once. Raises ValidationError.

    Zeros in JSON lose their sign, which not every database would keep.
    """
    errors = {}
    for field in rows[0]._meta.fields:
        if field.name in exclude:
            continue
        cleaned: dict[Any, Any] = {}
        for row in rows:
            value = getattr(row, field.attname)
            # JSON has no hash: it is looked at once where rows share the same object.
            key = (type(value), id(value) if isinstance(value, (list, dict)) else value)
            if key not in cleaned:
                try:
                    empty = field.blank and value in field.empty_values
                    cleaned[key] = value if empty else field.clean(value, row)
                    if isinstance(field, models.JSONField):
                        cleaned[key] = zeros_without_sign(cleaned[key])
                except ValidationError as error:
                    errors[field.name] = error.error_list
                    break
            setattr(row, field.attname, cleaned[key])
    if errors:
        raise ValidationError(errors)


def rows_insert(rows: Sequence[models.Model]) -> None:
    """Insert ``rows``; where they are many, none of them learns its primary key.

    PostgreSQL copies many rows from a stream, SQLite repeats one prepared statement.
    """
    model = type(rows[0])
    if len(rows) < MANY:
        model._default_manager.bulk_create(rows)
        return
    connection = connections[router.db_for_write(model)]
    fields = [field for field in model._meta.concrete_fields if not field.primary_key]
    prepared = zip(*(_column_prepared(field, rows, connection) for field in fields), strict=True)
    columns = ", ".join(str(field.column) for field in fields)
    table = f"{model._meta.db_table} ({columns})"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with connection.wrap_database_errors, cursor.copy(f"COPY {table} FROM STDIN") as stream:
                for row in prepared:
                    stream.write_row(row)
        else:
            places = ", ".join(["%s"] * len(fields))
            cursor.executemany(f"INSERT INTO {table} VALUES ({places})", list(prepared))  # noqa: S608, the model's names


def _column_prepared(field: models.Field, rows: Sequence[models.Model], connection: BaseDatabaseWrapper) -> list[Any]:
    """A column as the database takes it, each value made ready once."""
    values = [getattr(row, field.attname) for row in rows]
    if isinstance(field, models.JSONField):
        return [field.get_db_prep_save(value, connection) for value in values]
    prepare = cache(lambda value: field.get_db_prep_save(value, connection))
    return [prepare(value) for value in values]
