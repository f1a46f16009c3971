"""Locations of data, votes, printed tables and predictions, and progress bars that do not flood a log."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

SOURCE = "https://storage.googleapis.com/pate-votes/votes.gz (research/pate_2018/ICLR2018 of tensorflow/privacy)"

#: The second ensemble for MNIST, whose teachers are right as often as the paper's.
WEAKER = "mnist-weaker"
#: Number of divisions of each data set into teachers' parts, and the classes of the digits.
DIVISIONS = {"mnist": 1, WEAKER: 1, "adult": 3}
CLASSES = 10


class DataMissing(Exception):
    """Error for missing data of a table. The message says what to do."""


def data_dir() -> Path:
    """Return the folder with real data: IPATE_DATA_DIR, or shared/data next to the project.

    Raises:
        DataMissing: the folder does not exist.
    """
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("IPATE_DATA_DIR") or beside)
    if not folder.is_dir():
        raise DataMissing(
            "Real data are missing: set IPATE_DATA_DIR to a folder with mnist/, adult/, diabetes130/ and "
            "pate_votes/. learning/formats/catalogue.py names the files of the first three, their sources and "
            f"checksums; the votes are mnist_250_teachers.npy and adult_250_teachers.npy from {SOURCE}."
        )
    return folder


def votes_file(name: str, division: int) -> Path:
    """Return the file of a division's votes."""
    return Path(__file__).resolve().parents[1] / "data" / f"votes-{name}-{division}.npz"


FOLDER = Path(__file__).resolve().parents[1] / "data" / "published"


@cache
def published(paper: str) -> dict[str, Any]:
    """Return all tables of a paper; `source` and `setup` describe the paper and its measurements."""
    return dict(json.loads((FOLDER / f"{paper}.json").read_text()))


Json = dict[str, Any]


def cache_dir() -> Path:
    """Return the folder IPATE_REPRODUCE_CACHE, or var/reproduce next to manage.py; it is created if missing."""
    named = os.environ.get("IPATE_REPRODUCE_CACHE")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "var" / "reproduce"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept_array(about: Json, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Return the array that `compute` returned earlier for the same `about`, or compute it now.

    about: everything that the array depends on, as JSON; `name` becomes part of the file's name.
    """
    path = _path(about, "npz")
    if path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays["array"])
    array = compute()
    part = path.with_name(f"part-{os.getpid()}-{path.name}")
    np.savez_compressed(part, array=array)
    part.rename(path)  # files with this name are complete
    return array


def kept_json(about: Json, compute: Callable[[], Json]) -> Json:
    """Return numbers by name, cached as in `kept_array`."""
    path = _path(about, "json")
    if path.exists():
        return dict(json.loads(path.read_text()))
    found = compute()
    part = path.with_name(f"part-{os.getpid()}-{path.name}")
    part.write_text(json.dumps(found))
    part.rename(path)
    return found


def _path(about: Json, ending: str) -> Path:
    text = json.dumps(about, sort_keys=True)
    return cache_dir() / f"{about['name']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.{ending}"


def progress(total: int, what: str) -> Any:
    """Return a progress bar of `total` steps. Without a terminal, it prints a line every half minute."""
    return tqdm(total=total, desc=what, mininterval=0.1 if sys.stderr.isatty() else 30, dynamic_ncols=True)
