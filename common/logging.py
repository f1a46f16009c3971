"""Logging context: the id of the run that a log line is about."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_run: ContextVar[str] = ContextVar("run", default="-")


@contextmanager
def logging_run(run: object) -> Iterator[None]:
    """Add the run's id as ``run`` to every log line within the block."""
    token = _run.set(str(run))
    try:
        yield
    finally:
        _run.reset(token)


class RunFilter(logging.Filter):
    """Logging filter that adds the attribute ``run`` to each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.run = _run.get()
        return True
