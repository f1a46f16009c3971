"""Typeset a document with proofs as PDF for reviewers: ``gaussian-accounts.pdf`` on the documentation site."""

import re
from collections.abc import Iterator

import typst
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

_TEMPLATE = """
#set page(paper: "a4", margin: 2.3cm, numbering: "1")
#set text(font: ("Libertinus Serif", "New Computer Modern", "DejaVu Sans Mono"), size: 10pt, lang: "en")
#set par(justify: true)
#set table(stroke: 0.4pt + luma(180))
#show table: set text(size: 8pt)
#show table: set par(justify: false)
#show heading: set block(above: 1.4em, below: 0.7em)
#show raw: set text(size: 8.5pt)
"""
#: Where a name in code may be broken across lines.
_BREAKS = re.compile(r"(?<=[._/])(?=\w)")
_SPECIAL = re.compile(r"[\\#*_`$<>@~\[\]/=+-]")


def pdf(markdown: str) -> bytes:
    """Return a document as PDF, with links to other documents replaced by their text.

    Raises:
        ValueError: the document contains an element that cannot be printed.
    """
    tree = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(markdown))
    source = _TEMPLATE + "\n".join(_block(node) for node in tree.children)
    return typst.compile(source.encode(), format="pdf")


def _text(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", text)


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _inline(node: SyntaxTreeNode) -> str:
    inside = "".join(_inline(child) for child in node.children)
    match node.type:
        case "text":
            return _text(node.content)
        case "softbreak":
            return " "
        case "code_inline":
            return f"#raw({_string(_BREAKS.sub(chr(0x200B), node.content))})"
        case "strong":
            return f"#strong[{inside}]"
        case "em":
            return f"#emph[{inside}]"
        case "inline" | "link":
            return inside
        case _:
            raise ValueError(f"Cannot print a {node.type}.")


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "heading":
            return f"#heading(level: {node.tag[1]})[{_inside(node)}]\n"
        case "paragraph":
            return _inside(node) + "\n"
        case "fence" | "code_block":
            return f"#raw(block: true, {_string(node.content)})\n"
        case "bullet_list" | "ordered_list":
            kind = "list" if node.type == "bullet_list" else "enum"
            items = ", ".join(f"[{chr(10).join(map(_block, item.children))}]" for item in node.children)
            return f"#{kind}({items})\n"
        case "table":
            rows = list(_rows(node))
            # Columns are as wide as their text needs, in steps, so that one long text does not squeeze the others.
            widest = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
            columns = ", ".join(f"{min(max(width, 6), 160)}fr" for width in widest)
            cells = ", ".join(f"[{cell}]" for row in rows for cell in row)
            return f"#table(columns: ({columns},), {cells})\n"
        case _:
            raise ValueError(f"Cannot print a {node.type}.")


def _rows(table: SyntaxTreeNode) -> Iterator[list[str]]:
    for part in table.children:
        for row in part.children:
            yield [_inside(cell) for cell in row.children]


def _inside(node: SyntaxTreeNode) -> str:
    return "".join(_inline(child) for child in node.children)
