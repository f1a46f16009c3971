"""Copies of the database: one moment of it, while others write."""

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.backends.postgresql.client import DatabaseClient

from ipate_web.backups import BackupError

#: Reads the moment that was copied: SQL without parameters → rows.
Query = Callable[[str], list[tuple]]


def dump_name() -> str:
    """Name that the copy of this installation's kind of database has in a backup."""
    return "database.sqlite3" if connection.vendor == "sqlite" else "database.pgdump"


@contextmanager
def snapshot(path: Path) -> Iterator[Query]:
    """Copy one moment of the database to ``path``, and yield what reads the same moment."""
    path.unlink(missing_ok=True)
    with (_sqlite_snapshot if connection.vendor == "sqlite" else _postgresql_snapshot)(path) as query:
        yield query


def database_replace(path: Path) -> None:
    """Put the copy at ``path`` in place of the database's content, wholly or not at all."""
    if connection.vendor == "sqlite":
        _sqlite_replace(path)
    else:
        _postgresql_replace(path)
    connection.close()


# --- SQLite ---------------------------------------------------------------------------------------------------------


@contextmanager
def _sqlite_snapshot(path: Path) -> Iterator[Query]:
    with (
        closing(sqlite3.connect(f"file:{connection.settings_dict['NAME']}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(path)) as copy,
    ):
        source.backup(copy)  # in one step: one moment
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as copy:
        yield lambda sql: copy.execute(sql).fetchall()


def _sqlite_replace(path: Path) -> None:
    connection.close()
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=10)) as target,
    ):
        try:
            source.backup(target)
        except sqlite3.OperationalError as error:
            raise BackupError(f"The database is in use ({error}). Stop site, workers and beat first.") from error


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def _run(program: str, *options: str, database_option: bool = False) -> None:
    """Run one of PostgreSQL's programs on the database; its password goes by the environment, which no list shows."""
    (_, *arguments, name), environment = DatabaseClient.settings_to_cmd_args_env(connection.settings_dict, [])
    command = [program, *options, "--no-password", *arguments, *(["--dbname"] if database_option else []), name]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise BackupError(
            f"{program} is not installed: install PostgreSQL's client programs, at least as new as its server."
        ) from None
    if done.returncode:
        raise BackupError(f"{program} failed: {done.stderr.strip()[-1000:]}")


@contextmanager
def _postgresql_snapshot(path: Path) -> Iterator[Query]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT pg_export_snapshot()")
        moment = cursor.fetchone()[0]
        _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--snapshot={moment}", f"--file={path}")

        def query(sql: str) -> list[tuple]:
            cursor.execute(sql)
            return cursor.fetchall()

        yield query


def _postgresql_replace(path: Path) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        tables: list[Any] = connection.introspection.table_names(cursor)
        if tables:
            quoted = ", ".join(map(connection.ops.quote_name, tables))
            cursor.execute(f"DROP TABLE {quoted} CASCADE")
        cursor.execute("DROP FUNCTION IF EXISTS ipate_append_only() CASCADE")
    connection.close()
    options = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
    _run("pg_restore", *options, str(path), database_option=True)
