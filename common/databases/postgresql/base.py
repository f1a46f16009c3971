"""PostgreSQL backend that writes the journal before each commit."""

from django.db.backends.postgresql import base

from common.databases import JournalMixin


class DatabaseWrapper(JournalMixin, base.DatabaseWrapper):
    """Django's backend for PostgreSQL, which also writes the journal."""
