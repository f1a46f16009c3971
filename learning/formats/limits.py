"""Limits on what is read, so that a small file cannot fill the machine's memory."""

from __future__ import annotations

from math import prod

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.rows import DataError

MOST_NUMBERS = 1_000_000_000
"""Largest count of numbers in the encoded records of one file: 4 GB."""
LEAST_CONTENT = 256 << 20
"""Uncompressed bytes that a compressed file may contain even if it is small."""
MOST_GROWTH = 200
"""Largest factor of compression beyond that; real data compress 3 to 50 times."""
LONGEST_LINE = 1 << 20
"""Largest number of characters in a line of a table."""


def check_numbers(*shape: int) -> None:
    """Check that an array of this shape may be read.

    Raises:
        DataError: The array is too large.
    """
    if prod(shape) > MOST_NUMBERS:
        problem = Sentence(
            _("The file contains %(count)s numbers, but at most %(most)s can be read."),
            count=f"{prod(shape):,}",
            most=f"{MOST_NUMBERS:,}",
        )
        raise DataError(problem, _("Split it, and import the parts as separate datasets."))


def most_content(size: int) -> int:
    """Return the number of bytes that a compressed file of this size may contain."""
    return max(LEAST_CONTENT, MOST_GROWTH * size)


def unpacked_too_large(most: int) -> DataError:
    """Return a DataError for a compressed file that contains more than ``most`` bytes."""
    problem = Sentence(
        _("When unpacked, the file grows to more than %(most)s MB, far more than real data would."),
        most=f"{most >> 20:,}",
    )
    return DataError(problem, _("Check where it comes from. If it is the right file, provide it uncompressed."))
