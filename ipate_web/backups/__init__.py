"""Backups of an installation, made while it runs, and their restoration."""

import re


class BackupError(Exception):
    """A backup that cannot be made or restored; the message says what to do."""


#: The storages that belong to an installation, and the folder of each in a backup.
STORAGES = ("private", "models")

#: Files of private storage that are in no backup. People's records stand in them without keys of their own, and they
#: are made anew, or uploaded again: uploads that are being imported, and coordinates of the people whom a run asks.
LEFT_OUT = re.compile(r"imports/|runs/[^/]+/coordinates-")

#: File of a backup that describes all others; the last one in it.
MANIFEST = "manifest.json"
