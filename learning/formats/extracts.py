"""Records of health systems as one flat table: FHIR resources, and an extract of the OMOP common data model.

Each row is what is known of a person at a moment; the schema says how the rows of a person become one. Which columns
there are follows from the file; those that a schema does not declare are left out, and those that it declares and the
file does not hold are not known.
"""

from __future__ import annotations

import csv
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.codes import CODE_SYSTEMS
from learning.formats.files import members, open_content
from learning.formats.rows import DataError
from learning.formats.table import text_of

PERSON, MOMENT, SEX, BORN = "person", "date", "sex", "born"
"""Columns that every extract has: pseudonym, moment, sex and date of birth."""
_CONDITION = "condition: "
_YES = "yes"
_OMOP = {"person": "person.csv", "measurement": "measurement.csv", "condition": "condition_occurrence.csv"}
_SEXES = {"8507": "male", "8532": "female"}
_NOT_SO = ("entered-in-error", "refuted", "cancelled")
_PARTIAL = re.compile(r"(\d{4})(?:-(\d{2}))?", re.ASCII)


class Fact(NamedTuple):
    """Something that is known of a person at a moment; the moment may be empty."""

    person: str
    moment: str
    column: str
    value: object


class Extract(NamedTuple):
    """A flat table.

    Attributes:
        names: Of the columns; the first are those that every extract has.
        rows: Values by column.
        counted: Columns of conditions, of which is known that they were recorded, and nothing where they were not.
    """

    names: list[str]
    rows: list[dict[str, object]]
    counted: list[str]


def flat(facts: Iterable[Fact]) -> Extract:
    """A row for each person and moment; one more where a column has two values then.

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


def fhir_facts(path: Path) -> Iterator[Fact]:
    """Facts of Patient, Observation and Condition resources: a bundle, NDJSON, or a zip file of both.

    Raises:
        DataError: the file is no JSON, or holds no patient.
    """
    resources = list(_resources(path))
    patients: dict[str, str] = {}
    for url, resource in resources:
        if resource.get("resourceType") == "Patient" and resource.get("id"):
            patients |= dict.fromkeys((url, f"Patient/{resource['id']}"), str(resource["id"]))
    if not patients:
        raise DataError(_("The file holds no FHIR patients."), _("Add the Patient resources."))
    for _url, resource in resources:
        kind = resource.get("resourceType")
        if kind == "Patient" and resource.get("id"):
            person = str(resource["id"])
            yield from _filled(person, "", {SEX: resource.get("gender"), BORN: _day(resource.get("birthDate"))})
            continue
        person = patients.get(_dict(resource.get("subject")).get("reference", ""), "")
        status = {str(resource.get("status")), *_codes(resource.get("verificationStatus"))}
        if not person or status & set(_NOT_SO):
            continue
        if kind == "Observation":
            moment = _moment(resource, "effectiveDateTime", "effectivePeriod", "effectiveInstant", "issued")
            for part in (resource, *_list(resource.get("component"))):
                yield from _filled(person, moment, dict([_measured(part)]))
        elif kind == "Condition":
            moment = _moment(resource, "onsetDateTime", "onsetPeriod", "recordedDate")
            codings = _list(_dict(resource.get("code")).get("coding"))
            if name := _condition([(str(each.get("system", "")), str(each.get("code", ""))) for each in codings]):
                yield Fact(person, moment, name, _YES)


def omop_facts(path: Path) -> Iterator[Fact]:
    """Facts of the tables person, measurement and condition_occurrence in a zip file, with those of concept if there.

    Raises:
        DataError: a table is no CSV, or lacks a column.
    """
    with zipfile.ZipFile(path) as archive:
        names = {PurePosixPath(name).name.lower(): name for name in members(archive)}
    concepts = {}
    for row in _table(path, names.get("concept.csv")):
        concepts[row["concept_id"]] = (row.get("vocabulary_id", ""), row["concept_code"])

    def coded(concept: str) -> str:
        return concepts.get(concept, ("", concept))[1]

    for row in _table(path, names[_OMOP["person"]]):
        born = [row.get(name, "") for name in ("year_of_birth", "month_of_birth", "day_of_birth")]
        day = row.get("birth_datetime") or "-".join(part.zfill(2) for part in born if part)
        sex = _SEXES.get(row.get("gender_concept_id", ""), "other")
        yield from _filled(row["person_id"], "", {SEX: sex, BORN: _day(day)})
    for row in _table(path, names.get(_OMOP["measurement"])):
        moment = row.get("measurement_datetime") or row.get("measurement_date", "")
        unit = coded(row.get("unit_concept_id", "")) if row.get("unit_concept_id", "0") not in ("", "0") else ""
        name = _named(coded(row["measurement_concept_id"]), row.get("unit_source_value") or unit)
        concept = row.get("value_as_concept_id", "")
        value = row.get("value_as_number") or ("" if concept == "0" else coded(concept))
        yield from _filled(row["person_id"], moment, {name: value})
    for row in _table(path, names.get(_OMOP["condition"])):
        concept = row["condition_concept_id"]
        codings = [("icd10", row.get("condition_source_value", "")), ("", coded(concept))]
        if name := _condition(codings):
            yield Fact(row["person_id"], row.get("condition_start_date", ""), name, _YES)


def _resources(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Address and content of every resource."""
    if not zipfile.is_zipfile(path):
        yield from _documents(path, None)
        return
    with zipfile.ZipFile(path) as archive:
        names = members(archive)
    for name in names:
        yield from _documents(path, name)


