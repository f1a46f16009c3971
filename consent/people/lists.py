"""Lists of people to invite: one pseudonym a line, or a table whose first line names its columns."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from common.identities import spelling
from common.reading import UnreadableError, table_read
from consent.models import Circumstance
from consent.people.circumstances import REPRESENTED
from consent.people.pseudonyms import spelling_fault

#: Columns of a table; all but the first may be left out, and be empty.
COLUMNS = ("pseudonym", "answers", "until", "language", "address")
#: What the column "answers" may say: who the invitation goes to.
ANSWERS = (Circumstance.Kind.PERSON, *REPRESENTED)
SEPARATORS = (",", ";", "\t")

_LINE_END = re.compile(r"\r\n|\r|\n")
#: What nobody writes in a pseudonym, and every table has in its rows.
_ROW = re.compile(r'[,;\t|]|^"|\S {2,}\S|\s(?:\d{4}-\d\d-\d\d|\d\d?\.\d\d?\.\d{4})(?:\s|$)')
#: Words that stand above a list of pseudonyms, without spaces and signs.
_HEADING = re.compile(
    "(data)?holders?|(patient|person|participant|subject|record|proband)(en|e?s|i?n(nen)?)?(id|ids|nr|code|no)?|people"
    "|who|ids?|codes?|keys?|names?|namen|no|nr|numbers?|nummern?|pseudonym(s|e|en)|kennung(en)?|teilnehme(r|nde)(in|innen)?"
)


@dataclass(frozen=True)
class Invited:
    """Holder to invite: ``answers`` is one of ``ANSWERS``, or empty for whoever is on record; ``until`` as recorded.

    ``language`` and ``address``, of lines, are for their letter alone, and not kept.
    """

    pseudonym: str
    answers: str = ""
    until: date | None = None
    language: str = ""
    address: str = ""


def invitees_read(text: str) -> list[Invited]:
    """Read a list of people to invite: one pseudonym a line, or a table whose first line names some of ``COLUMNS``.

    Commas, semicolons or tabs separate the columns of a table.

    Raises:
        ValidationError: every row that cannot be read, with what to write.
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
    """Return the separator of a table and the names in its first line: the one by which most of the ``known`` occur."""
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
            "The first line must name the columns %(names)s. Write pseudonym and any of %(others)s that you need, "
            "each once."
        )
        raise ValidationError(message % {"names": ", ".join(names), "others": ", ".join(COLUMNS[1:])})


def _listed(lines: Sequence[str], first: int, problems: list[str]) -> Iterator[Invited]:
    """People of a list of pseudonyms."""
    for row, line in enumerate(lines, 1):
        name = line.strip()
        if not name:
            continue
        others = name.lower().split()[1:]
        if _ROW.search(name) or set(others) & set(ANSWERS):
            message = _(
                "Row %(row)d looks like a row of a table. Start with a line that names the columns, such as "
                "pseudonym,answers,until, or write one pseudonym per line."
            )
            problems.append(message % {"row": row})
            return
        if row == first + 1 and _HEADING.fullmatch(re.sub(r"[\W_]+", "", name.lower())):
            message = _("Row %(row)d, “%(name)s”, looks like a heading. Replace it with pseudonym, or remove it.")
            problems.append(message % {"row": row, "name": name})
            return
        yield Invited(_spelled(name, row, problems))


def _people(
    lines: Sequence[str], before: int, separator: str, names: Sequence[str], problems: list[str]
) -> Iterator[Invited]:
    """People of a table, of which so many lines were read before."""
    rows: dict[str, tuple[int, Invited]] = {}
    for number, cells in _rows(lines, separator):
        row = number + before
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if any(cells[len(names) :]):
            message = _("Row %(row)d has more cells than the first line has names.")
            problems.append(message % {"row": row})
            continue
        person = _person(dict(zip(names, cells, strict=False)), row, problems)
        if person is None:
            continue
        known = rows.setdefault(person.pseudonym, (row, person))
        if known[1] != person:
            message = _("Row %(row)d: “%(name)s” also appears in row %(other)d with different cells. Keep one of them.")
            problems.append(message % {"row": row, "name": person.pseudonym, "other": known[0]})
        yield person


def _person(cells: dict[str, str], row: int, problems: list[str]) -> Invited | None:
    cells = dict.fromkeys(COLUMNS, "") | cells
    answers, language = cells["answers"].lower(), cells["language"].lower()
    try:
        day = date.fromisoformat(cells["until"]) if cells["until"] else None
    except ValueError:
        problems.append(_("Row %(row)d: until must be a date such as 2031-05-04.") % {"row": row})
        return None
    if answers not in ("", *ANSWERS) or not cells["pseudonym"]:
        message = _("Row %(row)d: write a pseudonym, then one of %(answers)s, or nothing.")
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
