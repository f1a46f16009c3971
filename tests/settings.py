"""Settings for the tests: the site's own settings, in a separate folder.

``DATABASE_URL`` and the broker are taken from the environment, so that one suite tests every database.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

if "IPATE_TEST_DIR" not in os.environ:
    os.environ["IPATE_TEST_DIR"] = tempfile.mkdtemp(prefix="ipate-tests-")
    atexit.register(shutil.rmtree, os.environ["IPATE_TEST_DIR"], ignore_errors=True)
# Parallel processes (pytest-xdist) share the environment, but not the folder.
_folder = Path(os.environ["IPATE_TEST_DIR"], os.environ.get("PYTEST_XDIST_WORKER", "main"))
(_folder / "static").mkdir(parents=True, exist_ok=True)
os.environ["IPATE_VAR_DIR"] = str(_folder)
# Nor do they share Redis databases, which are counted down from the given one.
_broker, _, _number = os.environ.get("IPATE_BROKER_URL", "").rpartition("/")
if _broker.startswith("redis"):
    _process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.environ["IPATE_BROKER_URL"] = f"{_broker}/{int(_number) - _process}"

from ipate_web.settings import *  # noqa: E402, F403
from ipate_web.settings import DATABASES, STORAGES, VAR_DIR  # noqa: E402

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, as in production, because threads would share the connection of an in-memory database.
    DATABASES["default"]["TEST"] = {"NAME": str(VAR_DIR / "test.sqlite3")}
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Pages depend on whether the documentation is built; tests that need it name a folder.
DOCUMENTS = VAR_DIR / "docs"
# Small studies have little test data; tests of the rule for publishing models set this themselves.
LEAST_TEST_POINTS = None
