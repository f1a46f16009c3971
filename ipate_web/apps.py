"""App configuration of the project, with its checks: confinement of file readers, checkpoints and the database."""

import os
from collections.abc import Iterable
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from common.confinement import protections


class IpateWebConfig(AppConfig):
    """App that provides the commands for starting the site and its workers."""

    name = "ipate_web"

    def ready(self) -> None:
        from ipate_web.catalogues import catalogues_check
        from ipate_web.watching import register

        register()
        checks.register(catalogues_check, checks.Tags.translation)
        checks.register(confinement_check, checks.Tags.security, deploy=True)
        checks.register(key_check, checks.Tags.security, deploy=True)
        checks.register(encoding_check, checks.Tags.database)


_WHAT = {"network": "the network", "files": "the other files of the site's user"}


def confinement_check(app_configs: Any, **_: object) -> Iterable[CheckMessage]:
    """Check, for ``manage.py check --deploy``, that confinement works."""
    protection = protections()
    return [
        Warning(
            f"Processes that read uploaded files can access {words} on this machine.",
            hint="Run the site on Linux 5.13 or later, x86_64 or aarch64, with seccomp and Landlock.",
            id=f"ipate.W00{number}",
        )
        for number, (name, words) in enumerate(_WHAT.items(), 1)
        if not protection.get(name)
    ]


def key_is_readable() -> bool:
    """Return whether this process could sign checkpoints."""
    return bool(settings.CHECKPOINT_KEY_FILE) and os.access(settings.CHECKPOINT_KEY_FILE, os.R_OK)


def key_check(app_configs: Any, **_: object) -> Iterable[CheckMessage]:
    """Check, for ``ipate check --deploy``, that the site's user cannot read the checkpoint key."""
    if not key_is_readable():
        return []
    return [
        Error(
            "The site's user can read the private key for signing checkpoints (IPATE_CHECKPOINT_KEY_FILE).",
            hint="Set it only for the process that signs, and let another user own the file. See docs/install.md.",
            id="ipate.E001",
        )
    ]


def encoding_check(app_configs: Any, databases: Iterable[str] | None = None, **_: object) -> Iterable[CheckMessage]:
    """Check the database's encoding for ``ipate migrate``, because not every encoding has German letters and ε."""
    for alias in databases or ():
        if connections[alias].vendor == "postgresql":
            with connections[alias].cursor() as cursor:
                cursor.execute("SHOW server_encoding")
                (encoding,) = cursor.fetchone()
            if encoding != "UTF8":
                yield Error(
                    f"The database's encoding is {encoding}, not UTF8.",
                    hint="Create it as in docs/install.md: … ENCODING 'UTF8' TEMPLATE template0.",
                    id="ipate.E002",
                )
