"""Holders' pseudonyms: lists, and look-up by canonical spelling or, after an erasure, by a commitment to the spelling.

People whose records were erased keep their account, so that spent budget remains spent if they return under the same
pseudonym. The pseudonym is therefore replaced by its HMAC under a key of the study. The key is in private storage and
not in the database, so someone with only the database cannot try pseudonyms. The key is deleted together with the last
private record of the study; after that, no one can try pseudonyms.

A list of people to invite has one pseudonym per line, or is a table whose first line names its columns.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, islice

import numpy as np
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from numpy.typing import NDArray

from common.artifacts import arrays_delete, arrays_load, arrays_save
from common.distinct import are_among, distinct
from common.identities import ERASED, PseudonymError, canonical, former_spellings, look_alikes, resemblance, spelling
from common.reading import UnreadableError, table_read
from common.sentences import Sentence
from consent.models import Circumstance, DataHolder, Study
from consent.people.circumstances import REPRESENTED

_AT_ONCE = 2000
_HASHED_AT_ONCE = 10_000


def _key_name(study_id: int) -> str:
    return f"commitments/{study_id}.npz"


def _key(study: Study) -> bytes:
    try:
        return arrays_load(_key_name(study.pk), "key")["key"].tobytes()
    except FileNotFoundError:
        raise ValidationError(
            _(
                "The file with the key to the pseudonyms of erased people is missing from private storage. Without "
                "it, people who return could be mistaken for new ones and promised too much. Restore the file."
            )
        ) from None


def key_make(study: Study) -> None:
    """Create a study's key if it has none, before the first erasure; the caller holds the study's lock."""
    if DataHolder.objects.filter(study=study, erased_at__isnull=False).exists():
        return
    key = np.frombuffer(secrets.token_bytes(32), dtype=np.uint8)
    arrays_save(_key_name(study.pk), key=key)


def key_delete(study: Study) -> None:
    """Delete the key permanently; after this, erased holders of the study cannot be found by their pseudonyms."""
    arrays_delete(_key_name(study.pk))


def commitment(study: Study, pseudonyms: Iterable[str]) -> Iterator[str]:
    """Yield the commitment to each pseudonym under the key of its study."""
    key = _key(study)
    for pseudonym in pseudonyms:
        yield ERASED + hmac.new(key, pseudonym.encode(), hashlib.sha256).hexdigest()


def holders_by_pseudonym(study: Study, pseudonyms: Iterable[str]) -> dict[str, int]:
    """Return the ids of a study's holders by requested pseudonym; unknown pseudonyms are left out.

    A pseudonym registered in exactly the requested spelling takes precedence, because it may be older than the spelling
    rules.

    Raises:
        ValidationError: the study has erased records, but the key to pseudonyms is missing.
    """
    names = list(dict.fromkeys(pseudonyms))
    ids = _ids(study, names)
    spelled = {name: spelling(name) for name in names if name not in ids}
    known = _ids(study, list(dict.fromkeys(each for name, each in spelled.items() if each != name)))
    ids |= {name: known[each] for name, each in spelled.items() if each in known}
    unknown = {name: each for name, each in spelled.items() if name not in ids}
    if unknown and not study.expired_at and DataHolder.objects.filter(study=study, erased_at__isnull=False).exists():
        pairs = [(former, name) for name, each in unknown.items() for former in {name, *former_spellings(each)}]
        committed = dict(zip(commitment(study, (former for former, _name in pairs)), pairs, strict=True))
        ids |= {committed[digest][1]: pk for digest, pk in _ids(study, list(committed)).items()}
    return ids


def holder_by_pseudonym(study: Study, pseudonym: str) -> DataHolder | None:
    """Return the holder of a study with this pseudonym, or None."""
    pk = holders_by_pseudonym(study, [pseudonym]).get(pseudonym)
    return None if pk is None else DataHolder.objects.get(pk=pk)


def holder_named(study: Study, pseudonym: str) -> DataHolder:
    """Return the holder of a study with a typed pseudonym.

    Raises:
        ValidationError: the pseudonym is invalid, or unknown in the study.
    """
    holder = holder_by_pseudonym(study, pseudonym)
    if holder is None:
        raise ValidationError({"pseudonym": unknown_message(pseudonym)})
    return holder


def look_alikes_in(study: Study, pseudonyms: Collection[str]) -> list[tuple[str, ...]]:
    """Return groups of similar-looking pseudonyms, each with at least one that has not been registered yet.

    The other pseudonyms in a group are also in the list or are already registered. Because there may be millions of
    pseudonyms, only their hashes and the similar names are kept in memory.
    """
    registered = DataHolder.objects.filter(study=study, erased_at=None).order_by().values_list("pseudonym", flat=True)
    looks = _looks_shared(study, pseudonyms, registered)
    if not looks:
        return []
    pairs = ((name, spelling(name)) for name in pseudonyms)
    names = {name: spelled for name, spelled in pairs if hash(resemblance(spelled)) in looks}
    known = holders_by_pseudonym(study, names)
    new = {spelled for name, spelled in names.items() if name not in known}
    return look_alikes(new, chain(names.values(), registered.iterator(chunk_size=10_000)))


def _looks_shared(study: Study, pseudonyms: Collection[str], registered: QuerySet[DataHolder, str]) -> set[int]:
    """Return the `resemblance` hashes shared by different pseudonyms, at least one of them new."""
    names, looks = np.empty((2, len(pseudonyms)), np.int64)
    is_new, count, rest = np.empty(len(pseudonyms), bool), 0, iter(pseudonyms)
    while some := list(dict.fromkeys(islice(rest, _HASHED_AT_ONCE))):
        known = holders_by_pseudonym(study, some)
        spelled, part = [spelling(name) for name in some], slice(count, count + len(some))
        names[part], looks[part] = list(map(hash, spelled)), _looks(spelled)
        is_new[part] = [name not in known for name in some]
        count += len(some)
    names, looks = names[:count], looks[:count]
    new = distinct(looks[is_new[:count]])
    if not len(new):
        return set()
    shared, rest = set(), registered.iterator(chunk_size=10_000)
    while some := list(islice(rest, _HASHED_AT_ONCE)):
        others = _looks(some)
        shared.update(others[are_among(others, new)].tolist())  # a new name is not registered
    order = np.argsort(looks)
    names, looks = names[order], looks[order]
    differ = looks[1:][(looks[1:] == looks[:-1]) & (names[1:] != names[:-1])]
    return shared.union(differ[are_among(differ, new)].tolist())


def _looks(names: Sequence[str]) -> NDArray[np.int64]:
    """Return (N,) hashes of the `resemblance` of pseudonyms."""
    return np.array([hash(resemblance(name)) for name in names], np.int64)


def look_alikes_text(groups: Sequence[tuple[str, ...]], most: int = 20) -> list[str]:
    """Return text with one line for each group of similar-looking pseudonyms."""
    lines = [", ".join(_("“%(name)s”") % {"name": name} for name in group) for group in groups[:most]]
    rest = len(groups) - len(lines)
    return [*lines, *([_("And %(rest)d more.") % {"rest": rest}] if rest else [])]


def unknown_message(pseudonym: str) -> str:
    """Return a message that explains why a pseudonym matches no holder of a study."""
    return spelling_fault(pseudonym) or _("This pseudonym does not exist in this study. Check the spelling.")


def spelling_fault(pseudonym: str) -> str:
    """Return the reason why a pseudonym is invalid (empty if it is valid)."""
    try:
        canonical(pseudonym)
    except PseudonymError as error:
        return " ".join(
            _(each.template) % each.values if isinstance(each, Sentence) else _(each)
            for each in (error.problem, error.remedy)
        )
    return ""


def _ids(study: Study, names: list[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    if len(names) > _AT_ONCE and not DataHolder.objects.filter(study=study).exists():
        return ids
    names = [name for name in names if "\0" not in name]  # PostgreSQL does not accept text with a null character
    for start in range(0, len(names), _AT_ONCE):
        holders = DataHolder.objects.filter(study=study, pseudonym__in=names[start : start + _AT_ONCE])
        ids.update(holders.order_by().values_list("pseudonym", "pk"))
    return ids


# --- Lists of people to invite ----------------------------------------------------------------------------------------


#: Columns of a table; all columns except the first may be missing or empty.
COLUMNS = ("pseudonym", "answers", "until", "language", "address")
#: Valid values in the column "answers": the role of the person who receives the invitation.
ANSWERS = (Circumstance.Kind.PERSON, *REPRESENTED)
SEPARATORS = (",", ";", "\t")

_LINE_END = re.compile(r"\r\n|\r|\n")
#: Patterns that never occur in a pseudonym but always occur in the rows of a table.
_ROW = re.compile(r'[,;\t|]|^"|\S {2,}\S|\s(?:\d{4}-\d\d-\d\d|\d\d?\.\d\d?\.\d{4})(?:\s|$)')
#: Words used as the heading of a list of pseudonyms, without spaces and punctuation.
_HEADING = re.compile(
    "(data)?holders?|(patient|person|participant|subject|record|proband)(en|e?s|i?n(nen)?)?(id|ids|nr|code|no)?|people"
    "|who|ids?|codes?|keys?|names?|namen|no|nr|numbers?|nummern?|pseudonym(s|e|en)|kennung(en)?|teilnehme(r|nde)(in|innen)?"
)


@dataclass(frozen=True)
class Invited:
    """Holder to invite.

    ``answers`` is one of ``ANSWERS``, or empty for the recorded person; ``until`` is as in `Circumstance`.

    ``language`` and ``address`` (lines) are used only for the letter and are not stored.
    """

    pseudonym: str
    answers: str = ""
    until: date | None = None
    language: str = ""
    address: str = ""


def invitees_read(text: str) -> list[Invited]:
    """Read a list of people to invite: one pseudonym per line, or a table whose first line names some of ``COLUMNS``.

    Commas, semicolons or tabs separate the columns of a table.

    Raises:
        ValidationError: lists every row that cannot be read, and how to correct it.
    """
    lines = _LINE_END.split(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"))
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return []
    separator, names = heading(lines[first], COLUMNS)
    problems: list[str] = []
    if set(names) & set(COLUMNS):
        _names_check(names)
        people = list(_people(lines[first + 1 :], first + 1, separator, names, problems))
    else:
        people = list(_listed(lines, first, problems))
    if problems:
        raise ValidationError(problems)
    return list(dict.fromkeys(people))


def heading(line: str, known: Sequence[str]) -> tuple[str, list[str]]:
    """Return the separator that yields the most ``known`` names in a table's first line, and the names in that line."""
    found = []
    for separator in SEPARATORS:
        names = [name.strip().strip('"').strip().lower() for name in line.split(separator)]
        while names and not names[-1]:
            names.pop()
        found.append((len(set(names) & set(known)), separator, names))
    _count, separator, names = max(found, key=lambda each: each[0])
    return separator, names


