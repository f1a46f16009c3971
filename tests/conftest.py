"""Fixtures of all tests. Ready-made people and studies are in :mod:`tests.factories`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.utils import translation
from hypothesis import settings as hypothesis_settings
from pytest_django.plugin import DjangoDbBlocker

from common.append_only import triggers_remove
from tests.databases import MigratedFile

# The same examples every time, however slow the machine.
hypothesis_settings.register_profile("ipate", derandomize=True, deadline=None)
hypothesis_settings.load_profile("ipate")


@pytest.fixture(scope="session")
def _migrated_file(request: pytest.FixtureRequest) -> MigratedFile | None:
    """The copy of a migrated database; None where the database is no file."""
    return MigratedFile(request.config.cache.mkdir("database")) if connection.vendor == "sqlite" else None


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_modify_db_settings: None, _migrated_file: MigratedFile | None) -> bool:
    """Whether the test's database is there already: what remains of the migrations then is to find none missing."""
    return _migrated_file is not None and _migrated_file.fetch(connection.settings_dict["TEST"]["NAME"])


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_keepdb: bool,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    _migrated_file: MigratedFile | None,
) -> None:
    """Migrate the test's database, once for all processes."""
    if _migrated_file is not None and not django_db_keepdb:
        with django_db_blocker.unblock():
            connection.close()
        _migrated_file.keep(connection.settings_dict["NAME"])


@pytest.fixture(autouse=True)
def _append_only_tables_can_be_emptied(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take the triggers away before a test with real transactions flushes the database, which puts them back."""
    marker = request.node.get_closest_marker("django_db")
    transactional = {"transactional_db", "live_server"} & set(request.fixturenames) or (
        marker and marker.kwargs.get("transaction")
    )
    if transactional:
        request.getfixturevalue("transactional_db")
    yield
    if transactional:
        triggers_remove(connection)


@pytest.fixture(autouse=True)
def _every_test_starts_in_english() -> Iterator[None]:
    """A request in another language leaves it switched on for its thread."""
    with translation.override("en"):
        yield


@pytest.fixture(autouse=True)
def _no_test_is_throttled_by_another() -> None:
    """Users of different tests have the same numbers, and requests of one minute count together."""
    cache.clear()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real datasets; skips where there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("IPATE_DATA_DIR") or beside)
    if not folder.is_dir():
        pytest.skip("the real datasets are not here: set IPATE_DATA_DIR to their folder")
    return folder


@pytest.fixture(autouse=True)
def _every_test_has_a_journal_of_its_own() -> Iterator[None]:
    """Studies of different tests have the same numbers, and the journal outlives a test's database."""
    yield
    shutil.rmtree(settings.JOURNAL_DIR, ignore_errors=True)
