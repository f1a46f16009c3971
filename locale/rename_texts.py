"""Replace texts in code, templates, the catalogue and tests in one go: ``python locale/rename_texts.py TABLE``.

A table is a TOML file with one entry for each text::

    [[text]]
    old = "Whose account is used up contributes nothing more, which nobody sees."
    new = "People whose budget is used up silently stop contributing."
    de = "Personen, deren Budget verbraucht ist, tragen unbemerkt nichts mehr bei."

Texts are written as in the catalogue: ``%(name)s`` where a template has ``{{ name }}``. A text with a plural has
``new_plural`` as well, and its German is a list of two. Without ``de`` the translation stays. Nothing is written if an
entry cannot be applied in full or was applied before.

In tests, only whole texts are renamed, and quotes of at least four words that occur in no other text. Other strings
that share four words with an old text are listed: change them by hand.
"""

import argparse
import ast
import html
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polib
from django.template.base import DebugLexer, Token, TokenType

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("accounting", "common", "consent", "ipate_web", "learning", "training")
MARKS = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy", "pgettext", "Sentence"}
PLACEHOLDER = re.compile(r"%\((\w+)\)[sdf]")
VALUES = re.compile(r"%\(\w+\)\w|%%|</?\w+")
WIDTH = 120
LONGEST_LINE = 160
"""Of templates, where a text cannot be broken within a tag."""
#: Texts with at least this many words are replaced wherever a string of the product equals them, marked for translation
#: or not.
FEW_WORDS = 4
#: Maximum number of words of a part of a text that a test quotes.
LONGEST_PART = 9
#: Maximum length of a key that shares a line with ``: gettext_noop(`` in a table of texts.
KEY_WIDTH = 98


@dataclass
class Rename:
    """One entry of a table, with the German text that the catalogue has so far."""

    old: str
    new: str
    new_plural: str = ""
    german: tuple[str, ...] = ()
    old_plural: str = ""
    old_german: tuple[str, ...] = ()
    places: int = 0

    def english(self) -> dict[str, str]:
        pairs = {self.old: self.new}
        if self.old_plural:
            pairs[self.old_plural] = self.new_plural
        return pairs


