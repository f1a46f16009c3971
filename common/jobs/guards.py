"""Guard around the work of a task: what ends it with a message, and what is tried again."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import DatabaseError

from common.sentences import said_by

logger = logging.getLogger(__name__)


@contextmanager
def guarded(
    work: str,
    *,
    expected: tuple[type[Exception], ...],
    fail: Callable[[str], None],
    unexpected: str,
    retry: Callable[[], object] | None = None,
) -> Iterator[None]:
    """End work that cannot go on; leave it to the sweep where database or storage do not answer.

    Args:
        work: What it is, for the log.
        expected: Errors whose messages say what to do, and hold nothing of private data.
        fail: Ends the work with a message for staff.
        unexpected: The message of all other errors.
        retry: Called where it will be tried again.
    """
    try:
        yield
    except expected as error:
        fail(said_by(error))
    except (DatabaseError, OSError):
        logger.exception("%s could not go on; it is tried again.", work)
        if retry is not None:
            retry()
    except Exception:
        logger.exception("%s failed unexpectedly.", work)
        fail(unexpected)
