"""Guards of background work: what ends it, with which message, and what is tried again."""

import logging

import pytest
from django.db import DatabaseError

from common.jobs.guards import guarded

UNEXPECTED = "An unexpected error; see the logs."


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, []),
        (ValueError("Give more teachers."), ["failed: Give more teachers."]),
        (DatabaseError("connection lost"), ["retried"]),
        (OSError("disk full"), ["retried"]),
        (KeyError("p-001"), [f"failed: {UNEXPECTED}"]),
    ],
)
def test_each_error_ends_the_work_or_leaves_it_to_the_sweep(
    error: Exception | None, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    with (
        caplog.at_level(logging.ERROR),
        guarded(
            "The run",
            expected=(ValueError,),
            fail=lambda message: heard.append(f"failed: {message}"),
            unexpected=UNEXPECTED,
            retry=lambda: heard.append("retried"),
        ),
    ):
        if error is not None:
            raise error
    assert heard == expected
    assert bool(caplog.records) == (error is not None and not isinstance(error, ValueError))


def test_an_expected_storage_error_is_shown_and_not_retried() -> None:
    heard: list[str] = []
    with guarded("The import", expected=(FileNotFoundError,), fail=heard.append, unexpected=UNEXPECTED):
        raise FileNotFoundError("It is gone.")
    assert heard == ["It is gone."]