@dataclass
class Plan:
    """Texts to replace, new contents of files, and remarks for the reader."""

    renames: list[Rename]
    files: dict[Path, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    persons: int = 0

    def __post_init__(self) -> None:
        self.pairs: dict[str, str] = {}
        self.by_text: dict[str, Rename] = {}
        for rename in self.renames:
            for old, new in rename.english().items():
                self.pairs[old] = new
                self.by_text[old] = rename
        self.seen: set[str] = set()

    def found(self, text: str) -> None:
        """Count a place where a text of the plan occurs."""
        self.seen.add(text)
        self.by_text[text].places += 1

    def read(self, path: Path) -> str:
        return self.files.get(path) or path.read_text(encoding="utf-8")


# --- Table and catalogue ----------------------------------------------------------------------------------------------


def renames_of(table: dict[str, Any], catalogue: polib.POFile) -> tuple[list[Rename], list[str]]:
    """Return the entries that have yet to be applied, and errors in the table."""
    known = {entry.msgid: entry for entry in catalogue if not entry.obsolete and not entry.msgctxt}
    renames: list[Rename] = []
    errors: list[str] = []
    for row in table["text"]:
        german = row.get("de", ())
        rename = Rename(
            row["old"], row["new"], row.get("new_plural", ""), (german,) if isinstance(german, str) else tuple(german)
        )
        entry = known.get(rename.old)
        if entry is None:
            reason = "renamed already" if rename.new in known else "not in the catalogue"
            errors.append(f"{reason}: {rename.old}")
            continue
        rename.old_plural = entry.msgid_plural
        rename.old_german = tuple(entry.msgstr_plural.values()) if entry.msgid_plural else (entry.msgstr,)
        rename.german = rename.german or rename.old_german
        if bool(rename.old_plural) != bool(rename.new_plural):
            if rename.new == rename.old and not rename.new_plural:
                rename.new_plural = rename.old_plural
            else:
                errors.append(f"has a plural in only one of old and new: {rename.old}")
        if rename.english() == {old: old for old in rename.english()} and rename.german == rename.old_german:
            continue
        errors += _value_errors(rename)
        renames.append(rename)
    olds = [rename.old for rename in renames]
    errors += [f"twice in the table: {old}" for old in sorted(set(olds)) if olds.count(old) > 1]
    errors += [f"both old and new: {each.new}" for each in renames if each.new != each.old and each.new in olds]
    return renames, errors


def _value_errors(rename: Rename) -> Iterator[str]:
    english = list(rename.english().values())
    if len(english) != len(rename.german):
        yield f"needs {len(english)} German texts: {rename.old}"
        return
    for (old, new), german in zip(rename.english().items(), rename.german, strict=True):
        if not set(PLACEHOLDER.findall(new)) <= set(PLACEHOLDER.findall(old + rename.old_plural)):
            yield f"new values in: {new}"
        if set(VALUES.findall(new)) != set(VALUES.findall(german)):
            yield f"values of English and German differ: {new} | {german}"


def catalogue_rename(catalogue: polib.POFile, renames: Iterable[Rename]) -> None:
    """Rename entries of the catalogue."""
    known = {entry.msgid: entry for entry in catalogue if not entry.obsolete and not entry.msgctxt}
    for rename in renames:
        entry = known.pop(rename.old)
        other = known.get(rename.new)
        if other is not None:
            catalogue.remove(entry)
            entry = other
        entry.msgid, entry.msgid_plural = rename.new, rename.new_plural
        if rename.new_plural:
            entry.msgstr, entry.msgstr_plural = "", dict(enumerate(rename.german))
        else:
            entry.msgstr = rename.german[0]
        if "python-format" in entry.flags and not re.search(r"%\(|%%|%[sd]", rename.new + rename.new_plural):
            entry.flags.remove("python-format")
        known[rename.new] = entry


# --- Python -----------------------------------------------------------------------------------------------------------


def _offsets(text: str) -> list[int]:
    """Return the byte offset of each line's beginning."""
    offsets = [0]
    for line in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _span(node: ast.expr, offsets: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset


def _replaced(text: str, edits: list[tuple[int, int, str]]) -> str:
    """Return ``text`` with each byte range replaced."""
    data = text.encode()
    for start, end, new in sorted(edits, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def _is_bracketed(text: str) -> dict[int, bool]:
    """Return, for each line, whether it begins inside brackets."""
    depth = 0
    lines: dict[int, bool] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        for line in range(token.start[0], token.end[0] + 1):
            lines.setdefault(line, depth > 0)
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
    return lines


def literal(value: str, *, column: int, indent: int, prefix: str = "", bracketed: bool = True, after: int = 0) -> str:
    """Return Python source of a string, over as many lines as it needs.

    Args:
        value: The text.
        column: Where it begins in its line.
        indent: Spaces before what else is in that line.
        prefix: ``b`` for bytes.
        bracketed: Whether it is within brackets already, so that it may go on in the next line.
        after: Characters that follow in the same line.
    """
    whole = f"{prefix}{_quoted(value)}"
    if column + len(whole) + after <= WIDTH:
        return whole
    room = WIDTH - (column if column == indent else indent + 12) - 4 - len(prefix)
    parts, line = [], ""
    for word in re.findall(r"\S*\s*", value):
        if line and len(_quoted(line + word)) - 2 > room:
            parts.append(line)
            line = ""
        line += word
    lines = "\n".join(f"{' ' * (indent + 4)}{prefix}{_quoted(part)}" for part in [*parts, line]).strip()
    return lines if bracketed else f"(\n{' ' * (indent + 4)}{lines}\n{' ' * indent})"


def _quoted(value: str) -> str:
    mark = "'" if '"' in value and "'" not in value else '"'
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace(mark, f"\\{mark}")
    return f"{mark}{escaped}{mark}"


def _source_edit(lines: list[str], node: ast.Constant, new: str, bracketed: bool) -> str:
    line = lines[node.lineno - 1]
    indent = len(line) - len(line.lstrip())
    column = len(line.encode()[: node.col_offset].decode())
    after = len(lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset :].decode())
    prefix = "b" if isinstance(node.value, bytes) else ""
    return literal(
        new, column=column, indent=indent, prefix=prefix, bracketed=bracketed or "(" in line[:column], after=after
    )


def python_rename(plan: Plan, path: Path) -> None:
    """Rename texts in strings of a module of the product."""
    text = plan.read(path)
    tree = ast.parse(text)
    marked = {
        id(argument)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in MARKS
        for argument in call.args
    }
    inside = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in ast.walk(each)}
    tables = [each for each in ast.walk(tree) if isinstance(each, ast.Dict)]
    keys = (
        {
            id(key)
            for table in tables
            for key, value in zip(table.keys, table.values, strict=True)
            if isinstance(value, ast.Call) and value.args and id(value.args[0]) in marked
        }
        if path.name == "third_person.py"
        else set()
    )
    offsets, lines, edits, bracketed = _offsets(text), text.splitlines(), [], None
    labels = _labels(tree) if "migrations" in path.parts else None
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        new = plan.pairs.get(node.value)
        if new is None:
            continue
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        if id(node) in inside and new != node.value:
            plan.errors.append(f"found only in part of an f-string, {where}: {node.value}")
        elif labels is not None:
            if id(node) not in labels:
                continue
        elif id(node) not in marked:
            if len(node.value.split()) < FEW_WORDS and id(node) not in keys:
                continue
            if id(node) not in keys:
                plan.remarks.append(f"{where}: renamed, though not marked for translation: {node.value}")
        else:
            plan.found(node.value)
        if new != node.value:
            bracketed = bracketed or _is_bracketed(text)
            span = _span(node, offsets)
            source = _source_edit(lines, node, new, bracketed[node.lineno])
            too_long = id(node) in keys and len(source) > KEY_WIDTH
            edits.append((*span, f"({source})" if too_long else source))
    if edits:
        plan.files[path] = _replaced(text, edits)


def _labels(tree: ast.AST) -> set[int]:
    """Return the strings of a migration that are labels: names, help texts, and the second item of each choice."""
    named = {"verbose_name", "verbose_name_plural", "help_text"}
    found = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg in named}
    found |= {
        id(value)
        for each in ast.walk(tree)
        if isinstance(each, ast.Dict)
        for key, value in zip(each.keys, each.values, strict=True)
        if isinstance(key, ast.Constant) and key.value in named
    }
    pairs = [each.elts for each in ast.walk(tree) if isinstance(each, ast.Tuple) and len(each.elts) == 2]
    return found | {id(second) for _first, second in pairs}


