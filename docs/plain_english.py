"""Check the style of documents, docstrings, page texts and API descriptions: ``python docs/plain_english.py``.

Part of ``make lint``. Only the prose of documents is checked, without code, tables and headings. Page texts are the
English ones of the German catalogue; API descriptions are strings of ``ipate_web/api``. Expressions are banned that
native writers avoid or that must be read twice. As long as some remain, each area has a budget, which is lowered when
the count falls.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import polib

ROOT = Path(__file__).resolve().parents[1]
CODE = ("accounting", "client", "common", "consent", "ipate_web", "learning", "training")
#: Generated files.
GENERATED = {
    "docs/reproduction.md",
    "docs/benchmarks.md",
    "docs/errors.md",
    "docs/capabilities.md",
    "docs/tutorials/notebook.md",
}
#: Folders of documents that serve their own purpose.
OTHERS = (ROOT / "client", ROOT / "locale", ROOT / "accounting" / "privacy" / "papers")
#: Documents about changes, which may use the past tense.
WITH_HISTORY = {"CHANGELOG.md"}

MOST_WORDS = 50_000
"""In README, CONTRIBUTING and docs/, tables included; lower it as documents become shorter."""
LONGEST = 70
"""Most words of a sentence of a document."""

#: Number of banned expressions left in each area.
BUDGETS = {"documents": 11, "page texts": 2, "API descriptions": 0, "docstrings": 0, "first lines of docstrings": 0}

BANNED = {
    r"since then|used to be|in the past|formerly|until recently|back then": "tells history: say what is",
    r"in order to": "say: to",
    r"in case of|in the case that|in the event that": "say: if",
    r"due to the fact that|owing to": "say: because",
    r"utili[sz]e[sd]?|utili[sz]ing": "say: use",
    r"thereof|whereby|hereby|heretofore|aforementioned": "say what is meant",
    r"of course|obviously|needless to say|please note|it should be noted|simply put": "leave it out",
    r"and/or": "say which",
    r"e\.g\.|i\.e\.|etc\.": "say: for example, that is, and so on",
    r"who(?:ever|mever|soever)|whatever": "name the person or the thing",
    r"anew": "say: again",
    r"(?:is|are|was|were|be|been|being) (?:told|said)": "use an active verb with an actor",
    r"(?:of|by|from|with) (?:which|whom)": "start a new sentence, or say: whose, that",
    r"in place of": "say: instead of",
    r"at the most": "say: at most",
    r"on record": "say: recorded, logged",
    r"beside": "say: next to, besides",
    r"alike": "leave it out, or say: both",
    r"counts? up to": "say: is valid until",
    r"(?<!let )(?<!leave )(?<!leaves )alone": "say: only",
}
#: At the beginning of a sentence with a full stop, so not in headings and questions.
BANNED_FIRST = {
    r"(?:what|who|whom|whose|whoever|nobody|somebody|so many|so much)": "name the thing or the person first",
    r"it is (?:on record|said|told|known)": "use an active verb with an actor",
}
#: First words of a docstring that make it neither an imperative nor a noun phrase.
NO_FIRST_LINE = re.compile(
    r"(?:what|who|whom|whose|whoever|how|when|where|why|that|it|nobody|somebody|of|by|from|for|to|in|on|with|as|so)\b",
    re.IGNORECASE,
)
#: Exceptions: parts of sentences that only look banned, at most 40.
ALLOWED: tuple[str, ...] = (
    "leave alone",
    "stand alone",
    "stand-alone",
    "is in the past.",
    "choose a day in the past",
    "published since then",
    "new information since then",
    "answered since then",
    "decided again since then",
    "Since then, a guess",
    "parental responsibility, which I have alone",
    "from which date to count",
)


def documents() -> list[Path]:
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *(folder / "README.md" for folder in OTHERS),
    ]
    return sorted(path for path in found if str(path.relative_to(ROOT)) not in GENERATED | WITH_HISTORY)


def prose(text: str) -> str:
    """Return the text without code, tables, headings, pictures and addresses."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "![", "<img")))
    return re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", text)


def all_words(text: str) -> int:
    """Return the number of words outside code blocks and addresses, tables and headings included."""
    text = re.sub(r"(?ms)^ *```.*?^ *```[^\n]*$|<(?:img|br|/?details|/?summary)[^>]*>", "", text)
    return sum(bool(re.search(r"\w", word)) for word in re.sub(r"\]\([^)]*\)", "]", text).split())


def words(text: str) -> int:
    return len(re.findall(r"[^\W\d_][\w'’-]*", re.sub(r"`[^`]*`", "name", text)))


def sentences(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        joined = re.sub(r"\s+", " ", block.strip())
        for sentence in re.split(r"(?<=[.!?])[”\")*]*\s+(?=[\W_]*[A-Z0-9ΣδεμσΦ]|`|\*)", joined):
            if words(sentence) > 1:
                yield sentence


def banned(sentence: str) -> Iterator[str]:
    """Yield each banned expression of a sentence with what to write instead."""
    plain = re.sub(r"`[^`]*`|%\(\w+\)[sd]", "name", sentence)
    if any(part in plain for part in ALLOWED):
        return
    for pattern, advice in BANNED.items():
        if match := re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", plain, re.IGNORECASE):
            yield f"“{match[0]}”: {advice}: {sentence[:90]}"
    if plain.rstrip('”’*_)"').endswith("."):
        for pattern, advice in BANNED_FIRST.items():
            if match := re.match(rf"[\W_]*({pattern})\b", plain, re.IGNORECASE):
                yield f"“{match[1]} …”: {advice}: {sentence[:90]}"


def document_faults() -> Iterator[str]:
    for path in documents():
        for sentence in sentences(prose(path.read_text(encoding="utf-8"))):
            for fault in banned(sentence):
                yield f"{path.relative_to(ROOT)}: {fault}"


def text_faults() -> Iterator[str]:
    for entry in polib.pofile(str(ROOT / "locale" / "de" / "LC_MESSAGES" / "django.po")):
        for text in filter(None, (entry.msgid, entry.msgid_plural)):
            for sentence in sentences(text):
                yield from banned(sentence)


def _docstrings(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.Constant]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for place, each in enumerate(body):
            is_string = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            is_first = place == 0 and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            if is_string and isinstance(each.value.value, str):
                yield (node if is_first else each), each.value


def code_faults() -> tuple[list[str], list[str], list[str]]:
    """Return faults of docstrings, of their first lines, and of API descriptions."""
    found: list[str] = []
    first: list[str] = []
    described: list[str] = []
    for path in sorted(path for name in CODE for path in (ROOT / name).rglob("*.py")):
        if "migrations" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = set()
        for node, string in _docstrings(tree):
            documented.add(id(string))
            text, where = str(string.value), f"{path.relative_to(ROOT)}:{string.lineno}"
            found += [f"{where}: {fault}" for each in sentences(text) for fault in banned(each)]
            line = text.strip().split("\n")[0]
            if isinstance(node, ast.FunctionDef) and NO_FIRST_LINE.match(line):
                first.append(f"{where}: begin with a verb or a noun: {line[:90]}")
        if path.is_relative_to(ROOT / "ipate_web" / "api"):
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
                    found_here = [fault for each in sentences(node.value) for fault in banned(each)]
                    described += [f"{path.relative_to(ROOT)}:{node.lineno}: {fault}" for fault in found_here]
    return found, first, described


def too_long() -> Iterator[str]:
    paths = documents()
    total = sum(all_words(path.read_text(encoding="utf-8")) for path in paths if path.parent not in OTHERS)
    if total > MOST_WORDS:
        yield f"{total} words in all documents, at most {MOST_WORDS}"
    for path in paths:
        for sentence in sentences(prose(path.read_text(encoding="utf-8"))):
            if (length := words(sentence)) > LONGEST:
                yield f"{path.relative_to(ROOT)}: {length} words, at most {LONGEST}: {sentence[:80]}…"


def main(arguments: list[str]) -> int:
    """Print the faults of areas over their budget, or all faults of the areas given."""
    docstrings, first_lines, described = code_faults()
    areas = {
        "documents": list(document_faults()),
        "page texts": list(text_faults()),
        "API descriptions": described,
        "docstrings": docstrings,
        "first lines of docstrings": first_lines,
    }
    failed = list(too_long())
    for area, faults in areas.items():
        if len(faults) > BUDGETS[area] or area in arguments:
            failed += [*faults, f"{area}: {len(faults)}, at most {BUDGETS[area]}"]
        elif len(faults) < BUDGETS[area]:
            sys.stdout.write(f"{area}: {len(faults)} are left; lower the budget from {BUDGETS[area]}\n")
    sys.stdout.writelines(f"{line}\n" for line in failed)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
