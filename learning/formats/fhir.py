"""FHIR resources as facts about people: Patient, Observation and Condition, from a bundle, NDJSON, or a zip file.

A resource is attributed to a patient only if it refers to that patient, by FHIR's rules for references. Resources that
cannot be attributed, or that do not assert anything, are left out and counted along with the reason.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from common.sentences import Sentence
from common.sentences import gettext_noop as _
from learning.formats.extracts import BORN, SEX, YES, Fact, condition_name, day, filled, named
from learning.formats.files import members, open_content
from learning.formats.rows import Balance, DataError
from learning.formats.table import text_of

_NOT_SO = {"entered-in-error", "refuted", "cancelled"}
_UNSURE = {"unconfirmed", "provisional", "differential"}
#: ICD-10-GM diagnostic certainties whose codes are left out: excluded, suspected, status post. Only G (confirmed) is
#: used.
_CERTAINTY = re.compile(r"diagnosesicherheit", re.IGNORECASE)
_NOT_CONFIRMED = {"A", "V", "Z"}
_READ = ("Patient", "Observation", "Condition")
_REFERENCE = re.compile(r"(?:(?P<base>[a-z][a-z0-9+.-]*://\S+?)/)?(?P<kind>[A-Za-z]+)/(?P<id>[^/?#\s]+)")
_FULL_URL = re.compile(r"(?P<base>[a-z][a-z0-9+.-]*://\S+?)/[A-Za-z]+/[^/?#\s]+")
_HISTORY = re.compile(r"/_history/[^/]*$")
#: Code systems whose codes become column names unchanged; other codes are followed by the system's name.
_WELL_KNOWN = (
    ("http://loinc.org", "https://loinc.org", "urn:oid:2.16.840.1.113883.6.1"),
    ("http://snomed.info/sct", "https://snomed.info/sct", "urn:oid:2.16.840.1.113883.6.96"),
)

_NO_SUBJECT = _("The resource does not say which patient it is about.")
_NO_PATIENT = _("The resource is about something other than a patient.")
_UNKNOWN_PATIENT = _("The resource's patient is not in the file.")
_OTHER_SERVER = _("The resource's patient is on another server.")
_CONTRADICTION = _("The resource's reference and its identifier name different patients.")
_MERGED_AWAY = _("The resource's patient was merged into another patient, who is not in the file.")
_ERROR = _("The resource is marked as entered in error, cancelled or refuted.")
_NOT_SURE = _("The diagnosis is not confirmed: suspected, excluded, differential or a former condition.")
_NO_CODE = _("The entry has no code.")
_NO_VALUE = _("The entry has no value.")
_LIMIT = _("The entry's value is only a limit, such as “< 5”.")
_OLD = _("The resource is a copy or an older version of another resource in the file.")
_UNCLEAR = _("The file contains several versions of the resource and does not say which is the latest.")
_DELETED = _("The resource was deleted.")
_NOT_READ = _("Resources of this kind are not read.")
_NO_ID = _("The resource has no id.")
_OTHER_FOCUS = _("The resource is not about the patient but about something related to the patient (its focus).")
_REPLACED = _("The patient was merged into another patient.")


class _Resource(NamedTuple):
    """Resource with its position in the file (from 1), its URL, and whether it was deleted."""

    place: int
    url: str
    content: dict[str, Any]
    deleted: bool = False

    @property
    def kind(self) -> str:
        return str(self.content.get("resourceType", ""))

    @property
    def id(self) -> str:
        value = self.content.get("id")
        return str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""

    @property
    def base(self) -> str:
        """URL of the resource's server; empty if the resource's own URL does not contain it."""
        found = _FULL_URL.fullmatch(_HISTORY.sub("", self.url))
        return found["base"].rstrip("/") if found else ""


@dataclass
class _Patients:
    """Patients of a file, found by URL, by server and id, or by identifier."""

    by_url: dict[str, str] = field(default_factory=dict)
    by_id: dict[str, str] = field(default_factory=dict)
    """Each patient's server, by id."""
    by_identifier: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    """Reference to the record that replaced a patient, by the patient's id."""
    servers: set[str] = field(default_factory=set)
    """Servers that occur in the file's references."""

    def add(self, resource: _Resource) -> None:
        name, base = resource.id, resource.base
        if name in self.by_id:
            problem = Sentence(_("The file contains two patients with the id “%(name)s”."), name=name)
            raise DataError(problem, _("Import the files of each server into a separate study, or as a separate file."))
        self.by_id[name] = base
        if resource.url:
            self.by_url[_HISTORY.sub("", resource.url)] = name
        for each in map(_dict, _list(resource.content.get("identifier"))):
            if key := _identifier(each):
                self.by_identifier.setdefault(key, set()).add(name)
        for link in map(_dict, _list(resource.content.get("link"))):
            if link.get("type") == "replaced-by":
                self.merged[name] = str(_dict(link.get("other")).get("reference", ""))

    def subject(self, resource: _Resource) -> tuple[str, str]:
        """Return the id of the patient that a resource is about, or an empty id and the reason."""
        subject = _dict(resource.content.get("subject"))
        reference = subject.get("reference")
        by_reference = self._referred(reference.strip(), resource.base) if isinstance(reference, str) else ("", "")
        key = _identifier(_dict(subject.get("identifier")))
        by_identifier = self._only(self.by_identifier.get(key, set())) if key else ""
        found, reason = by_reference
        if not reference:
            found, reason = by_identifier, _UNKNOWN_PATIENT if key else _NO_SUBJECT
        elif found and by_identifier and found != by_identifier:
            return "", _CONTRADICTION
        return self._latest(found) if found else ("", reason)

    def _referred(self, reference: str, base: str) -> tuple[str, str]:
        address = _HISTORY.sub("", reference)
        if address in self.by_url:
            return self.by_url[address], ""
        if "?" in address:
            return self._conditional(address)
        found = _REFERENCE.fullmatch(address)
        if not found:
            return "", _UNKNOWN_PATIENT if address.startswith("urn:") else _NO_SUBJECT
        if found["kind"] != "Patient":
            return "", _NO_PATIENT
        name = found["id"]
        if name not in self.by_id:
            return "", _UNKNOWN_PATIENT
        server, named_server = self.by_id[name], (found["base"] or base).rstrip("/")
        if not named_server or named_server == server or (not server and (not found["base"] or len(self.servers) == 1)):
            return name, ""
        return "", _OTHER_SERVER

    def _conditional(self, reference: str) -> tuple[str, str]:
        kind, _mark, query = reference.partition("?")
        searched = parse_qsl(query, keep_blank_values=True)
        if kind.rpartition("/")[2] != "Patient":
            return "", _NO_PATIENT
        match searched:
            case [("identifier", value)]:
                system, bar, code = value.partition("|")
                found = self._only(self.by_identifier.get((system, code) if bar else ("", system), set()))
                return found, "" if found else _UNKNOWN_PATIENT
            case [("_id", name)]:
                return (name, "") if name in self.by_id else ("", _UNKNOWN_PATIENT)
        return "", _UNKNOWN_PATIENT

    def _latest(self, name: str) -> tuple[str, str]:
        """Return the patient into which another patient was merged, following any number of merges."""
        passed = {name}
        while name in self.merged:
            name, _reason = self._referred(self.merged[name], self.by_id[name])
            if not name or name in passed:
                return "", _MERGED_AWAY
            passed.add(name)
        return name, ""

    @staticmethod
    def _only(found: set[str]) -> str:
        return next(iter(found)) if len(found) == 1 else ""


