"""Installations as releases have left them.

`python -m tests.releases FILE` makes a small installation with the current code: a study in which everything has
happened once. It writes a backup, its keys, its journal and facts about it (`facts.json`) into an archive. `make
release` requires the archive of the release: `tests/releases/1.0.0.tar.xz`. All of it is generated.
"""

from collections.abc import Mapping
from pathlib import Path

#: For all of these installations; nothing in them is secret.
KEY = "a key that anybody may read, of installations that hold nobody's data"


def environment(var: Path) -> Mapping[str, str]:
    """Return the environment of a process of such an installation."""
    given = {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_SECRET_KEY": KEY, "IPATE_VAR_DIR": str(var)}
    return given | {"IPATE_LEAST_TEST_POINTS": "none", "OMP_NUM_THREADS": "1"}