# --- Templates --------------------------------------------------------------------------------------------------------


def in_template(text: str) -> str:
    """Return a text of the catalogue as it is written in a template."""
    return re.sub(r"%\((\w+)\)s", r"{{ \1 }}", text).replace("%%", "%")


def _block_text(tokens: list[Token], trimmed: bool) -> str:
    text = "".join(
        f"%({token.contents})s" if token.token_type == TokenType.VAR else token.contents.replace("%", "%%")
        for token in tokens
    )
    return " ".join(line.strip() for line in text.splitlines() if line.strip()) if trimmed else text


def template_rename(plan: Plan, path: Path) -> None:
    """Rename texts in ``{% translate %}``, ``{% blocktranslate %}`` and ``_("")`` of a template."""
    text = plan.read(path)
    tokens = DebugLexer(text).tokenize()
    edits: list[tuple[int, int, str]] = []
    opened: list[Token] | None = None
    parts: list[list[Token]] = []
    for token in tokens:
        name = token.contents.split(" ")[0] if token.token_type == TokenType.BLOCK else ""
        if name in ("blocktranslate", "blocktrans"):
            opened, parts = [token], [[]]
        elif name in ("endblocktranslate", "endblocktrans") and opened is not None:
            trimmed = "trimmed" in opened[0].contents.split()
            for part in parts:
                if part:
                    edits += _block_edit(plan, text, part, trimmed)
            opened = None
        elif name == "plural" and opened is not None:
            parts.append([])
        elif opened is not None:
            parts[-1].append(token)
        if token.token_type in (TokenType.BLOCK, TokenType.VAR):
            edits += _tag_edits(plan, text, token)
    edits = [edit for edit in edits if text[edit[0] : edit[1]] != edit[2]]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    if edits:
        plan.files[path] = "\n".join(_short(line) for line in text.split("\n"))


