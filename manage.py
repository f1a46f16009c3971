#!/usr/bin/env python
"""Django's command line for iPATE, for development; the command ``ipate`` of an installation calls it."""

import os
import sys
from pathlib import Path


def main() -> None:
    environment = Path(os.environ.get("IPATE_ENVIRONMENT", "/etc/ipate/environment"))
    has_key = any(os.environ.get(f"IPATE_SECRET_KEY{end}") for end in ("", "_FILE", "_COMMAND"))
    if environment.exists() and not has_key:
        sys.exit(
            f"This machine has an installation ({environment}) whose environment is not loaded. Use ipate instead."
        )
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipate_web.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"The settings are wrong: {error}")


if __name__ == "__main__":
    main()
