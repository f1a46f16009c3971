"""Installations as releases have left them.

`python -m tests.releases FILE` makes a small installation with the code at hand: a study in which everything has
happened once. It writes a backup of it, its keys, its journal and what holds in it, `facts.json`, into an archive.
`make release` wants that of the release to be there: `tests/releases/1.0.0.tar.xz`. All in it is generated.
"""

from collections.abc import Mapping
from pathlib import Path

#: Of all of these installations; nothing in them is a secret.
KEY = "a key that anybody may read, of installations that hold nobody's data"


def environment(var: Path) -> Mapping[str, str]:
    """Environment of a process of such an installation."""
    given = {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_SECRET_KEY": KEY, "IPATE_VAR_DIR": str(var)}
    return given | {"IPATE_LEAST_TEST_POINTS": "none", "OMP_NUM_THREADS": "1"}
