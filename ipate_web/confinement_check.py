"""What is kept from whatever reads files of strangers on this machine."""

from collections.abc import Iterable
from typing import Any

from django.core.checks import CheckMessage, Warning

from common.confinement import protections

_WHAT = {"network": "the network", "files": "the other files of the site's user"}


def confinement_check(app_configs: Any, **_: object) -> Iterable[CheckMessage]:
    """Check of ``manage.py check --deploy``."""
    protection = protections()
    return [
        Warning(
            f"On this machine a process that reads an uploaded file can reach {words}.",
            hint="Run the site on Linux 5.13 or later, x86_64 or aarch64, with seccomp and Landlock.",
            id=f"ipate.W00{number}",
        )
        for number, (name, words) in enumerate(_WHAT.items(), 1)
        if not protection.get(name)
    ]
