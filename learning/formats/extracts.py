"""Records of health systems as one flat table.

Each row contains everything known about a person at one time; the schema defines how a person's rows are combined. The
columns depend on the file. Columns not in the schema are ignored, and declared columns that are missing in the file are
unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from learning.formats.codes import CODE_SYSTEMS

PERSON, MOMENT, SEX, BORN = "person", "date", "sex", "born"
"""Columns in every extract: pseudonym, time, sex and date of birth."""
YES = "yes"
"""Value of a condition column if the condition was recorded."""
_CONDITION = "condition: "
_PARTIAL = re.compile(r"(\d{4})(?:-(\d{2}))?", re.ASCII)
#: Names of ICD code systems in FHIR (URLs) and in OMOP (vocabularies: ICD10CM, ICD10GM, ICD9CM).
_ICD = (
    ("icd10", re.compile(r"icd-?10|2\.16\.840\.1\.113883\.6\.(?:3|90)$", re.IGNORECASE)),
    ("icd9", re.compile(r"icd-?9", re.IGNORECASE)),
)
_BARE = re.compile(r"^(?:|SNOMED|(?:https?://)?snomed\.info/sct|urn:oid:2\.16\.840\.1\.113883\.6\.96)$", re.IGNORECASE)


class Fact(NamedTuple):
    """Value recorded about a person, with its time (empty if unknown)."""

    person: str
    moment: str
    column: str
    value: object


class Extract(NamedTuple):
    """Flat table made from facts.

    Attributes:
        names: Names of the columns, beginning with the columns in every extract.
        rows: Values by column.
        counted: Condition columns. A value means that the condition was recorded; an empty cell means that nothing is
            known.
    """

    names: list[str]
    rows: list[dict[str, object]]
    counted: list[str]


def flat(facts: Iterable[Fact]) -> Extract:
    """Return a row for each person and time, or several if a column has several values at that time.

    >>> flat([Fact("a", "", "sex", "male"), Fact("a", "2026-01-01", "x", 1), Fact("a", "2026-01-01", "x", 2)]).rows[1:]
    [{'person': 'a', 'date': '2026-01-01', 'x': 1}, {'person': 'a', 'date': '2026-01-01', 'x': 2}]
    """
    rows: list[dict[str, object]] = []
    places: dict[tuple[str, str], dict[str, object]] = {}
    names: dict[str, None] = {}
    for person, moment, column, value in facts:
        row = places.get((person, moment))
        if row is None or column in row:
            row = places[person, moment] = {PERSON: person, MOMENT: moment}
            rows.append(row)
        row[column] = value
        names[column] = None
    others = sorted(set(names) - {SEX, BORN})
    return Extract([PERSON, MOMENT, SEX, BORN, *others], rows, [name for name in others if name.startswith(_CONDITION)])


def filled(person: str, moment: str, values: Mapping[str, object]) -> Iterator[Fact]:
    """Yield a fact for each known value."""
    for column, value in values.items():
        if column and value not in (None, ""):
            yield Fact(person, moment, column, value)


def named(code: str, unit: str) -> str:
    """Return the column name of a measurement; each unit has its own column."""
    return f"{code} [{unit}]" if unit else code


def condition_name(codings: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of the columns for a condition with one or several codes (system, code), in any order.

    ICD codes are grouped by chapter. Without an ICD code, the name is the SNOMED code or, failing that, the
    alphabetically first system's code and name.

    >>> condition_name([("http://snomed.info/sct", "44054006"), ("http://hl7.org/fhir/sid/icd-10", "I10")])
    ['condition: circulatory']
    >>> condition_name([("https://lab.example.org", "X1"), ("http://snomed.info/sct", "44054006")])
    ['condition: 44054006']
    """
    chapters = set()
    for system, code in codings:
        for name, pattern in _ICD:
            place = CODE_SYSTEMS[name].place(code) if pattern.search(system) else None
            if place is not None:
                chapters.add(CODE_SYSTEMS[name].names[place])
    if chapters:
        return [f"{_CONDITION}{chapter}" for chapter in sorted(chapters)]
    if not codings:
        return []
    bare = sorted(code for system, code in codings if _BARE.match(system))
    if bare:
        return [f"{_CONDITION}{bare[0]}"]
    system, code = min(codings)
    return [f"{_CONDITION}{code} ({re.sub(r'^[a-z]+:(//)?|/+$', '', system)})"]


def day(value: object) -> str:
    """Return a date as a string; a year or month is represented by the day in its middle."""
    text = "" if value is None else str(value).strip()
    partial = _PARTIAL.fullmatch(text)
    if not partial:
        return text
    return f"{partial[1]}-{partial[2]}-15" if partial[2] else f"{partial[1]}-07-01"
