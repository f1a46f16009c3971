"""Progress bars that do not flood a log."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress(total: int, what: str) -> Any:
    """A bar of `total` steps; without a terminal a line every half minute."""
    return tqdm(total=total, desc=what, mininterval=0.1 if sys.stderr.isatty() else 30, dynamic_ncols=True)
