"""SQLite backend that notes commits in the journal beforehand."""

from django.db.backends.sqlite3 import base

from common.databases import JournalMixin


class DatabaseWrapper(JournalMixin, base.DatabaseWrapper):
    """Django's backend for SQLite with the journal's notes."""
