"""Results of the tables: one JSON file each, written case by case."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results" / "reproduce"
Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One number of a table, published and measured.

    quantity: name, with its unit.  published, spread: as printed, and ± or None.  here, here_spread: measured with the
    paper's accounting.  accounts: the same with this project's accounts.  holders: the number to compare with from
    every holder's vote at the case's promises: "labels", "right" or "student".  weaker, weaker_spread: as here, from
    the ensemble whose teachers are right as often as the paper's.  Missing numbers are None.
    """

    quantity: str
    published: float | None
    here: float | None
    spread: float | None = None
    here_spread: float | None = None
    accounts: float | None = None
    holders: str | None = None
    weaker: float | None = None
    weaker_spread: float | None = None

    @property
    def by_weaker(self) -> Row:
        """Return the same row with the weaker ensemble's number instead of the measured one."""
        return replace(self, here=self.weaker, here_spread=self.weaker_spread)

    @property
    def difference(self) -> float | None:
        """Return the measured number minus the published one."""
        return None if self.published is None or self.here is None else self.here - self.published


def mean_row(
    quantity: str,
    published: float | None,
    found: Sequence[float],
    accounts: float | None = None,
    holders: str | None = None,
) -> Row:
    """Return the mean of draws, and their standard deviation if there are several."""
    spread = stdev(found) if len(found) > 1 else None
    return Row(quantity, published, fmean(found), here_spread=spread, accounts=accounts, holders=holders)


@dataclass(frozen=True)
class Promises:
    """Promises of a study: the ε of each group and its share of the holders.

    of_class: class to which all groups after the first are restricted, with these shares of it.
    """

    data: str
    epsilons: tuple[float, ...]
    shares: tuple[float, ...] = (1.0,)
    of_class: int | None = None

    @property
    def setting(self) -> str:
        """Description that distinguishes these promises from others."""
        groups = ", ".join(
            f"{100 * share:g} % at ε {epsilon:.4g}" for epsilon, share in zip(self.epsilons, self.shares, strict=True)
        )
        return f"{self.data}: {groups}" + ("" if self.of_class is None else f", of class {self.of_class} alone")


@dataclass(frozen=True)
class Case:
    """A measurement. `setting` distinguishes it from the table's other cases.

    seeds: seeds of the draws, in order of measurement.  measure: function that returns its rows.  promises: promises of
    the every-holder vote to compare with.
    """

    setting: str
    seeds: tuple[int, ...]
    measure: Callable[[], Sequence[Row]]
    promises: Promises | None = None


def kept(table: str, folder: Path = RESULTS) -> list[Json]:
    """Return the measured cases of a table, in the order of the file; none if there is no file."""
    path = folder / f"{table}.json"
    return list(json.loads(path.read_text())["cases"]) if path.exists() else []


def measured(case: Case) -> Json:
    """Measure a case."""
    clock, processor = time.perf_counter(), time.process_time()
    rows = [{name: _plain(value) for name, value in asdict(row).items()} for row in case.measure()]
    return {
        "setting": case.setting,
        "seeds": list(case.seeds),
        "promises": case.promises and case.promises.setting,
        "seconds": round(time.perf_counter() - clock, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "environment": environment(),
        "rows": rows,
    }


def keep(table: str, cases: Sequence[Json], folder: Path = RESULTS) -> None:
    """Write all cases of a table atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{table}.json.part"
    part.write_text(json.dumps({"table": table, "cases": list(cases)}, indent=1, ensure_ascii=False) + "\n")
    part.rename(folder / f"{table}.json")


def environment() -> Json:
    """Return versions and hardware."""
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "torch")}
    return {
        "python": platform.python_version(),
        **packages,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def _plain(value: str | float | None) -> str | float | None:
    """Return a number for JSON, with six digits."""
    return value if value is None or isinstance(value, str) else float(f"{float(value):.6g}")
