"""The private key of signed checkpoints: whatever answers requests must not be able to read it."""

import os
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error


def key_is_readable() -> bool:
    """Whether this process could sign checkpoints."""
    return bool(settings.CHECKPOINT_KEY_FILE) and os.access(settings.CHECKPOINT_KEY_FILE, os.R_OK)


def key_check(app_configs: Any, **_: object) -> Iterable[CheckMessage]:
    """Check of ``ipate check --deploy``, called with the user and the environment of the site."""
    if not key_is_readable():
        return []
    return [
        Error(
            "This user, with this environment, can read the private key of signed checkpoints "
            "(IPATE_CHECKPOINT_KEY_FILE).",
            hint="Name it to the process that signs alone, and let another user own it. See docs/operations.md.",
            id="ipate.E001",
        )
    ]
