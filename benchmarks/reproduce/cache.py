"""Folder for what takes long and can be had again: predictions of teachers, releases of other methods."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
