"""SQLite backend that writes the journal before each commit."""

from django.db.backends.sqlite3 import base

from common.databases import JournalMixin


class DatabaseWrapper(JournalMixin, base.DatabaseWrapper):
    """Django's backend for SQLite, which also writes the journal."""
