"""Numbers with nouns for logs and the output of commands, which are in English."""


def counted(number: int, one: str, many: str) -> str:
    """Return a number with the matching word.

    >>> counted(1, "person", "people"), counted(0, "run", "runs"), counted(12000, "row", "rows")
    ('1 person', '0 runs', '12,000 rows')
    """
    return f"{number:,} {one if number == 1 else many}"
