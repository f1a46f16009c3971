"""SQLite whose commits the journal knows of beforehand."""

from django.db.backends.sqlite3 import base

from common.databases import JournalMixin


class DatabaseWrapper(JournalMixin, base.DatabaseWrapper):
    """Django's backend for SQLite with the journal's notes."""
