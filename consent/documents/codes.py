"""Codes that people copy from paper or read out: groups of letters, each with a check letter.

The letters are those of Crockford's base 32, which are hard to confuse. The last letter of a group is computed from the
others and the group's position. It detects one wrong letter, two swapped letters and two swapped groups, and shows
which group is wrong. The check letters reveal nothing about the code beyond the other letters.
"""

import re
import secrets

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: Number of random letters in a group; a check letter follows them.
CHOSEN = 4
GROUP = CHOSEN + 1
#: Polynomial x⁵ + x² + 1, which makes the 32 letters a field.
_MODULUS = 0b100101
_BETWEEN = re.compile(r"[\s\-–—.,/]+")


def _product(left: int, right: int) -> int:
    """Return the product of two elements of the field with 32 elements.

    >>> _product(16, 2)
    5
    """
    product = 0
    for bit in range(5):
        if right >> bit & 1:
            product ^= left << bit
    for bit in range(8, 4, -1):
        if product >> bit & 1:
            product ^= _MODULUS << (bit - 5)
    return product


def check_letter(letters: str, place: int) -> str:
    """Return the check letter for a group of ``letters`` at a position, counted from 1.

    Each position has its own factor, neither 0 nor 1, so a sum over the field detects every single wrong letter and
    every swap of two letters.
    """
    total = place
    for power, letter in enumerate(letters, 1):
        total ^= _product(1 << power, LETTERS.index(letter))
    return LETTERS[total]


def code_of(bits: int, groups: int) -> str:
    """Return the code for ``bits``, in ``groups`` groups of 20 bits each.

    >>> code_of(0x0123456789ABCDE, 3)
    '04HMAASW92NF6YP'
    """
    letters = "".join(LETTERS[bits >> shift & 31] for shift in range((groups * CHOSEN - 1) * 5, -1, -5))
    parts = [letters[start : start + CHOSEN] for start in range(0, len(letters), CHOSEN)]
    return "".join(part + check_letter(part, place) for place, part in enumerate(parts, 1))


def code_new(groups: int) -> str:
    """Return a random code of ``groups`` groups, with 20 bits per group from the operating system's generator."""
    return code_of(secrets.randbits(groups * CHOSEN * 5), groups)


def code_in_groups(code: str, between: str = " ") -> str:
    """Return a code in groups, as printed on paper."""
    return between.join(code[start : start + GROUP] for start in range(0, len(code), GROUP)).upper()


def _read(text: str) -> str:
    """Replace typed characters with the valid letters that they look like."""
    return text.upper().translate(str.maketrans("OIL", "011"))


def code_normalise(text: str) -> str:
    """Return the normal form of a code that was typed or read out: without separators between groups.

    >>> code_normalise("o4hma-asw92 NF6YP")
    '04HMAASW92NF6YP'
    """
    return _read(_BETWEEN.sub("", text))


def code_faults(text: str, groups: int) -> list[str]:
    """Return error messages for a typed code, naming the groups that are wrong (empty if it is valid)."""
    parts = [_read(part) for part in _BETWEEN.split(text.strip()) if part]
    joined = "".join(parts)
    exact, grouped = len(joined) == groups * GROUP, len(parts) == groups
    if exact or not grouped:
        parts = [joined[start : start + GROUP] for start in range(0, len(joined), GROUP)]
    faults = [(place, part, fault) for place, part in enumerate(parts[:groups], 1) if (fault := _fault(part, place))]
    if exact or grouped:
        return [_fault_message(*fault) for fault in faults]
    length = _("A code has %(groups)d groups of %(size)d letters and digits.") % {"groups": groups, "size": GROUP}
    typed = ngettext("You typed %(n)d character.", "You typed %(n)d characters.", len(joined)) % {"n": len(joined)}
    first = [_fault_message(*fault) for fault in faults[:1]]
    return [f"{length} {typed}", *first]


def _fault(part: str, place: int) -> str:
    """Return the kind of error in a group: "letter", "length", "check", or "" if there is none."""
    if any(letter not in LETTERS for letter in part):
        return "letter"
    if len(part) != GROUP:
        return "length"
    return "" if check_letter(part[:CHOSEN], place) == part[CHOSEN] else "check"


def _fault_message(place: int, part: str, fault: str) -> str:
    values = {"place": place, "part": part, "size": GROUP}
    if fault == "letter":
        return _("Group %(place)d (%(part)s) contains a character that is never used in codes.") % values
    if fault == "length":
        return _("Group %(place)d (%(part)s) must have %(size)d letters or digits.") % values
    return _("Group %(place)d (%(part)s) has a typing error. Compare it with your code letter by letter.") % values
