"""Foundations that every part uses: append-only tables, bulk inserts, row hashes, logging."""

#: Version of iPATE by https://semver.org; CONTRIBUTING.md says where else it stands.
__version__ = "0.9.0"