def _documents(path: Path, member: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    with open_content(path, member) as content:
        text = text_of(content.stream).read()
    decoder, place = json.JSONDecoder(), 0
    while (place := _next(text, place)) < len(text):
        try:
            document, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError) as error:
            problem = Sentence(_("The file is no sound JSON (%(error)s)."), error=error)
            raise DataError(problem, _("Export it anew.")) from error
        if _dict(document).get("resourceType") == "Bundle":
            for entry in map(_dict, _list(document.get("entry"))):
                yield str(entry.get("fullUrl", "")), _dict(entry.get("resource"))
        else:
            yield "", _dict(document)


def _next(text: str, place: int) -> int:
    """Where the next document begins."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _table(path: Path, member: str | None) -> Iterator[dict[str, str]]:
    """Rows of a table, whose names are in lower case; none if there is no such table."""
    if member is None:
        return
    with open_content(path, member) as content:
        text = text_of(content.stream)
        first = text.readline()
        names = [name.strip().strip('"').lower() for name in first.split("\t" if "\t" in first else ",")]
        for cells in csv.reader(text, delimiter="\t" if "\t" in first else ","):
            if len(cells) == len(names):
                yield _Row(zip(names, map(str.strip, cells), strict=True), PurePosixPath(member).name)


class _Row(dict[str, str]):
    """A row that says which column its table lacks."""

    def __init__(self, cells: Iterable[tuple[str, str]], table: str) -> None:
        super().__init__(cells)
        self._table = table

    def __missing__(self, name: str) -> str:
        problem = Sentence(_("The table %(table)s has no column %(name)s."), table=self._table, name=name)
        raise DataError(problem, _("Export it with the columns of OMOP's common data model."))


def _filled(person: str, moment: str, values: Mapping[str, object]) -> Iterator[Fact]:
    for column, value in values.items():
        if column and value not in (None, ""):
            yield Fact(person, moment, column, value)


def _measured(part: Any) -> tuple[str, object]:
    """Name and value of an observation, or of a component; both empty where it has none."""
    part = _dict(part)
    codes, quantity = _codes(part.get("code")), _dict(part.get("valueQuantity"))
    values = (
        quantity.get("value"),
        next(iter(_codes(part.get("valueCodeableConcept"))), None),
        *(part.get(f"value{kind}") for kind in ("Integer", "String", "DateTime")),
    )
    value = next((each for each in values if each is not None), None)
    if value is None and part.get("valueBoolean") is not None:
        value = _YES if part["valueBoolean"] else "no"
    unit = quantity.get("code") or quantity.get("unit") or ""
    return (_named(codes[0], str(unit)), value) if codes else ("", None)


def _named(code: str, unit: str) -> str:
    """Name of a column of measurements: those in other units are others."""
    return f"{code} [{unit}]" if unit else code


def _condition(codings: Iterable[tuple[str, str]]) -> str:
    """Name of the column of a condition: its chapter where a code is one of ICD, else its code."""
    codings = [(system, code) for system, code in codings if code]
    for system, code in codings:
        for name, url in (("icd10", "icd-?10"), ("icd9", "icd-?9")):
            place = CODE_SYSTEMS[name].place(code) if re.search(url, system, re.IGNORECASE) else None
            if place is not None:
                return f"{_CONDITION}{CODE_SYSTEMS[name].names[place]}"
    return f"{_CONDITION}{codings[-1][1]}" if codings else ""


def _moment(resource: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = resource.get(name)
        if isinstance(value, dict):
            value = value.get("start")
        if value:
            return _day(value)
    return ""


def _day(value: object) -> str:
    """A date; of a year or a month its middle."""
    text = "" if value is None else str(value)
    partial = _PARTIAL.fullmatch(text)
    if not partial:
        return text
    return f"{partial[1]}-{partial[2]}-15" if partial[2] else f"{partial[1]}-07-01"


def _codes(concept: Any) -> list[str]:
    concept = _dict(concept)
    codes = [str(each["code"]) for each in map(_dict, _list(concept.get("coding"))) if each.get("code")]
    return codes or ([str(concept["text"])] if concept.get("text") else [])


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