def _names_check(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names) or COLUMNS[0] not in names:
        message = _(
            "The columns in the first line are wrong: %(names)s. Write “pseudonym” and, if you need them, any of "
            "these, each only once: %(others)s."
        )
        raise ValidationError(message % {"names": ", ".join(names), "others": ", ".join(COLUMNS[1:])})


def _listed(lines: Sequence[str], first: int, problems: list[str]) -> Iterator[Invited]:
    """Yield the people in a list of pseudonyms."""
    for row, line in enumerate(lines, 1):
        name = line.strip()
        if not name:
            continue
        others = name.lower().split()[1:]
        if _ROW.search(name) or set(others) & set(ANSWERS):
            message = _(
                "Row %(row)d looks like a row of a table. Start with a line of column names, such as "
                "pseudonym,answers,until, or write one pseudonym per line."
            )
            problems.append(message % {"row": row})
            return
        if row == first + 1 and _HEADING.fullmatch(re.sub(r"[\W_]+", "", name.lower())):
            message = _(
                "Row %(row)d, “%(name)s”, looks like a heading. Replace it with “pseudonym”, or remove the row."
            )
            problems.append(message % {"row": row, "name": name})
            return
        yield Invited(_spelled(name, row, problems))


def _people(
    lines: Sequence[str], before: int, separator: str, names: Sequence[str], problems: list[str]
) -> Iterator[Invited]:
    """Yield the people in a table that begins after ``before`` other lines."""
    rows: dict[str, tuple[int, Invited]] = {}
    for number, cells in _rows(lines, separator):
        row = number + before
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if any(cells[len(names) :]):
            message = _("Row %(row)d has more cells than the first line has column names. Remove the extra cells.")
            problems.append(message % {"row": row})
            continue
        person = _person(dict(zip(names, cells, strict=False)), row, problems)
        if person is None:
            continue
        known = rows.setdefault(person.pseudonym, (row, person))
        if known[1] != person:
            message = _(
                "Row %(row)d: “%(name)s” also appears in row %(other)d with different values. Keep only one "
                "of the two rows."
            )
            problems.append(message % {"row": row, "name": person.pseudonym, "other": known[0]})
        yield person


