"""Compiled translations: ``python -m ipate_web.catalogues`` compiles each ``.po`` to a ``.mo`` next to it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polib
from django.core.checks import CheckMessage, Error

FOLDER = Path(__file__).parents[1] / "locale"


def catalogues_compile() -> None:
    """Compile every catalogue that has changed since its last compilation, without its fuzzy entries."""
    for source in _changed():
        target = source.with_suffix(".mo")
        draft = target.with_suffix(".draft")  # in the same folder, so that no process reads a half-written catalogue
        polib.pofile(str(source)).save_as_mofile(str(draft))
        draft.replace(target)


def catalogues_check(app_configs: Any, **_: object) -> Iterable[CheckMessage]:
    """Check for outdated translations before every command, so that they are noticed at installation or start."""
    return [
        Error(
            f"{source.relative_to(FOLDER.parent)} is not compiled, or has changed since.",
            hint="Run: make install (or python -m ipate_web.catalogues).",
            id="ipate.E002",
        )
        for source in _changed()
    ]


def _changed() -> list[Path]:
    """Return the catalogues whose compiled file is missing or older."""
    sources = sorted(FOLDER.glob("*/LC_MESSAGES/*.po"))
    return [source for source in sources if _modified_at(source.with_suffix(".mo")) < _modified_at(source)]


def _modified_at(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


if __name__ == "__main__":
    catalogues_compile()
