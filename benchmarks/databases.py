"""A database for one measurement, on the server given by the environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def empty_database(folder: str) -> Iterator[None]:
    """Point the environment to a new database of this process (for SQLite, in ``folder``), removed afterwards."""
    given = os.environ.get("DATABASE_URL", "")
    os.environ |= {
        "IPATE_VAR_DIR": folder,
        "DJANGO_SETTINGS_MODULE": "ipate_web.settings",
        "IPATE_LOG_LEVEL": "ERROR",
        "IPATE_BROKER_URL": "filesystem://",
        "IPATE_LEAST_TEST_POINTS": "none",
    }
    if not given.startswith("postgres"):
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/db"
        yield
        return
    import psycopg

    name = f"ipate_benchmark_{os.getpid()}"
    os.environ["DATABASE_URL"] = f"{given.rpartition('/')[0]}/{name}"
    with psycopg.connect(given.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
