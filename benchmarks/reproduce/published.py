"""The papers' tables as printed, with their setups: benchmarks/data/published."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "data" / "published"


@cache
def published(paper: str) -> dict[str, Any]:
    """All tables of a paper; its `source` and `setup` say which paper, and how they were measured."""
    return dict(json.loads((FOLDER / f"{paper}.json").read_text()))
