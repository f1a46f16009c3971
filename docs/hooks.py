"""MkDocs hooks: pages from outside ``docs/``, proofs as PDF, and no inline scripts.

The site's content security policy allows no inline scripts, but the theme writes some into every page.
"""

import hashlib
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import proofs

ROOT = Path(__file__).resolve().parents[1]
#: Documents that stay where people look for them in a repository → their pages.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "accounting/privacy/papers/README.md": "privacy-accounting.md",
    "client/README.md": "client.md",
    "benchmarks/README.md": "benchmark-commands.md",
    "benchmarks/results/methods.md": "results-methods.md",
    "benchmarks/results/steps.md": "results-steps.md",
    "benchmarks/results/sampled_steps.md": "results-sampled-steps.md",
    "benchmarks/results/students.md": "results-students.md",
    "benchmarks/results/accounting.md": "results-accounting.md",
    "benchmarks/results/attacks.md": "results-attacks.md",
    "benchmarks/results/representations.md": "results-representations.md",
    "benchmarks/results/scaling.md": "results-scaling.md",
    "locale/README.md": "locale.md",
}
PROOFS, PDF = "gaussian-accounts.md", "gaussian-accounts.pdf"
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(r"(!\[[^\]]*\]\()([^)\s]+)\)")
_LETTERS = "A-Za-zΑ-Ωα-ω0-9"
_BELOW = re.compile(rf"(?<=[A-Za-zΑ-Ωα-ω‖ΣΠ∫′)ŷ₀])_(?:\{{([^{{}}]*)\}}|([{_LETTERS}]{{1,3}}′?))")
_ABOVE = re.compile(rf"(?<=[{_LETTERS}\)′₀])\^(?:\{{([^{{}}]*)\}}|(−?[{_LETTERS}]₀?′?))")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add documents from outside ``docs/``."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, PDF, content=proofs.pdf((ROOT / "docs" / PROOFS).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links that are correct in the repository to pages; replace a link to any other file with its name."""
    path = page.file.src_path
    source = next((outside for outside, inside in OUTSIDE.items() if inside == path), f"docs/{path}")

    def target(link: str) -> str | None:
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        inside = OUTSIDE.get(place) or (place.removeprefix("docs/") if place.startswith("docs/") else None)
        return inside and posixpath.relpath(inside, posixpath.dirname(path) or ".")

    def linked(match: re.Match[str]) -> str:
        text, link, section = match[1], match[2], match[3] or ""
        if "://" in link or link.startswith("mailto:"):
            return match[0]
        found = target(link)
        if found is None and not (ROOT / posixpath.dirname(source) / link).exists():
            raise ValueError(f"{source} links to {link}, which does not exist.")
        return f"[{text}]({found}{section})" if found else text

    markdown = _LINK.sub(linked, markdown)
    if path == PROOFS:
        markdown = markdown.replace("\n\n", f"\n\n[This page as PDF]({PDF}).\n\n", 1)
    return _PICTURE.sub(lambda match: f"{match[1]}{target(match[2]) or match[2]})", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Typeset subscripts and superscripts in formulas, such as x_t and e^{−x}, outside of code."""
    depth, parts = 0, []
    for part in re.split(r"(<[^>]*>)", html):
        if part.startswith(("<code", "<pre")):
            depth += 1
        elif part.startswith(("</code", "</pre")):
            depth -= 1
        elif not part.startswith("<") and not depth:
            part = _BELOW.sub(lambda match: f"<sub>{match[1] or match[2]}</sub>", part)
            part = _ABOVE.sub(lambda match: f"<sup>{match[1] or match[2]}</sup>", part)
        parts.append(part)
    return "".join(parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move the theme's inline scripts into files."""

    def moved(match: re.Match[str]) -> str:
        name = f"assets/page-{hashlib.sha256(match[1].encode()).hexdigest()[:16]}.js"
        file = Path(config.site_dir, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(match[1], encoding="utf-8")
        return f'<script src="{posixpath.relpath(name, posixpath.dirname(page.url) or ".")}"></script>'

    return _SCRIPT.sub(moved, output)


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """Drop the theme's page for HTTP 404, because the application has its own."""
    return "" if template_name == "404.html" else output_content