def fhir_facts(path: Path, balance: Balance) -> Iterator[Fact]:
    """Yield facts from the Patient, Observation and Condition resources of a file. The balance counts every resource.

    Raises:
        DataError: The file is not valid JSON, contains only one of several pages, or contains no patient or duplicate
            patient ids.
    """
    resources = _latest_versions(list(_resources(path, balance)), balance)
    patients = _Patients()
    for resource in resources:
        if resource.kind == "Patient" and resource.id:
            patients.add(resource)
        elif isinstance(reference := _dict(resource.content.get("subject")).get("reference"), str):
            found = _REFERENCE.fullmatch(_HISTORY.sub("", reference.strip()))
            if found and found["base"] and found["kind"] == "Patient":
                patients.servers.add(found["base"].rstrip("/"))
    if not patients.by_id:
        raise DataError(_("The file contains no FHIR patients."), _("Add the Patient resources."))
    for resource in resources:
        facts, reason = _read(resource, patients)
        if reason:
            balance.leave_out(_part(resource), reason, place=resource.place)
        else:
            balance.use(_part(resource))
            yield from facts


def _read(resource: _Resource, patients: _Patients) -> tuple[list[Fact], str]:
    """Return the facts stated by a resource, or the reason why it is left out."""
    content = resource.content
    if resource.kind == "Patient":
        if not resource.id:
            return [], _NO_ID
        if resource.id in patients.merged:
            return [], _REPLACED
        values = {SEX: content.get("gender"), BORN: day(content.get("birthDate"))}
        return list(filled(resource.id, "", values)), ""
    if resource.kind not in _READ:
        return [], _NOT_READ
    person, reason = patients.subject(resource)
    if not person:
        return [], reason
    verified = {each for _system, each in _codes(content.get("verificationStatus"))}
    if {str(content.get("status")), *verified} & _NOT_SO:
        return [], _ERROR
    if resource.kind == "Observation":
        if _list(content.get("focus")):
            return [], _OTHER_FOCUS
        return _measurements(content, person)
    codings = list(map(_dict, _list(_dict(content.get("code")).get("coding"))))
    if verified & _UNSURE or any(_certainty(each) in _NOT_CONFIRMED for each in (content, *codings)):
        return [], _NOT_SURE
    names = condition_name(
        [(str(each.get("system", "")), str(each["code"]).strip()) for each in codings if each.get("code")]
    )
    moment = _moment(content, "onsetDateTime", "onsetPeriod", "recordedDate")
    return [Fact(person, moment, name, YES) for name in names], "" if names else _NO_CODE


