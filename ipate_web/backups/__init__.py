"""Backups of a running installation, and their restoration."""

import re


class BackupError(Exception):
    """Error in making or restoring a backup. The message contains the remedy."""


#: The storages of an installation, and the folder of each in a backup.
STORAGES = ("private", "models")

#: Files of private storage that backups leave out: uploads being imported, and coordinates of the people whom a run
#: asks. These files contain people's records without separate keys, and can be recomputed or uploaded again.
LEFT_OUT = re.compile(r"imports/|runs/[^/]+/coordinates-")

#: Last file of a backup, which describes all other files.
MANIFEST = "manifest.json"
