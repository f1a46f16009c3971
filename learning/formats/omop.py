"""Tables of the OMOP common data model as facts about people: `person`, `measurement` and `condition_occurrence`.

If the extract has a table ``concept``, it defines the meaning of concept numbers. Rows that lack a person, concept or
value, or cannot be read, are left out and counted along with the reason.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.extracts import BORN, SEX, YES, Fact, condition_name, day, filled, named
from learning.formats.files import check_different, members, open_content
from learning.formats.rows import Balance, DataError
from learning.formats.table import text_of

_PERSON, _MEASUREMENT, _CONDITION, _CONCEPT = "person", "measurement", "condition_occurrence", "concept"
#: Concepts of sex; 0 and 8551 mean unknown.
_SEXES = {"8507": "male", "8532": "female", "8521": "other", "8570": "other"}
#: Concept of the operator “=”.
_EQUAL = "4172703"
_NONE = ("", "0")
#: Vocabularies whose codes become column names unchanged; other codes are followed by the vocabulary's name.
_WELL_KNOWN = ("LOINC", "SNOMED", "UCUM", "")

_WIDTH = _("The row has a different number of cells from the header.")
_NO_PERSON = _("The row does not name a person.")
_UNMAPPED = _("The row has no standard concept (0), and its source concept is not in the vocabulary.")
_NO_VALUE = _("The entry has no value.")
_LIMIT = _("The entry's value is only a limit, such as “< 5”.")


@dataclass(frozen=True)
class _Concept:
    vocabulary: str
    code: str

    @property
    def name(self) -> str:
        """Name of a concept: its code, followed by its vocabulary unless that is a well-known one."""
        return self.code if self.vocabulary in _WELL_KNOWN else f"{self.code} ({self.vocabulary})"


class _Row(NamedTuple):
    """Row of a table: its cells by lower-case column name, and its 1-based line in the file."""

    table: str
    place: int
    cells: dict[str, str]

    def required(self, name: str) -> str:
        """Return the cell of a column that the table is required to have.

        Raises:
            DataError: The table has no such column.
        """
        if name not in self.cells:
            problem = Sentence(_("The table %(table)s has no column %(name)s."), table=f"{self.table}.csv", name=name)
            raise DataError(problem, _("Export the table with the columns of the OMOP Common Data Model."))
        return self.cells[name]

    def get(self, name: str) -> str:
        """Return the cell of a column that may be missing."""
        return self.cells.get(name, "")

    def number(self, name: str) -> str:
        """Return the concept or person number in a column; some programs write 1 as 1.0."""
        return self.cells.get(name, "").removesuffix(".0")


class _Vocabulary(dict[str, _Concept]):
    """Concepts of the table ``concept`` by number."""

    def of(self, number: str) -> _Concept | None:
        """Return the concept with this number (None for 0). A concept missing from the table is named by its number."""
        return None if number in _NONE else self.get(number) or _Concept("", number)

    def mapped(self, row: _Row, standard: str, source: str) -> _Concept | None:
        """Return the standard concept of a row, or else its source concept if the vocabulary contains it."""
        return self.of(row.number(standard)) or self.get(row.number(source))


def omop_facts(path: Path, balance: Balance) -> Iterator[Fact]:
    """Yield facts from the tables of a zip file. The balance counts every row of the three tables.

    Raises:
        DataError: A table lacks a required column, or occurs twice.
    """
    with zipfile.ZipFile(path) as archive:
        tables = {PurePosixPath(name).name.lower(): name for name in members(archive)}
        check_different(PurePosixPath(name).name.lower() for name in members(archive))

    def rows(table: str) -> Iterator[_Row]:
        if member := tables.get(f"{table}.csv"):
            yield from _table(path, member, table, balance)

    for name, member in tables.items():
        if name.removesuffix(".csv") not in (_CONCEPT, _PERSON, _MEASUREMENT, _CONDITION):
            balance.see(PurePosixPath(member).name)
            balance.leave_out(PurePosixPath(member).name, _("Tables of this kind are not read."))
    vocabulary = _Vocabulary()
    for row in rows(_CONCEPT):
        concept = _Concept(row.get("vocabulary_id"), row.required("concept_code"))
        vocabulary[row.required("concept_id").removesuffix(".0")] = concept
        balance.use(_CONCEPT)
    for table, read in ((_PERSON, _person), (_MEASUREMENT, _measurement), (_CONDITION, _condition)):
        for row in rows(table):
            row.required("person_id")
            person = row.number("person_id")
            facts, reason = read(row, person, vocabulary) if person else ([], _NO_PERSON)
            if reason:
                balance.leave_out(table, reason, place=row.place)
            else:
                balance.use(table)
                yield from facts


def _person(row: _Row, person: str, _vocabulary: _Vocabulary) -> tuple[list[Fact], str]:
    year, month, date = (row.number(f"{name}_of_birth") for name in ("year", "month", "day"))
    born = row.get("birth_datetime") or "-".join(
        part.zfill(2) for part in ((year, month, date) if month else (year,)) if part
    )
    sex = _SEXES.get(row.number("gender_concept_id"), "")
    return list(filled(person, "", {SEX: sex, BORN: day(born)})), ""


def _measurement(row: _Row, person: str, vocabulary: _Vocabulary) -> tuple[list[Fact], str]:
    row.required("measurement_concept_id")
    concept = vocabulary.mapped(row, "measurement_concept_id", "measurement_source_concept_id")
    if concept is None:
        return [], _UNMAPPED
    if row.number("operator_concept_id") not in (*_NONE, _EQUAL):
        return [], _LIMIT
    answer = vocabulary.of(row.number("value_as_concept_id"))
    value = row.get("value_as_number") or (answer.name if answer else "")
    if not value:
        return [], _NO_VALUE
    unit = vocabulary.get(row.number("unit_concept_id"))
    name = named(concept.name, unit.name if unit else row.get("unit_source_value"))
    moment = row.get("measurement_datetime") or row.get("measurement_date")
    return [Fact(person, moment, name, value)], ""


def _condition(row: _Row, person: str, vocabulary: _Vocabulary) -> tuple[list[Fact], str]:
    row.required("condition_concept_id")
    source = vocabulary.get(row.number("condition_source_concept_id"))
    concepts = [each for each in (source, vocabulary.of(row.number("condition_concept_id"))) if each]
    names = condition_name([(each.vocabulary, each.code) for each in concepts])
    return [Fact(person, row.get("condition_start_date"), name, YES) for name in names], "" if names else _UNMAPPED


def _table(path: Path, member: str, table: str, balance: Balance) -> Iterator[_Row]:
    """Yield the readable rows of a table; leave out and count all others.

    In the model's tab-separated tables, quotation marks have no special meaning, and cells never span several lines.
    """
    with open_content(path, member) as content:
        text = text_of(content.stream)
        first = text.readline()
        tabs = "\t" in first
        names = [name.strip().strip('"').lower() for name in first.rstrip("\r\n").split("\t" if tabs else ",")]
        for place, line in enumerate(text, 2):
            line = line.rstrip("\r\n")
            balance.see(table)
            if not line.strip():
                balance.leave_out(table, _("The line is empty."), place=place)
                continue
            cells = line.split("\t" if tabs else ",")
            if not tabs:
                with suppress(csv.Error):  # an unclosed quotation mark is part of the text
                    cells = next(csv.reader([line], strict=True))
            if len(cells) != len(names):
                balance.leave_out(table, _WIDTH, place=place)
            else:
                yield _Row(table, place, dict(zip(names, map(str.strip, cells), strict=True)))
