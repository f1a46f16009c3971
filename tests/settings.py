"""The settings with which the tests run: the site's own, in a folder of their own.

``DATABASE_URL`` and the broker are as the environment says, so that one suite serves every database.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

if "IPATE_TEST_DIR" not in os.environ:
    os.environ["IPATE_TEST_DIR"] = tempfile.mkdtemp(prefix="ipate-tests-")
    atexit.register(shutil.rmtree, os.environ["IPATE_TEST_DIR"], ignore_errors=True)
# Processes that run beside each other (pytest-xdist) share the environment, not the folder.
_folder = Path(os.environ["IPATE_TEST_DIR"], os.environ.get("PYTEST_XDIST_WORKER", "main"))
(_folder / "static").mkdir(parents=True, exist_ok=True)
os.environ["IPATE_VAR_DIR"] = str(_folder)
# Nor Redis' databases, counted down from the one that is given.
_broker, _, _number = os.environ.get("IPATE_BROKER_URL", "").rpartition("/")
if _broker.startswith("redis"):
    _process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.environ["IPATE_BROKER_URL"] = f"{_broker}/{int(_number) - _process}"

from ipate_web.settings import *  # noqa: E402, F403
from ipate_web.settings import DATABASES, STORAGES, VAR_DIR  # noqa: E402

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, as in real life: one that lives in memory would have its connection shared between threads.
    DATABASES["default"]["TEST"] = {"NAME": str(VAR_DIR / "test.sqlite3")}
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Whether somebody has built the documents changes pages: tests that want them name a folder.
DOCUMENTS = VAR_DIR / "docs"
# Test data of small studies are small: tests of the rule by which models are published set it themselves.
LEAST_TEST_POINTS = None
