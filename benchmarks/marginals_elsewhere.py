"""AIM and MST (McKenna, Miklau, Sheldon 2021, 2022) with their authors' code, for comparison with our rows on Adult.

Their code is not installed with this project. It is the repository ``ryan112358/private-pgm`` at commit 4152cc5, the
last one that uses numpy, in the folder ``--library``, and needs pandas before version 3. Mechanisms and inference are
theirs; their cost is set to the same μ² as ours.

    python -m benchmarks.marginals_elsewhere aim --library FOLDER --workload classes
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster.hierarchy import DisjointSet

from accounting.caps import caps_of
from benchmarks.sgd.study import DELTA, splits_load
from benchmarks.synthesis import judged, judging
from learning.formats import TabularSchema
from learning.mechanisms.counts.table_plan import CountedColumn, Places, column_names, columns_of
from learning.mechanisms.protocol import Records
from learning.mechanisms.synthesis.rounds import cells_encode

BINS = 32
MOST_CELLS = 10_000
"""Largest number of cells in a table of the workload, as in the authors' own program."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mechanism", choices=("aim", "mst"))
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--workload", choices=("pairs", "classes"), default="pairs")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="rounds of AIM; 16 for each column by default")
    parser.add_argument("--iterations", type=int, default=1000, help="iterations of inference per round of AIM")
    parser.add_argument("--megabytes", type=float, default=80.0, help="maximum size of AIM's model")
    options = parser.parse_args()
    library_use(options.library)
    splits = splits_load("adult")
    assert isinstance(splits.schema, TabularSchema)
    schema, private = splits.schema, splits.private
    columns = columns_of(schema, column_names(schema), BINS)
    places = Places(Records(private.x, private.y, np.arange(len(private.x))))
    cells = np.stack([places.cells([column]) for column in columns], axis=1)
    test, truth = judging("adult")
    for seed in range(options.draws):
        np.random.seed(seed)  # the authors' code draws from this generator
        clock = time.process_time()
        drawn = mst(cells, columns, options.epsilon) if options.mechanism == "mst" else aim(cells, columns, options)
        took = time.process_time() - clock
        x = np.zeros((len(drawn), *schema.shape), np.float32)
        for place, column in enumerate(columns[1:], start=1):
            cells_encode(x, column, drawn[:, place], np.random.default_rng(seed))
        accuracy, area = judged(x, drawn[:, 0], test, truth)
        print(f"{options}: draw {seed}: {100 * accuracy:.2f} %, {area:.4f}; {took:.0f} s", flush=True)


def library_use(folder: Path) -> None:
    """Make the authors' code importable without packages that are not needed here."""
    sys.path[:0] = [str(folder / "src"), str(folder), str(folder / "mechanisms")]
    for name, taken, instead in (
        ("hdmm", "matrix", None),
        ("hdmm.matrix", "Identity", sparse.identity),
        ("autodp", "privacy_calibrator", None),
        ("mechanisms.cdp2adp", "cdp_rho", None),  # computed from an (ε, δ); ours comes from the cap
    ):
        sys.modules[name] = ModuleType(name)
        setattr(sys.modules[name], taken, instead)


def dataset(cells: NDArray[np.int64], columns: tuple[CountedColumn, ...]) -> Any:
    """Return cells (N, columns) as a dataset of the authors' library."""
    from mbi import Dataset, Domain

    names = [column.name for column in columns]
    return Dataset(pd.DataFrame(cells, columns=names), Domain(names, [column.size for column in columns]))


def rho_of(epsilon: float) -> float:
    """Return the zCDP cost of N(0, 1/μ²) for a vector of norm 1: μ²/2, half of this promise's cap."""
    return float(caps_of(epsilon, DELTA)) / 2


def aim(cells: NDArray[np.int64], columns: tuple[CountedColumn, ...], options: argparse.Namespace) -> NDArray[np.int64]:
    """Return cells (N, columns) of rows that AIM draws for all pairs, or for all pairs within classes."""
    from aim import AIM

    data = dataset(cells, columns)
    label, *others = data.domain.attrs
    wanted = combinations(data.domain.attrs, 2)
    if options.workload == "classes":
        wanted = ((label, *pair) for pair in combinations(others, 2))
    workload = [(each, 1.0) for each in wanted if data.domain.size(each) <= MOST_CELLS]
    mechanism = AIM.__new__(AIM)  # its own initialiser converts another (ε, δ)
    mechanism.rho, mechanism.prng, mechanism.structural_zeros = rho_of(options.epsilon), np.random, {}
    mechanism.rounds, mechanism.max_iters = options.rounds, options.iterations
    mechanism.max_model_size = options.megabytes
    _model, drawn = mechanism.run(data, workload)
    return drawn.df.to_numpy(np.int64)


def mst(cells: NDArray[np.int64], columns: tuple[CountedColumn, ...], epsilon: float) -> NDArray[np.int64]:
    """Return cells (N, columns) of rows that MST draws."""
    import mst as authors

    authors.cdp_rho = lambda _epsilon, _delta: rho_of(epsilon)
    authors.DisjointSet = partial(DisjointSet, [column.name for column in columns])  # scipy's does not add elements
    return authors.MST(dataset(cells, columns), epsilon, DELTA).df.to_numpy(np.int64)


if __name__ == "__main__":
    main()
