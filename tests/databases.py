"""The test's own database, for processes that a test starts."""

from django.db import connection


def database_url() -> str:
    """The value of ``DATABASE_URL`` with which another process uses the test's database."""
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{given['NAME']}"
    return f"postgres://{given['USER']}:{given['PASSWORD']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"
