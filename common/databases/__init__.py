"""Django's database backends, extended to write notes outside the database before each commit."""

from typing import Any

from django.db import OperationalError

from common.journal import Note, notes_write


class JournalMixin:
    """Mixin of a database backend that writes the journal's notes of a transaction right before its commit.

    A note is registered with ``transaction.on_commit``, so it is dropped if its savepoint is rolled back. If the
    journal cannot be written, the transaction fails as if the database were unavailable.
    """

    run_on_commit: list[tuple[Any, ...]]

    def commit(self) -> None:
        self.validate_thread_sharing()  # type: ignore[attr-defined]  # nothing is noted for a commit that is refused
        self.validate_no_atomic_block()  # type: ignore[attr-defined]
        try:
            notes_write([callback for _, callback, *_ in self.run_on_commit if isinstance(callback, Note)])
        except OSError as error:
            raise OperationalError(f"The journal cannot be written: {error}") from error
        super().commit()  # type: ignore[misc]