TAG = r"\{%\s*(?:translate|trans)\s+(?P<mark>[\"'])(?P<text>(?:(?!(?P=mark)).)*)(?P=mark)\s*%\}"
BLOCK = (
    r"\{%\s*blocktranslate(?P<options>(?:(?! trimmed| asvar|%\}).)*?)\s*%\}"
    r"(?P<body>(?:(?!\{% ).)*)\{%\s*endblocktranslate\s*%\}"
)


def _short(line: str) -> str:
    """Return a line with its longest text moved to lines of its own if it is too long for a template."""
    if len(line) <= LONGEST_LINE:
        return line
    found = [*re.finditer(TAG, line), *re.finditer(BLOCK, line)]
    if not found:
        return line
    match = max(found, key=lambda each: len(each[0]))
    parts = match.groupdict()
    options, body = parts.get("options") or "", parts.get("text") or parts.get("body") or ""
    indent = " " * (len(line) - len(line.lstrip()))
    before, after = line[: match.start()].rstrip(), line[match.end() :].lstrip()
    inner = f"{indent}  " if before else indent
    lines = [
        *([_short(before)] if before else []),
        f"{inner}{{% blocktranslate trimmed{options} %}}",
        f"{inner}  {_wrapped(body, len(inner) + 2)}",
        f"{inner}{{% endblocktranslate %}}",
        *([_short(indent + after)] if after else []),
    ]
    return "\n".join(lines)


def _block_edit(plan: Plan, text: str, tokens: list[Token], trimmed: bool) -> Iterator[tuple[int, int, str]]:
    found = _block_text(tokens, trimmed)
    if found not in plan.pairs:
        return
    plan.found(found)
    if plan.pairs[found] == found:
        return
    start, end = _position(tokens[0])[0], _position(tokens[-1])[1]
    body, new = text[start:end], in_template(plan.pairs[found])
    stripped = body.strip()
    if trimmed and "\n" in body:
        before, after = body[: body.index(stripped)], body[body.index(stripped) + len(stripped) :]
        indent = len(before.rsplit("\n", 1)[-1])
        yield start, end, before + _wrapped(new, indent) + after
    else:
        yield start, end, new


def _position(token: Token) -> tuple[int, int]:
    assert token.position is not None
    return token.position


def _wrapped(text: str, indent: int) -> str:
    lines, line = [], ""
    for word in re.findall(r"(?:\{\{.*?\}\}|<[^>]*>|[^\s{<]+|[{<])+", text):
        if line and indent + len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    return f"\n{' ' * indent}".join([*lines, line])


def _tag_edits(plan: Plan, text: str, token: Token) -> Iterator[tuple[int, int, str]]:
    start, end = _position(token)
    pattern = r"""(?:\b_\(|\{%\s*(?:translate|trans)\s+|\b_ )(?P<mark>["'])(?P<text>(?:(?!(?P=mark)).)*)(?P=mark)"""
    for match in re.finditer(pattern, text[start:end], re.DOTALL):
        msgid = match["text"].replace("%", "%%")
        if msgid not in plan.pairs:
            continue
        plan.found(msgid)
        new = plan.pairs[msgid].replace("%%", "%")
        mark = match["mark"]
        if mark in new:
            mark = "'" if mark == '"' else '"'
            if mark in new:
                plan.errors.append(f"both kinds of quotation marks: {new}")
        yield start + match.start("mark"), start + match.end(), f"{mark}{new}{mark}"