def _person(cells: dict[str, str], row: int, problems: list[str]) -> Invited | None:
    cells = dict.fromkeys(COLUMNS, "") | cells
    answers, language = cells["answers"].lower(), cells["language"].lower()
    try:
        day = date.fromisoformat(cells["until"]) if cells["until"] else None
    except ValueError:
        problems.append(_("Row %(row)d: “until” must be a date such as 2031-05-04.") % {"row": row})
        return None
    if answers not in ("", *ANSWERS) or not cells["pseudonym"]:
        message = _("Row %(row)d: write a pseudonym and, if needed, one of %(answers)s.")
        problems.append(message % {"row": row, "answers": ", ".join(ANSWERS)})
        return None
    if language and language not in dict(settings.LANGUAGES):
        message = _("Row %(row)d: the language must be one of %(codes)s, or empty.")
        problems.append(message % {"row": row, "codes": ", ".join(dict(settings.LANGUAGES))})
    address = "\n".join(line.strip() for line in re.split(r"[;\n]", cells["address"]))
    return Invited(_spelled(cells["pseudonym"], row, problems), answers, day, language, address)


def _spelled(name: str, row: int, problems: list[str]) -> str:
    if fault := spelling_fault(name):
        problems.append(_("Row %(row)d: %(text)s") % {"row": row, "text": fault})
    return spelling(name)


def _rows(lines: Sequence[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    try:
        yield from table_read("\n".join(lines), delimiter=separator)
    except UnreadableError as error:
        raise ValidationError(_("This is not a CSV file (%(error)s).") % {"error": error}) from error