def _measurements(content: Mapping[str, Any], person: str) -> tuple[list[Fact], str]:
    """Return the values of an observation and of its components, or the reason why there are none."""
    moment = _moment(content, "effectiveDateTime", "effectivePeriod", "effectiveInstant", "issued")
    facts, reasons = [], Counter[str]()
    for part in map(_dict, (content, *_list(content.get("component")))):
        name, value, reason = _measured(part)
        found = list(filled(person, moment, {name: value})) if not reason else []
        facts += found
        if not found:
            reasons[reason or _NO_VALUE] += 1
    if facts:
        return facts, ""
    return [], _LIMIT if _LIMIT in reasons else _NO_CODE if _NO_CODE in reasons else _NO_VALUE


def _measured(part: Mapping[str, Any]) -> tuple[str, object, str]:
    """Return the name and value of an observation or a component, or the reason why it has no value."""
    code, quantity = _code(part.get("code")), _dict(part.get("valueQuantity"))
    if not code:
        return "", None, _NO_CODE
    if quantity.get("comparator"):
        return "", None, _LIMIT
    values = (
        quantity.get("value"),
        _code(part.get("valueCodeableConcept")) or None,
        *(part.get(f"value{kind}") for kind in ("Integer", "String", "DateTime")),
    )
    value = next((each for each in values if each is not None), None)
    if value is None and isinstance(part.get("valueBoolean"), bool):
        value = YES if part["valueBoolean"] else "no"
    if value is None:
        return "", None, _NO_VALUE
    return named(code, str(quantity.get("code") or quantity.get("unit") or "").strip()), value, ""


def _latest_versions(resources: list[_Resource], balance: Balance) -> list[_Resource]:
    """Return the latest version of each resource unless it was deleted. All other versions are left out."""
    versions: dict[tuple[str, ...], list[_Resource]] = {}
    for resource in resources:
        key = (resource.kind, resource.base, resource.id) if resource.id else ("", "", str(resource.place))
        versions.setdefault(key, []).append(resource)
    kept = []
    for same in versions.values():
        latest = _latest(same)
        for each in same:
            if each is latest:
                kept.append(each)
                continue
            reason = _DELETED if any(other.deleted for other in same) else _OLD
            if latest is None and reason == _OLD:
                if each.kind == "Patient":
                    problem = Sentence(_("The file contains two patients with the id “%(name)s”."), name=each.id)
                    raise DataError(problem, _("Remove one of the patients."))
                reason = _UNCLEAR
            balance.leave_out(_part(each), reason, place=each.place)
    return sorted(kept)


def _latest(same: list[_Resource]) -> _Resource | None:
    """Return the latest of several versions; None if it was deleted, or if it is unclear which is the latest."""
    if any(each.deleted for each in same):
        return None
    first = same[0]
    if all(each.content == first.content for each in same):
        return first
    versions = [_version(each) for each in same]
    highest = max(versions)
    return same[versions.index(highest)] if versions.count(highest) == 1 and highest > (-1, "") else None


