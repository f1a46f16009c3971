"""Check that the hand-written documents are in plain English: ``python docs/plain_english.py`` (part of ``make lint``).

It reads prose alone: no code, no tables, no headings. A sentence ends at a full stop, question or exclamation mark, or
at the end of its paragraph or item. Words are counted as runs of letters, and a name in code counts as one.
"""

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Written by programs.
GENERATED = {"docs/reproduction.md", "docs/benchmarks.md"}
#: About what changed, and so with a past.
WITH_HISTORY = {"CHANGELOG.md"}

MOST_WORDS = 40_000
"""In all documents together; lower it as documents become shorter."""
MEAN, MEDIAN, LONGEST = 21, 20, 70
"""Most words of a sentence of one document: on average, in the middle, and of each."""
MEAN_OF_ALL, MEDIAN_OF_ALL = 17, 16
"""The same of the sentences of all documents."""

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
}


def documents() -> list[Path]:
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *(ROOT / name / "README.md" for name in ("client", "locale")),
    ]
    return sorted(path for path in found if str(path.relative_to(ROOT)) not in GENERATED | WITH_HISTORY)


def prose(text: str) -> str:
    """The text without code, tables, headings, pictures and addresses."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "![", "<img")))
    return re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", text)


def words(text: str) -> int:
    return len(re.findall(r"[^\W\d_][\w'’-]*", re.sub(r"`[^`]*`", "name", text)))


def sentences(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        joined = re.sub(r"\s+", " ", block.strip())
        for sentence in re.split(r"(?<=[.!?])[”\")*]*\s+(?=[\W_]*[A-Z0-9ΣδεμσΦ]|`|\*)", joined):
            if words(sentence) > 1:
                yield sentence


def faults(path: Path) -> Iterator[str]:
    text = prose(path.read_text(encoding="utf-8"))
    found = list(sentences(text))
    lengths = [words(sentence) for sentence in found]
    if not lengths:
        return
    name = path.relative_to(ROOT)
    if (mean := statistics.mean(lengths)) > MEAN:
        yield f"{name}: {mean:.1f} words a sentence on average, at most {MEAN}"
    if (median := statistics.median(lengths)) > MEDIAN:
        yield f"{name}: {median:g} words in the median sentence, at most {MEDIAN}"
    for sentence, length in zip(found, lengths, strict=True):
        if length > LONGEST:
            yield f"{name}: {length} words, at most {LONGEST}: {sentence[:80]}…"
        for pattern, advice in BANNED.items():
            if match := re.search(rf"(?<!\w)(?:{pattern})(?!\w)", sentence, re.IGNORECASE):
                yield f"{name}: “{match[0]}”: {advice}: {sentence[:80]}…"


def main() -> int:
    paths = documents()
    found = [fault for path in paths for fault in faults(path)]
    total = sum(words(prose(path.read_text(encoding="utf-8"))) for path in paths)
    if total > MOST_WORDS:
        found.append(f"{total} words in all documents, at most {MOST_WORDS}")
    lengths = [words(each) for path in paths for each in sentences(prose(path.read_text(encoding="utf-8")))]
    mean, median = statistics.mean(lengths), statistics.median(lengths)
    summary = f"{total} words in {len(paths)} documents, {mean:.1f} a sentence, median {median:g}"
    if mean > MEAN_OF_ALL or median > MEDIAN_OF_ALL:
        found.append(f"{summary}; at most {MEAN_OF_ALL} and {MEDIAN_OF_ALL}")
    sys.stdout.writelines(f"{line}\n" for line in found or [summary])
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
