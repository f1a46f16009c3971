"""Foundations that every part uses: append-only tables, bulk inserts, row hashes, logging."""

#: Version of iPATE by https://semver.org: the only place of it besides CHANGELOG.md and client/pyproject.toml.
__version__ = "0.9.0"
