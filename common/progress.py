"""Output of commands: numbers with nouns, and progress bars, which print occasional lines in logs and files."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from tqdm import tqdm


def counted(number: int, one: str, many: str) -> str:
    """Return a number followed by the singular or plural of a noun.

    >>> counted(1, "person", "people"), counted(0, "run", "runs"), counted(12000, "row", "rows")
    ('1 person', '0 runs', '12,000 rows')
    """
    return f"{number:,} {one if number == 1 else many}"


Progress = Callable[[int, int], None]
"""Called as ``progress(done, total)`` during long work."""

#: Seconds between two lines of progress.
_EVERY = 10.0


def silent(done: int, total: int) -> None:
    """Ignore progress."""


def progress_bar(items: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """Return a progress bar like tqdm's, over ``items`` or updated by hand. On a terminal, it disappears when done."""
    if sys.stderr.isatty():
        return tqdm(items, **{"leave": False, **options})
    return _Lines(items, **{**options, "leave": True, "mininterval": _EVERY, "miniters": 1, "ncols": 0})


class _Lines(tqdm):
    """Progress bar that prints complete lines."""

    @staticmethod
    def status_printer(file: TextIO) -> Callable[[str], None]:
        def print_line(text: str) -> None:
            if text.strip():
                file.write(text.strip() + "\n")
                file.flush()

        return print_line

    disable: bool
    _last_count: float | None = None

    def display(self, msg: str | None = None, pos: int | None = None) -> bool | None:
        """Print a line unless the count has not changed."""
        if self.n == self._last_count:
            return None
        self._last_count = self.n
        return super().display(msg, pos)

    def moveto(self, n: int) -> None:
        """Do nothing, because several bars print their lines one after another instead of at fixed positions."""

    def close(self) -> None:
        """Print the final count. Overrides tqdm's method, which would end an unfinished line."""
        if not self.disable:
            self.display()
            self.disable = True
