"""Progress of commands: complete lines where no terminal is."""

from typing import Any

import pytest

from common import progress
from common.progress import progress_bar


def test_a_log_gets_a_few_whole_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    list(progress_bar(range(10_000), desc="counting"))
    assert len(capfd.readouterr().err.splitlines()) <= 2
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    assert list(progress_bar(range(4), desc="counting", unit=" rows")) == [0, 1, 2, 3]
    output = capfd.readouterr().err
    lines = output.splitlines()
    assert "\r" not in output and lines[0].startswith("counting:   0%")
    assert lines[-1].startswith("counting: 100%") and "4/4" in lines[-1]


def test_a_terminal_gets_a_bar(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar: Any = progress_bar(total=2, desc="counting")
    bar.update(2)
    bar.close()
    assert "\r" in capfd.readouterr().err