def _version(resource: _Resource) -> tuple[int, str]:
    meta = _dict(resource.content.get("meta"))
    number = str(meta.get("versionId", ""))
    return int(number) if number.isascii() and number.isdigit() else -1, str(meta.get("lastUpdated", ""))


def _resources(path: Path, balance: Balance) -> Iterator[_Resource]:
    """Yield every resource of a file with its position."""
    names: list[str | None] = [None]
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = list(members(archive))
    place, pages, last_pages, wanted, matches = 0, 0, 0, 0, 0
    for document in (document for name in names for document in _documents(path, name)):
        entries = [{"resource": document}]
        is_history = False
        if document.get("resourceType") == "Bundle":
            entries = list(map(_dict, _list(document.get("entry"))))
            is_history = document.get("type") == "history"
            if document.get("type") == "searchset":
                links = {str(each.get("relation")) for each in map(_dict, _list(document.get("link")))}
                pages, last_pages = pages + 1, last_pages + ("next" not in links)
                if isinstance(total := document.get("total"), int):
                    wanted = max(wanted, total)
                modes = (str(_dict(entry.get("search")).get("mode", "match")) for entry in entries)
                matches += sum(mode == "match" for mode in modes)
        newest: set[str] = set()
        for entry in entries:
            place += 1
            resource = _entry(place, entry)
            balance.see(_part(resource))
            key = f"{resource.kind}/{resource.id}" if resource.id else f"#{place}"
            if is_history and key in newest:  # a history is ordered from newest to oldest
                balance.leave_out(_part(resource), _OLD, place=place)
                continue
            newest.add(key)
            yield resource
    if pages and (not last_pages or matches < wanted):
        text = _("The file contains only some pages of a search.")
        raise DataError(text, _("Export all pages, or use FHIR's bulk export."))


def _entry(place: int, entry: Mapping[str, Any]) -> _Resource:
    url, content = str(entry.get("fullUrl", "")), _dict(entry.get("resource"))
    request = _dict(entry.get("request"))
    if request.get("method") != "DELETE":
        return _Resource(place, url, content)
    kind, _slash, name = str(request.get("url", "")).strip("/").partition("/")
    return _Resource(place, url, content or {"resourceType": kind, "id": name}, deleted=True)


def _documents(path: Path, member: str | None) -> Iterator[dict[str, Any]]:
    with open_content(path, member) as content:
        text = text_of(content.stream).read()
    decoder, place = json.JSONDecoder(), _next(text, 0)
    while place < len(text):
        try:
            document, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError) as error:
            problem = Sentence(_("The file is not valid JSON (%(error)s)."), error=error)
            raise DataError(problem, _("Export the file again.")) from error
        place = _next(text, place)
        for each in document if isinstance(document, list) else [document]:
            yield _dict(each)


def _next(text: str, place: int) -> int:
    """Return the position where the next document begins."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _part(resource: _Resource) -> str:
    return resource.kind or _("without a resource type")


def _identifier(identifier: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the system and value of an identifier; None if it has no value."""
    value = str(identifier.get("value") or "").strip()
    return (str(identifier.get("system") or "").strip(), value) if value else None


def _certainty(content: Mapping[str, Any]) -> str:
    """Return the ICD-10-GM diagnostic certainty of a coding or a condition; empty if it has none."""
    for extension in map(_dict, _list(content.get("extension"))):
        if _CERTAINTY.search(str(extension.get("url", ""))):
            return str(_dict(extension.get("valueCoding")).get("code") or extension.get("valueCode") or "").upper()
    return ""


def _moment(resource: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = resource.get(name)
        if isinstance(value, dict):
            value = value.get("start")
        if value:
            return day(value)
    return ""


def _code(concept: Any) -> str:
    """Return a concept's name from its LOINC, SNOMED or alphabetically first other code, or else from its text."""
    codings = _codes(concept)
    for systems in _WELL_KNOWN:
        if found := sorted(code for system, code in codings if system in systems):
            return found[0]
    if codings:
        system, code = min(codings)
        place = re.sub(r"^[a-z]+:(//)?|/+$", "", system)
        return f"{code} ({place})" if place else code
    return str(_dict(concept).get("text") or "").strip()


def _codes(concept: Any) -> list[tuple[str, str]]:
    codings = map(_dict, _list(_dict(concept).get("coding")))
    return [(str(each.get("system") or ""), str(each["code"]).strip()) for each in codings if each.get("code")]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
