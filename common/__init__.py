"""Foundations that every part uses: append-only tables, bulk inserts, row hashes, logging."""

__version__ = "0.1.0"
