"""Run the notebook against a site, and write it with its outputs and charts as a documentation page.

    python client/notebooks/executed.py docs/tutorials/notebook.md

Set IPATE_SITE, IPATE_TOKEN and IPATE_STUDY as for the notebook, and IPATE_APPROVER to the token of an operator who
approves the proposed run; without it, another person has to approve the run while the notebook waits.
"""

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOTEBOOK = HERE / "from-token-to-student.ipynb"
HEAD = "<!-- Written by client/notebooks/executed.py; change the notebook. -->\n\n"


class _Shown(StringIO):
    """Standard output that also stores all written text."""

    def write(self, text: str) -> int:
        os.write(1, text.encode())
        return super().write(text)


def cells() -> list[tuple[str, str]]:
    """Return the kind and source of each cell."""
    found = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in found]


def run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell; return its output, and the value of its last line if that is an expression."""
    body = ast.parse(source).body
    ends = body.pop() if isinstance(body[-1], ast.Expr) else None
    last = ast.Expression(ends.value) if isinstance(ends, ast.Expr) else None
    with redirect_stdout(_Shown()) as printed:
        exec(compile(ast.Module(body, []), "cell", "exec"), names)  # noqa: S102 - our own notebook
        value = None if last is None else eval(compile(last, "cell", "eval"), names)  # noqa: S307
    return printed.getvalue(), value


def shown(value: Any, page: Path, number: int) -> Iterator[str]:
    """Yield a value as a notebook shows it, without inline styles; charts are saved as files next to the page."""
    html = next((getattr(value, name)() for name in ("_repr_html_", "_repr_svg_") if hasattr(value, name)), None)
    if html is None:
        yield f"```text\n{value!r}\n```"
        return
    for place, svg in enumerate(re.findall(r"<svg.*?</svg>", html, re.DOTALL)):
        name = f"{page.stem}-{number}-{place}.svg"
        page.with_name(name).write_text(f"{svg}\n", "utf-8")
        title = re.search(r"<title>(.*?)</title>", svg)
        html = html.replace(svg, f'<img src="{name}" alt="{title[1] if title else name}">')
    html = html.replace("_", "&#95;")  # Markdown with formulas would read this as a subscript
    yield re.sub(r"\s*<style.*?</style>\s*| (?:style|border|class)=\".*?\"|(?<=>)\n\s*", "", html, flags=re.DOTALL)


def main(page: Path) -> None:
    """Run all cells and write the page."""
    names: dict[str, Any] = {}
    parts = []
    for number, (kind, source) in enumerate(cells()):
        if kind == "markdown":
            parts.append(source)
            continue
        if "site.wait(" in source and "IPATE_APPROVER" in os.environ:
            with type(names["site"])(token=os.environ["IPATE_APPROVER"]) as operator:
                operator.approve(names["run"])
        printed, value = run(source, names)
        parts.append(f"```python\n{source}\n```")
        parts += [f"```text\n{printed.rstrip()}\n```"] if printed else []
        parts += [] if value is None else shown(value, page, number)
    page.write_text(HEAD + "\n\n".join(parts) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
