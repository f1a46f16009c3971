"""The journal is written before each commit, survives crashes, and cannot be read without the site's key."""

from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from django.db import OperationalError, connections, transaction

from accounting.restores import missing_rows
from common import journal
from common.append_only import pending_settle
from common.journal import Note, acts_forget, acts_read, journal_read, pending_confirm
from consent.models import ConsentEvent, DataHolder, Level, study_lock
from consent.services import consent_withdraw
from tests.factories import decide, holder_create, study_open

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = ConsentEvent._meta.label_lower


@pytest.fixture
def holder() -> DataHolder:
    return holder_create(study_open())


def noted(holder: DataHolder) -> list:
    return journal_read(holder.study_id)["heads"][EVENTS]


def test_a_commit_that_fails_after_its_journal_entry_locks_nothing(holder: DataHolder, monkeypatch) -> None:
    first = decide(holder, Level.HIGH)
    own = next(each for each in type(connections["default"]).__mro__ if each.__module__.startswith("django.db"))

    def fail(self: Any) -> NoReturn:
        raise OperationalError("the server has gone away")

    with monkeypatch.context() as patched, pytest.raises(OperationalError, match="gone away"):
        patched.setattr(own, "_commit", fail, raising=False)
        decide(holder, Level.LOW)
    assert ConsentEvent.objects.count() == 1
    assert journal_read(holder.study_id)["pending"]["heads"][EVENTS][0] == 2, "it was written before the commit"
    assert missing_rows(holder.study) == {}
    later = decide(holder, Level.AVERAGE)
    assert later.sequence == first.sequence + 1
    assert noted(holder) == [later.sequence, later.hash]
    assert missing_rows(holder.study) == {}


@pytest.mark.parametrize("by", ["the next transaction", "a restore"])
def test_entries_are_confirmed_later_after_a_crash(holder, monkeypatch, by: str) -> None:
    first = decide(holder, Level.HIGH)
    assert noted(holder) == [first.sequence, first.hash]
    assert journal_read(holder.study_id)["pending"] == {}, "without a crash it is confirmed at once"
    with monkeypatch.context() as patched:
        patched.setattr(Note, "__call__", lambda self: None)
        second = decide(holder, Level.LOW)
    assert noted(holder) == [first.sequence, first.hash]
    if by == "a restore":
        pending_confirm(holder.study_id)
    else:
        with transaction.atomic():
            study_lock(holder.study_id)
            pending_settle(holder.study_id)
    assert noted(holder) == [second.sequence, second.hash]


def test_nothing_is_committed_where_the_journal_cannot_be_written(holder, monkeypatch) -> None:
    decide(holder, Level.HIGH)

    def full(*_: Any, **__: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OperationalError, match="journal cannot be written"):
        patched.setattr(journal, "_replace", full)
        consent_withdraw(holder=holder, acting_user=None)
    assert ConsentEvent.objects.get().kind == ConsentEvent.Kind.GIVEN
    consent_withdraw(holder=holder, acting_user=None)
    assert noted(holder)[0] == 2


def test_rolled_back_rows_are_not_in_the_journal(holder: DataHolder) -> None:
    event = decide(holder, Level.HIGH)
    with transaction.atomic():
        study_lock(holder.study_id)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            decide(holder, Level.LOW)
            1 / 0  # noqa: B018
    assert noted(holder) == [event.sequence, event.hash]
    assert len(list(acts_read(holder.study_id))) == 1


def test_journalled_decisions_are_encrypted_with_a_key_outside_the_database(holder: DataHolder, settings: Any) -> None:
    event = decide(holder, Level.LOW)
    text = Path(settings.JOURNAL_DIR, f"study-{holder.study_id}.acts").read_text()
    assert not any(word in text for word in ('"LOW"', "given", event.hash, "holder"))
    assert [act["level"] for act in acts_read(holder.study_id)] == [Level.LOW]
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another " * 8, []
    assert list(acts_read(holder.study_id)) == []


def test_decisions_in_every_backup_are_removed_from_the_journal(holder: DataHolder, settings: Any) -> None:
    decide(holder, Level.HIGH)
    acts_forget(holder.study_id, timedelta(days=1))
    path = Path(settings.JOURNAL_DIR, f"study-{holder.study_id}.acts")
    path.write_text(path.read_text() + '\n{"at": "2026-01-0')
    consent_withdraw(holder=holder, acting_user=None)
    kinds = [act["kind"] for act in acts_read(holder.study_id)]
    assert kinds == ["given", "withdrawn", "asked"], "a line truncated by a crash hides no other"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    acts_forget(holder.study_id, timedelta(0))
    assert list(acts_read(holder.study_id)) == []
