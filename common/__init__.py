"""Foundations shared by all packages: append-only tables, bulk inserts, row hashes, and logging."""

#: Version of iPATE (https://semver.org); CONTRIBUTING.md lists the other places that contain it.
__version__ = "1.0.0-rc.1"
