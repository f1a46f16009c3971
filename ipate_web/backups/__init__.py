"""Backups of an installation, made while it runs, and their restoration."""


class BackupError(Exception):
    """A backup that cannot be made or restored; the message says what to do."""


#: The storages that belong to an installation, and the folder of each in a backup.
STORAGES = ("private", "models")

#: File of a backup that describes all others; the last one in it.
MANIFEST = "manifest.json"
