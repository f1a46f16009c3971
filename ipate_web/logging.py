"""Which run a log line is about."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_run: ContextVar[str] = ContextVar("run", default="-")


@contextmanager
def logging_run(run: object) -> Iterator[None]:
    """Every line logged inside carries ``run``, the run's id."""
    token = _run.set(str(run))
    try:
        yield
    finally:
        _run.reset(token)


class RunFilter(logging.Filter):
    """Adds the attribute ``run`` to each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.run = _run.get()
        return True