# --- Tests and documents ----------------------------------------------------------------------------------------------


def plain_part(text: str, *, first: bool = False) -> str:
    """Return the longest part of a text, or the first, that looks the same in a page, a mail and a regular expression.

    >>> plain_part("Don't ask (yet): %(person)s has not answered the question.")
    'has not answered the question'
    """
    parts = re.split(r"%\(\w+\)[sdf]|%%|<[^>]*>|['’]s |[^\w ,;:“”–-]", text)
    chosen = parts[0] if first and len(parts[0].split()) > 2 else max(parts, key=len)
    return chosen.strip(" ,;:“”–-")


def _grams(text: str) -> set[tuple[str, ...]]:
    """Return all runs of ``FEW_WORDS`` words of a text."""
    words = re.findall(r"\w+|%\(\w+\)s", text)
    return {tuple(words[index : index + FEW_WORDS]) for index in range(len(words) - FEW_WORDS + 1)}


def _is_long(text: str) -> bool:
    return len(text.split()) >= FEW_WORDS


@dataclass
class Quotes:
    """How tests quote the texts of a plan, in English and German, as they are or escaped for HTML."""

    plan: Plan
    others: str

    def __post_init__(self) -> None:
        pairs: dict[str, str] = {}
        for rename in self.plan.renames:
            pairs |= {old: new for old, new in rename.english().items() if old != new}
            german = dict(zip(rename.old_german, rename.german, strict=True))
            pairs |= {old: new for old, new in german.items() if old != new}
        plain = {old.replace("%%", "%"): new.replace("%%", "%") for old, new in pairs.items()}
        self.pairs = {old: plain[old] for old in sorted(plain, key=len, reverse=True) if " " in old}
        self.whole = [
            pair
            for old, new in self.pairs.items()
            if "%(" not in old
            for pair in sorted({(old, new), (html.escape(old), html.escape(new))})
        ]
        self.filled = [
            (piece, re.compile(self._pattern(old), re.DOTALL), new)
            for old, new in self.pairs.items()
            if "%(" in old
            for piece in (max(PLACEHOLDER.split(old)[::2], key=len),)
            if _is_long(piece) and piece not in self.others
        ]
        kept = _grams(self.others) | {gram for new in self.pairs.values() for gram in _grams(new)}
        self.grams = {gram for old in self.pairs for gram in _grams(old)} - kept

    @staticmethod
    def _pattern(old: str) -> str:
        seen: set[str] = set()
        pieces = PLACEHOLDER.split(old)
        for index in range(1, len(pieces), 2):
            name = pieces[index]
            pieces[index] = f"(?P={name})" if name in seen else f"(?P<{name}>[^<>]{{1,80}}?)"
            seen.add(name)
        for index in range(0, len(pieces), 2):
            pieces[index] = re.escape(pieces[index])
        if len(pieces) > 1 and not pieces[-1]:
            pieces[-1] = r"\Z"
        return "".join(pieces)

    def renamed(self, value: str, where: str, is_pattern: bool = False) -> str:
        """Return a test's string, or its regular expression, with quoted texts renamed."""
        if value in self.pairs:
            new = self.pairs[value]
            return plain_part(new) if is_pattern and re.search(r"[()?+*\[{]", new) else new
        value = self.replaced(value)
        for piece, pattern, new in self.filled:
            if piece in value and (match := pattern.search(value)):
                return value[: match.start()] + _filled(new, match.groupdict()) + value[match.end() :]
        bare = html.unescape(value.replace("\\", ""))
        if self.grams.isdisjoint(_grams(bare)):
            return value
        quoted = [old for old in self.pairs if bare in old]
        if len(quoted) == 1 and bare not in self.others and bare not in self.pairs[quoted[0]]:
            part = plain_part(self.pairs[quoted[0]], first=quoted[0].startswith(bare))
            part = " ".join(part.split()[:LONGEST_PART])
            if _is_long(part) and part not in self.others:
                self.plan.remarks.append(f"{where}: quotes a part: {value!r} → {part!r}")
                return part
        self.plan.remarks.append(f"{where}: CHANGE BY HAND: {value}")
        return value

    def replaced(self, value: str) -> str:
        """Return a string in which whole texts are renamed that cannot be part of other texts."""
        for old, new in self.whole:
            if old not in value:
                continue
            value = value.replace(f">{old}<", f">{new}<")
            if _is_long(old) and old not in self.others and old not in new:
                value = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new.replace("\\", r"\\"), value)
        return value


