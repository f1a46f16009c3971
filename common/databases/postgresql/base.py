"""PostgreSQL backend that notes commits in the journal beforehand."""

from django.db.backends.postgresql import base

from common.databases import JournalMixin


class DatabaseWrapper(JournalMixin, base.DatabaseWrapper):
    """Django's backend for PostgreSQL with the journal's notes."""
