"""Copy a consistent snapshot of the database while other processes write to it, and restore such a copy.

A copy is restored next to the live database and prepared there, then replaces the live database in one transaction. If
anything fails before the commit, the live database stays intact.
"""

import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from django.db import DatabaseError, connection, transaction
from django.db.backends.postgresql.client import DatabaseClient

from ipate_web.backups import BackupError

#: Function that queries the copied snapshot: from SQL without parameters to rows.
Query = Callable[[str], list[tuple]]

#: PostgreSQL schemas for the restored data, and for the live data while the restored schema gets its name.
_BESIDE, _ASIDE = "ipate_restoring", "ipate_before_restoring"


def dump_name() -> str:
    """Return the name of the database copy in a backup, for this installation's kind of database."""
    return "database.sqlite3" if connection.vendor == "sqlite" else "database.pgdump"


@contextmanager
def snapshot(path: Path) -> Iterator[Query]:
    """Copy a snapshot of the database to ``path``, and yield a reader of the same snapshot."""
    path.unlink(missing_ok=True)
    with (_sqlite_snapshot if connection.vendor == "sqlite" else _postgresql_snapshot)(path) as query:
        yield query


@contextmanager
def database_staged(path: Path) -> Iterator[None]:
    """Restore the copy at ``path`` next to the live database, and replace that when the block ends.

    Inside the block, Django uses the restored database. If an error occurs in the block or afterwards, the live
    database stays unchanged.
    """
    with (_sqlite_staged if connection.vendor == "sqlite" else _postgresql_staged)(path):
        yield


def staged_remove() -> None:
    """Remove leftovers of a failed or killed restoration next to the live database."""
    if connection.vendor == "postgresql":
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {_BESIDE} CASCADE")


@contextmanager
def _connected(**changes: object) -> Iterator[None]:
    """Change Django's connection settings inside the block."""
    connection.close()
    before = dict(connection.settings_dict)
    connection.settings_dict.update(changes)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


# --- SQLite ---------------------------------------------------------------------------------------------------------


@contextmanager
def _sqlite_snapshot(path: Path) -> Iterator[Query]:
    with (
        closing(sqlite3.connect(f"file:{connection.settings_dict['NAME']}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(path)) as copy,
    ):
        source.backup(copy)  # in one step, for a consistent snapshot
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a separate log
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as copy:
        yield lambda sql: copy.execute(sql).fetchall()


@contextmanager
def _sqlite_staged(path: Path) -> Iterator[None]:
    with _connected(NAME=str(path)):
        with connection.cursor() as cursor:
            faults = cursor.execute("PRAGMA quick_check").fetchone()[0]
        if faults != "ok":
            raise BackupError(f"The database in the backup is damaged ({faults}). Use another backup.")
        yield
    with (
        closing(sqlite3.connect(path)) as source,
        closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=10)) as target,
    ):
        try:
            source.backup(target)  # one transaction
        except sqlite3.OperationalError as error:
            raise BackupError(
                f"The database could not be replaced ({error}). Stop the site, the workers and beat, and check "
                "that its disk has room for another copy of it."
            ) from error


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def _command(program: str, *options: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment for a PostgreSQL program, so that process lists do not show the password."""
    (_, *arguments, name), environment = DatabaseClient.settings_to_cmd_args_env(connection.settings_dict, [])
    return [program, *options, "--no-password", *arguments, name], os.environ | (environment or {})


@contextmanager
def _started(program: str, command: list[str], **options: object) -> Iterator[subprocess.Popen]:
    """Yield a running program, killed if the block fails. Raises BackupError with its message if the program fails."""
    with tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(command, stderr=errors, **options)  # type: ignore[call-overload]  # noqa: S603
        except FileNotFoundError:
            raise BackupError(
                f"{program} is not installed: install PostgreSQL's client programs, at least as new as its server."
            ) from None
        try:
            yield process
        except BrokenPipeError:  # it has ended; its own message says why
            process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()
        if process.wait():
            errors.seek(0)
            raise BackupError(f"{program} failed: {errors.read().strip()[-1000:]}")


@contextmanager
def _postgresql_snapshot(path: Path) -> Iterator[Query]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT pg_export_snapshot()")
        options = ["--format=custom", "--no-owner", "--no-privileges", f"--snapshot={cursor.fetchone()[0]}"]
        command, environment = _command("pg_dump", *options, f"--exclude-schema={_BESIDE}", f"--file={path}")
        with _started("pg_dump", command, env=environment):
            pass

        def query(sql: str) -> list[tuple]:
            cursor.execute(sql)
            return cursor.fetchall()

        yield query


@contextmanager
def _postgresql_staged(path: Path) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        live = connection.ops.quote_name(cursor.fetchone()[0])
    _postgresql_load(path, live)
    with _connected(OPTIONS=connection.settings_dict["OPTIONS"] | {"options": f"-c search_path={_BESIDE}"}):
        yield
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in (
            "SET LOCAL lock_timeout = '10s'",
            f"CREATE SCHEMA {_ASIDE}",
            _moving(live, _ASIDE),
            _moving(_BESIDE, live),
            f"DROP SCHEMA {_ASIDE}, {_BESIDE} CASCADE",
        ):
            cursor.execute(statement)
    connection.close()


def _postgresql_load(path: Path, live: str) -> None:
    """Load the dump into a separate schema, in one transaction.

    A dump contains the name of its original schema. The live tables are therefore moved away inside the transaction and
    back before it ends, so that no other session ever finds them missing.
    """
    connection.close()
    begin = (
        f"BEGIN; SET LOCAL lock_timeout = '10s'; CREATE SCHEMA {_ASIDE}; CREATE SCHEMA {_BESIDE}; "
        f"{_moving(live, _ASIDE)};\n"
    )
    end = f"\n{_moving(live, _BESIDE)}; {_moving(_ASIDE, live)}; DROP SCHEMA {_ASIDE}; COMMIT;\n"
    command, environment = _command("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
    reading = ["pg_restore", "--no-owner", "--no-privileges", "--file=-", str(path)]
    options = {"env": environment, "stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with _started("psql", command, **options) as psql:
        script = psql.stdin
        assert script is not None
        script.write(begin.encode())
        script.flush()
        try:
            with _started("pg_restore", reading, stdout=script):
                pass
        except BackupError:
            script.close()  # without COMMIT
            if psql.wait():  # it failed first; its message says why
                return
            raise
        script.write(end.encode())


def _moving(source: str, target: str) -> str:
    """Return an SQL statement that moves a schema's functions and tables, with all their parts, to another schema."""
    return (
        "DO $move$ DECLARE each record; BEGIN "  # noqa: S608, our own names
        "FOR each IN SELECT oid::regclass AS name FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') "
        f"AND relnamespace = '{source}'::regnamespace AND {_OURS.format('pg_class')} "
        f"LOOP EXECUTE format('ALTER TABLE %s SET SCHEMA {target}', each.name); END LOOP; "
        "FOR each IN SELECT oid::regprocedure AS name FROM pg_catalog.pg_proc WHERE "
        f"pronamespace = '{source}'::regnamespace AND {_OURS.format('pg_proc')} "
        f"LOOP EXECUTE format('ALTER ROUTINE %s SET SCHEMA {target}', each.name); END LOOP; "
        "END $move$"
    )


#: Excludes objects that belong to an extension.
_OURS = (
    "NOT EXISTS (SELECT FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.{0}'::regclass "
    "AND objid = {0}.oid AND deptype = 'e')"
)