def _filled(text: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def test_rename(plan: Plan, path: Path, quotes: Quotes) -> None:
    """Rename texts that a test module quotes."""
    text = plan.read(path)
    tree = ast.parse(text)
    joined = [each for each in ast.walk(tree) if isinstance(each, ast.JoinedStr)]
    patterns = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg == "match"}
    inside = {id(part) for each in joined for part in ast.walk(each)}
    # Messages of failed assertions are not quotations.
    remarks = {id(each.msg) for each in ast.walk(tree) if isinstance(each, ast.Assert) and each.msg}
    documented = remarks | {
        id(each.body[0].value)
        for each in ast.walk(tree)
        if isinstance(each, ast.Module | ast.FunctionDef | ast.ClassDef)
        and each.body
        and isinstance(each.body[0], ast.Expr)
    }
    offsets, lines, edits, bracketed = _offsets(text), text.splitlines(), [], None
    data = text.encode()
    for node in ast.walk(tree):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.JoinedStr) and id(node) not in (inside - {id(each) for each in joined}):
            start, end = _span(node, offsets)
            source = data[start:end].decode()
            new = quotes.replaced(source)
            if new != source and new.count('"') == source.count('"'):
                edits.append((start, end, new))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str | bytes)
            and id(node) not in inside
            and id(node) not in documented
        ):
            value = node.value if isinstance(node.value, str) else node.value.decode(errors="replace")
            new = quotes.renamed(value, where, id(node) in patterns)
            if new == value:
                continue
            span = _span(node, offsets)
            source = data[span[0] : span[1]].decode()
            if isinstance(node.value, bytes) and not new.isascii():
                plan.remarks.append(f"{where}: bytes cannot hold: {new}")
                continue
            if '"""' in source:
                edits.append((*span, source.replace(value, new)))
            else:
                bracketed = bracketed or _is_bracketed(text)
                edits.append((*span, _source_edit(lines, node, new, bracketed[node.lineno])))
    nested = [edit for edit in edits if any(o[0] <= edit[0] and edit[1] <= o[1] and o is not edit for o in edits)]
    if edits:
        plan.files[path] = _replaced(text, [edit for edit in edits if edit not in nested])


def document_rename(plan: Plan, path: Path) -> None:
    """Rename buttons and pages that a document names in bold, and report other quotations."""
    text = plan.read(path)
    new = text
    for old, then in plan.pairs.items():
        pattern = re.compile(r"\*\*" + r"\s+".join(map(re.escape, old.split())) + r"\*\*")
        new = pattern.sub(f"**{then}**".replace("\\", r"\\"), new)
        if old != then and len(old.split()) > 2 and old in new and then not in new:
            plan.remarks.append(f"{path.relative_to(ROOT)}: quotes: {old}")
    if new != text:
        plan.files[path] = new


