"""Fixtures of all tests. Ready-made people and studies are in :mod:`tests.factories`."""

import gc
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from django.conf import settings
from django.core.cache import caches
from django.core.management.commands import flush
from django.db import connection
from django.utils import timezone, translation
from hypothesis import settings as hypothesis_settings

from common.append_only import triggers_remove
from ipate_web.backups import STORAGES
from ipate_web.catalogues import catalogues_compile
from tests.clock import Clock
from tests.databases import MigratedFile, MigratedTemplate, commits_without_waiting, migrated, rows_deleted
from tests.draws import repeatable_draws

# The same examples each time, without a deadline for slow machines.
hypothesis_settings.register_profile("ipate", derandomize=True, deadline=None)
hypothesis_settings.load_profile("ipate")
# Tests' files need not survive a power failure.
os.fsync = lambda fd: None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run only every Nth of the chosen tests, from the Kth on (from 0)")


def pytest_configure() -> None:
    """Compile translations that have changed, because pages are also tested in German."""
    catalogues_compile()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that ``--part`` does not select, and distribute the slowest tests across the processes.

    Each process of pytest-xdist starts with an equal part of the list. Exhaustive tests come first in each part,
    because the longest take minutes, and tests that wait for workers come last.
    """
    _keep_part(config, items)
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    long, waiting, others, committing = [], [], [], []
    for item in items:
        if item.get_closest_marker("worker"):
            waiting.append(item)
        elif item.get_closest_marker("exhaustive"):
            long.append(item)
        else:
            (committing if _is_transactional(item) else others).append(item)
    ordered: list[pytest.Item] = []
    for process in range(1, processes):
        first, last = long[process::processes], waiting[process::processes]
        size = max(0, len(items) // processes - len(first) - len(last))
        ordered += first + others[:size] + last
        del others[:size]
    items[:] = ordered + long[::processes] + others + waiting[::processes] + committing


def _keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep every Nth test in alphabetical order, so that the selection does not depend on the order of running."""
    if part := config.getoption("--part", None):  # docs/take_pictures.py loads this after the options are read
        first, parts = map(int, part.split("/"))
        kept = set(sorted(item.nodeid for item in items)[first::parts])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
        items[:] = [item for item in items if item.nodeid in kept]


#: Libraries that take long to import. A single test should not have to wait for them.
SLOW_LIBRARIES = {"torch", "onnx", "onnxruntime", "sklearn", "skops"}
#: Slow libraries that were loaded after collecting all tests and before running any.
LOADED = pytest.StashKey[set[str]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record slow libraries, and exclude modules and tests from garbage collection because they live until the end."""
    session.config.stash[LOADED] = SLOW_LIBRARIES & sys.modules.keys()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


def _is_transactional(item: pytest.Item) -> bool:
    """Return whether a test commits its changes."""
    marker = item.get_closest_marker("django_db")
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool({"transactional_db", "live_server"} & fixtures or (marker and marker.kwargs.get("transaction")))


@pytest.fixture(scope="session")
def _migrated(request: pytest.FixtureRequest) -> MigratedFile | MigratedTemplate:
    """Return the stored copy of the migrated database."""
    return migrated(request.config.cache.mkdir("database"))


@pytest.fixture(scope="session")
def _is_migrated(django_db_modify_db_settings, django_db_blocker, _migrated) -> bool:
    """Return whether the test's database starts as a copy, so that no migrations remain to be run."""
    with django_db_blocker.unblock():
        return _migrated.fetch()


@pytest.fixture(scope="session")
def django_db_keepdb(_is_migrated: bool) -> bool:
    """Return whether the test's database already exists. On PostgreSQL Django copies it, and drops it at the end."""
    return _is_migrated and connection.vendor == "sqlite"


@pytest.fixture(scope="session")
def django_db_setup(_is_migrated, django_db_setup, django_db_blocker, _migrated) -> None:
    """Migrate the test's database, once for all processes."""
    if connection.vendor == "postgresql":
        # For the class, because with a browser's event loop in the thread there are several connections.
        type(connection.ops).sql_flush = staticmethod(rows_deleted)
        flush.emit_post_migrate_signal = lambda *_, **__: None
        with django_db_blocker.unblock():
            commits_without_waiting()
    if not _is_migrated:
        with django_db_blocker.unblock():
            connection.close()
            _migrated.keep()


@pytest.fixture(autouse=True)
def _append_only_tables_can_be_emptied(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop the triggers before a test with real transactions flushes the database, which restores them."""
    transactional = _is_transactional(request.node) and connection.vendor == "sqlite"
    if transactional:
        request.getfixturevalue("transactional_db")
    yield
    if transactional:
        triggers_remove(connection)


@pytest.fixture(autouse=True)
def _every_test_draws_the_same_each_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give each test its own seed; a bound that fails once in a thousand draws would fail some test each time."""
    seed = crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
    with repeatable_draws(request.node.nodeid):
        yield


@pytest.fixture(autouse=True)
def _every_test_starts_in_english() -> Iterator[None]:
    """Reset the language, because a request in another language leaves it active for its thread."""
    with translation.override("en"):
        yield


@pytest.fixture(autouse=True)
def _no_test_has_the_cache_of_another() -> None:
    """Clear the cache, because users of different tests have the same ids and would share limits and pages."""
    for each in caches.all(initialized_only=True):
        each.clear()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder with the real datasets; skip if there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("IPATE_DATA_DIR") or beside)
    if not folder.is_dir():
        pytest.skip("the real datasets are missing: set IPATE_DATA_DIR to their folder")
    return folder


@pytest.fixture(autouse=True)
def _every_test_has_a_journal_of_its_own() -> Iterator[None]:
    """Use a separate journal: studies of different tests have the same ids, and it outlives a test's database."""
    yield
    shutil.rmtree(settings.JOURNAL_DIR, ignore_errors=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let only the test advance the time."""
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock.now)
    return clock


@pytest.fixture
def storages_apart(settings: Any, tmp_path: Path) -> None:
    """Use storages without files of other tests."""

    def apart(alias: str) -> dict[str, Any]:
        options = settings.STORAGES[alias]["OPTIONS"]
        own = {"location": str(tmp_path / "var" / alias)}
        inner = {"options": options["options"] | own} if "options" in options else own
        return settings.STORAGES[alias] | {"OPTIONS": options | inner}

    settings.STORAGES = settings.STORAGES | {alias: apart(alias) for alias in (*STORAGES, "keys")}


@pytest.fixture
def without_pytorch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a machine without PyTorch, on which modules that need it cannot be imported."""
    from learning.representations import network

    for name, module in list(sys.modules.items()):
        if name[:9] in ("learning.", "training.") and "torch" in vars(module):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    network._torch.cache_clear()
    yield
    network._torch.cache_clear()
