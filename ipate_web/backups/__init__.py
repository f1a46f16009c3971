"""Backups of an installation, made while it runs, and their restoration."""

from pathlib import Path


class BackupError(Exception):
    """A backup that cannot be made or restored; the message says what to do."""


#: The storages that belong to an installation, and the folder of each in a backup.
STORAGES = ("private", "models")


def manifest_of(folder: Path) -> Path:
    """File of a backup that describes it."""
    return folder / "manifest.json"