def third_person_rename(plan: Plan, table: dict[str, Any]) -> None:
    """Rename texts about another person, and keep each paired with the text that addresses the reader."""
    paths = {path.parents[1].name: path for path in (ROOT / "locale").glob("*/LC_MESSAGES/person.po")}
    if not paths:
        return
    catalogues = {language: polib.pofile(str(path), wrapwidth=0) for language, path in paths.items()}
    rows = {row["old"]: row for row in table["text"]}
    changed = {entry.msgid: rows[entry.msgstr] for entry in catalogues.get("en", ()) if entry.msgstr in rows}
    for language, catalogue in catalogues.items():
        for entry in catalogue:
            row = changed.get(entry.msgid)
            if row:
                entry.msgstr = row["new"] if language == "en" else row.get("de", entry.msgstr)
            elif language == "en" and plan.pairs.get(entry.msgid, entry.msgid) != entry.msgid:
                plan.remarks.append(f"{entry.msgid}: change what is said about another person, too: {entry.msgstr}")
            entry.msgid = plan.pairs.get(entry.msgid, entry.msgid)
        plan.files[paths[language]] = _written(catalogue)
    plan.persons = len(changed)


def _persons(table: dict[str, Any]) -> set[str]:
    """Return the table's old texts that are about another person."""
    path = ROOT / "locale" / "en" / "LC_MESSAGES" / "person.po"
    spoken = {entry.msgstr for entry in polib.pofile(str(path))} if path.exists() else set()
    return {row["old"] for row in table["text"] if {row["old"], row["new"]} & spoken}


def _written(catalogue: polib.POFile) -> str:
    text = str(catalogue)
    return text if text.endswith("\n") else f"{text}\n"


# --- All of it --------------------------------------------------------------------------------------------------------


def table_apply(table: dict[str, Any]) -> Plan:
    """Return the changes made by applying a table, without writing them."""
    path = ROOT / "locale" / "de" / "LC_MESSAGES" / "django.po"
    catalogue = polib.pofile(str(path), wrapwidth=0)
    persons = _persons(table)
    rest = {"text": [row for row in table["text"] if row["old"] not in persons]}
    renames, errors = renames_of(rest, catalogue)
    plan = Plan(renames, errors=errors)
    third_person_rename(plan, table)
    others = "\0".join(
        f"{entry.msgid}\0{entry.msgid_plural}\0{entry.msgstr}" for entry in catalogue if entry.msgid not in plan.pairs
    )
    if errors or not renames:
        return plan
    for source in (each for name in SOURCES for each in sorted((ROOT / name).rglob("*.py"))):
        python_rename(plan, source)
    for template in sorted(each for each in (ROOT / "templates").rglob("*") if each.suffix in (".html", ".txt")):
        template_rename(plan, template)
    plan.errors += [f"found in no source, or only in part: {each.old}" for each in renames if each.old not in plan.seen]
    quotes = Quotes(plan, others)
    for test in sorted((ROOT / "tests").rglob("*.py")):
        test_rename(plan, test, quotes)
    for document in [*sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("*.md")]:
        document_rename(plan, document)
    faults = ROOT / "tests" / "faults.toml"
    if faults.exists():
        text = faults.read_text(encoding="utf-8")
        for old, then in plan.pairs.items():
            if len(old.split()) >= FEW_WORDS:
                text = text.replace(old, then)
        plan.files[faults] = text
    catalogue_rename(catalogue, renames)
    plan.files[path] = _written(catalogue)
    return plan


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("table", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    for path in options.table:
        plan = table_apply(tomllib.loads(path.read_text(encoding="utf-8")))
        if plan.errors:
            sys.stderr.writelines(f"{error}\n" for error in plan.errors)
            return 1
        changed = [each for each, text in plan.files.items() if text != each.read_text(encoding="utf-8")]
        if not options.check:
            for each in changed:
                each.write_text(plan.files[each], encoding="utf-8")
            modules = [str(each) for each in changed if each.suffix == ".py"]
            if modules:
                command = [sys.executable, "-m", "ruff", "format", "--quiet", *modules]
                subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603
        sys.stdout.writelines(f"{remark}\n" for remark in plan.remarks)
        places = sum(each.places for each in plan.renames)
        sys.stdout.write(f"{path.name}: {len(plan.renames)} texts in {places} places, {len(changed)} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
