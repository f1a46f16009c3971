"""The WSGI entry point, for gunicorn."""

import os

from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipate_web.settings")
application = get_wsgi_application()

from ipate_web.apps import key_is_readable  # noqa: E402, it needs the settings

if key_is_readable():
    raise ImproperlyConfigured(
        "The site can read the private key for signing checkpoints (IPATE_CHECKPOINT_KEY_FILE). Set it only for the "
        "process that signs. See docs/install.md."
    )
