"""Where data, votes, printed tables and predictions are, and progress bars that do not flood a log."""

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

#: The second ensemble of MNIST, whose teachers are as often right as the printed ones.
WEAKER = "mnist-weaker"
#: How often each data set was divided into teachers' parts, and the classes of the digits.
DIVISIONS = {"mnist": 1, WEAKER: 1, "adult": 3}
CLASSES = 10


class DataMissing(Exception):
    """Data that a table needs are not here; the message says what to do."""


def data_dir() -> Path:
    """The folder with real data: IPATE_DATA_DIR, or shared/data beside the project.

    Raises:
        DataMissing: there is none.
    """
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("IPATE_DATA_DIR") or beside)
    if not folder.is_dir():
        raise DataMissing(
            "There are no real data here: set IPATE_DATA_DIR to a folder with mnist/, adult/, diabetes130/ and "
            "pate_votes/. learning/formats/catalogue.py names the files of the first three, their sources and "
            f"checksums; the votes are mnist_250_teachers.npy and adult_250_teachers.npy from {SOURCE}."
        )
    return folder


def votes_file(name: str, division: int) -> Path:
    """Where the votes of a division are kept."""
    return Path(__file__).resolve().parents[1] / "data" / f"votes-{name}-{division}.npz"


FOLDER = Path(__file__).resolve().parents[1] / "data" / "published"


@cache
def published(paper: str) -> dict[str, Any]:
    """All tables of a paper; its `source` and `setup` say which paper, and how they were measured."""
    return dict(json.loads((FOLDER / f"{paper}.json").read_text()))


Json = dict[str, Any]


def cache_dir() -> Path:
    """The folder that IPATE_REPRODUCE_CACHE names, or var/reproduce beside manage.py; it is made if it is missing."""
    named = os.environ.get("IPATE_REPRODUCE_CACHE")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "var" / "reproduce"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept_array(about: Json, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """The array that `compute` returned for the same `about` before, or returns now.

    about: everything that the array depends on, as JSON; `name` becomes part of the file's name.
    """
    path = _path(about, "npz")
    if path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays["array"])
    array = compute()
    part = path.with_name(f"part-{os.getpid()}-{path.name}")
    np.savez_compressed(part, array=array)
    part.rename(path)  # a file of this name is whole
    return array


def kept_json(about: Json, compute: Callable[[], Json]) -> Json:
    """As `kept_array`, of numbers by name."""
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
    """A bar of `total` steps; without a terminal a line every half minute."""
    return tqdm(total=total, desc=what, mininterval=0.1 if sys.stderr.isatty() else 30, dynamic_ncols=True)
