"""Pseudonyms: their canonical spelling, and detection of look-alikes.

Files, lists, forms, commands and the API all use `canonical`, so that each of them finds the same person.
"""

import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from numbers import Integral, Real

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from common.spreadsheets import is_formula

LONGEST = 200
"""Maximum length of a pseudonym in characters."""
ERASED = "erased:"
"""Prefix of the value that replaces the pseudonym of a person whose records were erased."""

#: Magnitudes above which floating-point columns cannot represent every whole number, and spreadsheets drop digits.
_INEXACT, _DIGITS_16 = 2**53, 10**15
_SHOWN = 60
#: Pattern of most pseudonyms, whose canonical spelling is the pseudonym itself.
_PLAIN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")
_POINT_ZERO = re.compile(r"([+-]?[0-9]+)\.0+")
_SHORTENED = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?E\+[0-9]+", re.IGNORECASE)
#: Invisible characters that Unicode classifies as letters, marks or signs.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


class PseudonymError(ValueError):
    """Raised for an invalid pseudonym; ``problem`` and ``remedy`` are sentences that pages translate."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem, self.remedy = problem, remedy


def canonical(value: object) -> str:
    r"""Return the canonical spelling of a pseudonym, which may be a string or a number.

    Raises:
        PseudonymError: the pseudonym is invalid.

    >>> canonical(" Mu\u0308ller\xa0") == "M\xfcller", canonical(101.0), canonical("101.0"), canonical("007")
    (True, '101', '101', '007')
    >>> canonical("P-17\u200b")
    Traceback (most recent call last):
    common.identities.PseudonymError: The pseudonym “P-17�” contains the invisible character U+200B ...
    """
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    if is_inexact(value):
        problem = Sentence(
            _("The pseudonym %(number)s is stored as a number, which can lose digits."), number=spelling(value)
        )
        raise PseudonymError(problem, _("Save the column as text."))
    name = spelling(value)
    if not name:
        raise PseudonymError(
            _("The record does not belong to anyone."), _("Enter its holder's pseudonym, or remove the record.")
        )
    if len(name) > LONGEST:
        problem = Sentence(_("The pseudonym “%(name)s” has %(count)d characters."), name=_shown(name), count=len(name))
        raise PseudonymError(problem, Sentence(_("Use at most %(most)d characters."), most=LONGEST))
    unseen = next((letter for letter in name if not letter.isprintable()), None) or _first(_UNSEEN.search(name))
    if unseen is not None:
        text = _("The pseudonym “%(name)s” contains the invisible character %(character)s.")
        raise PseudonymError(Sentence(text, name=_shown(name), character=_called(unseen)), _("Remove it."))
    if is_formula(name):
        problem = Sentence(_("The pseudonym “%(name)s” starts like a spreadsheet formula."), name=_shown(name))
        raise PseudonymError(problem, _("Use pseudonyms that start with a letter or a digit."))
    if _SHORTENED.fullmatch(name):
        text = _("The pseudonym “%(name)s” is a long number that a spreadsheet has shortened.")
        raise PseudonymError(Sentence(text, name=_shown(name)), _("Save the column as text."))
    if name.casefold().startswith(ERASED):
        problem = Sentence(
            _("The pseudonym “%(name)s” is too similar to the pseudonym of an erased person."), name=_shown(name)
        )
        raise PseudonymError(problem, _("Use a different pseudonym."))
    return name


def spelling(value: object) -> str:
    r"""Return a value in the spelling of `canonical`, even if it is not a valid pseudonym.

    >>> spelling(None), spelling(float("nan")), spelling("=1+1"), spelling(True)
    ('', '', '=1+1', 'true')
    """
    match value:
        case str():
            text = value if value.isascii() else unicodedata.normalize("NFC", value)
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Decimal() | Real():
            return _number(value)
        case _:
            text = unicodedata.normalize("NFC", str(value))
    text = text.strip()
    return text if ".0" not in text or not (whole := _POINT_ZERO.fullmatch(text)) else whole[1]


def is_inexact(value: object) -> bool:
    """Return whether a number is so large that a file may have stored it inexactly."""
    if isinstance(value, str | bool) or not isinstance(value, Integral | Real | Decimal):
        return False
    least = _DIGITS_16 if isinstance(value, float) else _INEXACT
    return bool(value == value and abs(value) >= least)  # type: ignore[operator]  # only for numbers


def former_spellings(name: str) -> list[str]:
    """Return a canonical pseudonym, and its possible spellings in rows stored before spellings became canonical."""
    spelled = [name, unicodedata.normalize("NFD", name)]
    return list(dict.fromkeys([*spelled, f"{name}.0"] if name.isdecimal() else spelled))


def _number(value: Real | Decimal) -> str:
    if value != value:
        return ""
    if isinstance(value, Integral):
        return str(int(value))
    number = value if isinstance(value, Decimal) else float(value)
    is_finite = abs(number) != float("inf")
    return str(int(number)) if is_finite and number == int(number) else str(number)


def _first(found: re.Match[str] | None) -> str | None:
    return found[0] if found else None


def _called(letter: str) -> str:
    name = unicodedata.name(letter, "")
    return f"U+{ord(letter):04X} ({name})" if name else f"U+{ord(letter):04X}"


def _shown(name: str) -> str:
    cut = name[:_SHOWN] + ("…" if len(name) > _SHOWN else "")
    unseen = (not letter.isprintable() or _UNSEEN.match(letter) for letter in cut)
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if is_unseen else letter for letter, is_unseen in zip(cut, unseen, strict=True)
    )


# --- Look-alikes ----------------------------------------------------------------------------------------------------

#: Letters and digits that are easily confused, in lower case: Latin letters with digits, and Cyrillic and Greek letters
#: with Latin letters.
_TAKEN_FOR = str.maketrans(
    "01i|\u0131\u0142"
    "\u0430\u0431\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458\u0455\u04bb\u04cf\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03f2",
    "ollllla6bekmhopctyxljshldqwabezhlkmvoptyxc",
)
_APART = re.compile(r"[\W_]+")
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")
_COMMA_ZERO = re.compile(r"(\d+),0+")


def resemblance(name: str) -> str:
    r"""Return a key that is equal for pseudonyms that are easily confused.

    The key ignores case, punctuation, leading zeros, and differences between similar letters and digits, but not a
    separator between two digits.

    >>> resemblance("P-0017") == resemblance("p17") == resemblance("\u0420_l7")
    True
    >>> resemblance("1-12") == resemblance("1.12"), resemblance("1-12") == resemblance("11-2")
    (True, False)
    """
    text = (name if name.isascii() else unicodedata.normalize("NFKC", name)).casefold()
    text = _COMMA_ZERO.sub(r"\1", text) if "," in text else text
    text = _ZEROS.sub("", text) if "0" in text else text
    whole = ""
    for part in _APART.split(text):
        if part:
            whole += f"-{part}" if whole and whole[-1].isdecimal() and part[0].isdecimal() else part
    return whole.translate(_TAKEN_FOR) or name


def look_alikes(new: Iterable[str], others: Iterable[str] = ()) -> list[tuple[str, ...]]:
    """Return groups of different pseudonyms that resemble each other, each with at least one ``new`` pseudonym.

    >>> look_alikes(["P-17", "P-017", "Q-1"], others=["q1", "R-2"])
    [('P-017', 'P-17'), ('Q-1', 'q1')]
    """
    seen = {name: resemblance(name) for name in new}
    groups: dict[str, set[str]] = {}
    for name, looks in seen.items():
        groups.setdefault(looks, set()).add(name)
    for name in others:
        group = None if name in seen else groups.get(resemblance(name))
        if group is not None:
            group.add(name)
    return sorted(tuple(sorted(group)) for group in groups.values() if len(group) > 1)
