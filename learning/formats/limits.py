"""Limits on the content that is read, so that a small file cannot fill the machine's memory."""

from __future__ import annotations

from math import prod

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.rows import DataError

MOST_NUMBERS = 1_000_000_000
"""Maximum number of values in the encoded records of a file: 4 GB."""
LEAST_CONTENT = 256 << 20
"""Number of uncompressed bytes that even a small compressed file may contain."""
MOST_GROWTH = 200
"""Largest compression ratio of content above that size; real data have ratios of 3 to 50."""
LONGEST_LINE = 1 << 20
"""Largest number of characters in a line of a table."""


def check_numbers(*shape: int) -> None:
    """Check that an array of this shape is small enough to be read.

    Raises:
        DataError: The array is too large.
    """
    if prod(shape) > MOST_NUMBERS:
        problem = Sentence(
            _("The file contains %(count)s numbers, but at most %(most)s can be read."),
            count=f"{prod(shape):,}",
            most=f"{MOST_NUMBERS:,}",
        )
        raise DataError(problem, _("Split the file, and import the parts as separate datasets."))


def most_content(size: int) -> int:
    """Return the largest number of uncompressed bytes allowed in a compressed file of this size."""
    return max(LEAST_CONTENT, MOST_GROWTH * size)


def unpacked_too_large(most: int) -> DataError:
    """Return a DataError for a compressed file that contains more than ``most`` bytes."""
    problem = Sentence(
        _("When unpacked, the file grows to more than %(most)s MB, far more than real data would."),
        most=f"{most >> 20:,}",
    )
    return DataError(problem, _("Check where the file comes from. If it is the right file, provide it uncompressed."))
