"""How many people stand behind a number is sensitive: what is said of it outside staff (rule 7 of the design)."""

#: Fewer people than this are not counted in public.
SMALLEST = 20
#: Larger numbers are rounded to multiples of this.
STEP = 10


def rounded_size(people: int) -> int | None:
    """The number to the nearest ten, or None where there are so few that it says something about each of them.

    >>> rounded_size(346), rounded_size(19)
    (350, None)
    """
    return None if people < SMALLEST else STEP * ((people + STEP // 2) // STEP)
