"""PostgreSQL whose commits the journal knows of beforehand."""

from django.db.backends.postgresql import base

from common.databases import JournalMixin


class DatabaseWrapper(JournalMixin, base.DatabaseWrapper):
    """Django's backend for PostgreSQL with the journal's notes."""
