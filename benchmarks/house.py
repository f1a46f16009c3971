"""Measure how the code is divided into files (``make house``; ``make house LIST=1`` lists the small modules).

The numbers show where to look. They are no reason to join unrelated code.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("accounting", "common", "consent", "ipate_web", "learning", "training")
#: A module with fewer lines and one importer should be moved there, unless others are meant to extend it.
SMALL = 70
#: Minimum length of a long line in a template.
LONG = 160
RUN_PAGE = "staff/runs/run.html"


def modules() -> dict[str, Path]:
    """Return all product modules by their dotted names, without migrations."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
    }


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield every dotted name that a module imports, relative imports resolved."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{each.name}" for each in node.names)


def importers(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return, for each product module, the product modules that import it."""
    found = defaultdict(set)
    for name, path in known.items():
        for each in imported(name, path):
            module = each if each in known else each.rpartition(".")[0]
            if module in known:
                found[module].add(name)
    return found


def small(known: dict[str, Path]) -> dict[str, str]:
    """Return each module with few lines and exactly one importer, with the name of that importer."""
    used = importers(known)
    return {
        name: next(iter(used[name]))
        for name, path in known.items()
        if path.name != "__init__.py" and len(used[name]) == 1 and lines(path) < SMALL
    }


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def templates() -> dict[str, str]:
    """Return the text of every template by its name."""
    root = ROOT / "templates"
    return {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in sorted(root.rglob("*"))
        if path.suffix in {".html", ".txt", ".md"}
    }


def parts(name: str, texts: dict[str, str]) -> set[str]:
    """Return the template and all templates on which it depends (extends, includes, components), also indirectly."""
    defined = {tag: file for file, text in texts.items() for tag in re.findall(r"{% component (\w+)", text)}
    seen, waiting = {name}, [name]
    while waiting:
        text = texts[waiting.pop()]
        named = re.findall(r"""["']([\w/.-]+\.(?:html|txt|md))["']""", text)
        used = (defined[tag] for tag in re.findall(r"{% (\w+)", text) if tag in defined)
        new = ({*named, *used} & texts.keys()) - seen
        seen |= new
        waiting += new
    return seen


def measured() -> list[tuple[str, int, int]]:
    """Return each measure, its value, and its limit."""
    known, texts = modules(), templates()
    return [
        ("product modules without migrations", len(known), 450),
        (f"modules under {SMALL} lines with one importer", len(small(known)), 8),
        ("lines of product Python", sum(map(lines, known.values())), 78_000),
        ("files of training/", sum(name.split(".")[0] == "training" for name in known), 80),
        ("templates", len(texts), 220),
        ("templates of the run page", len(parts(RUN_PAGE, texts)), 15),
        (
            f"lines of templates over {LONG} characters",
            sum(len(line) > LONG for text in texts.values() for line in text.splitlines()),
            0,
        ),
    ]


def main(arguments: list[str]) -> None:
    for what, now, goal in measured():
        sys.stdout.write(f"{what:<46}{now:>8,} → {goal:>6,}\n")
    if "--list" in arguments:
        for name, importer in sorted(small(modules()).items()):
            sys.stdout.write(f"{name} → {importer}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
