"""Catalogue of known datasets: files, publishers, licences, schemas, splits.

Splits are shuffled with a fixed seed, so that private, public and test records never mix between runs. Public records
keep their true labels only for evaluation: students learn from labels that were released by votes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np

from common.progress import Progress
from learning.formats.documents import schema_from_json
from learning.formats.files import check_sha256, holds
from learning.formats.read import read_file
from learning.formats.rows import DataError, Rows, as_numbers
from learning.formats.schema import ImageSchema, Schema, TabularSchema

_SEED = 2022
_DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Splits:
    """Splits of a dataset: private records with holders, and public and test records without holders."""

    private: Rows
    public: Rows
    test: Rows
    schema: Schema


@dataclass(frozen=True)
class KnownDataset:
    """Source and licence of a dataset, its folder in the data directory, and its files.

    Attributes:
        files: SHA-256 of each file's uncompressed content, by name.
    """

    title: str
    publisher: str
    source: str
    licence: str
    folder: str
    files: Mapping[str, str]
    split: Callable[[tuple[Path, ...], Progress | None], Splits]


def catalogue_load(name: str, data_dir: Path | str | None = None, progress: Progress | None = None) -> Splits:
    """Load a known dataset from ``data_dir`` after verifying its checksums.

    A file may be plain, ``.gz``, or inside any zip file in its folder. ``digits`` is included in scikit-learn and needs
    no files.

    Raises:
        DataError: A file is missing or has a different checksum. The message explains how to get and check it, and
            where to put it.

    >>> splits = catalogue_load("digits")
    >>> len(splits.private), len(splits.public), len(splits.test), splits.schema.shape
    (1300, 300, 197, (8, 8))
    """
    files = catalogue_files(name, data_dir)
    return CATALOGUE[name].split(files, progress)


def catalogue_files(name: str, data_dir: Path | str | None = None) -> tuple[Path, ...]:
    """Return the paths of a known dataset's files, after verifying their checksums.

    Raises:
        DataError: See `catalogue_load`.
    """
    if name not in CATALOGUE:
        raise DataError(f"There is no known dataset “{name}”.", f"Choose one of: {', '.join(CATALOGUE)}.")
    known = CATALOGUE[name]
    if known.files and data_dir is None:
        raise DataError(
            f"{known.title} is read from files, but no data directory is set.",
            f"Put {', '.join(known.files)} from {known.source} into the folder {known.folder} "
            "of a data directory, and set IPATE_DATA_DIR to it. The SHA-256 of the uncompressed files (check them with "
            f"sha256sum): {', '.join(f'{file} {sha256}' for file, sha256 in known.files.items())}.",
        )
    files = tuple(_locate(known, file, Path(data_dir or ".")) for file in known.files)
    for (file, sha256), path in zip(known.files.items(), files, strict=True):
        check_sha256(path, sha256, file)
    return files


def _locate(known: KnownDataset, file: str, data_dir: Path) -> Path:
    folder = data_dir / known.folder
    for path in (folder / file, folder / f"{file}.gz"):
        if path.is_file():
            return path
    for path in sorted(folder.glob("*.zip")):
        if holds(path, file):
            return path
    raise DataError(
        f"The file {file} is missing.",
        f"Get it from {known.source} and put it, plain, gzipped or in its zip file, into {folder}; "
        f"the SHA-256 of the uncompressed file is {known.files[file]} (check it with sha256sum).",
    )


def _shuffled(count: int) -> np.ndarray:
    return np.random.default_rng(_SEED).permutation(count)


def _split_digits(paths: tuple[Path, ...], progress: Progress | None) -> Splits:
    """Return 1,300 private digits, each with its own holder, 300 public digits, and 197 test digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = Rows((digits.images / 16).astype(np.float32), digits.target.astype(np.int64)).one_holder_per_row("digit")
    order = _shuffled(len(rows))
    if progress:
        progress(len(rows), len(rows))
    public = rows.without_holders()
    schema = ImageSchema(8, 8, 1, _DIGITS)
    return Splits(rows[order[:1300]], public[order[1300:1600]], public[order[1600:]], schema)


def _split_mnist(paths: tuple[Path, ...], progress: Progress | None) -> Splits:
    """Make the 60,000 training images private, each with its own holder, and the first 9,000 test images public."""
    schema = ImageSchema(28, 28, 1, _DIGITS)
    train_images, train_labels, test_images, test_labels = paths
    private = read_file(train_images, schema, label_file=train_labels, holders=False, progress=progress)
    rest = read_file(test_images, schema, label_file=test_labels, holders=False)
    private, rest = (replace(part, x=as_numbers(part.x)) for part in (private, rest))
    return Splits(private.one_holder_per_row("image"), rest[:9000], rest[9000:], schema)


def _split_adult(paths: tuple[Path, ...], progress: Progress | None) -> Splits:
    """Make ``adult.data`` private, with a holder per row, and the first 13,000 rows of ``adult.test`` public."""
    schema = _table_schema("adult")
    train, test = paths
    private = read_file(train, schema, member="adult.data", holders=False, progress=progress)
    rest = read_file(test, schema, member="adult.test", holders=False)
    return Splits(private.one_holder_per_row("person"), rest[:13_000], rest[13_000:], schema)


def _split_diabetes(paths: tuple[Path, ...], progress: Progress | None) -> Splits:
    """Assign patients, with all their records, to three sets: 60,000 private, 9,000 public, 2,518 test."""
    schema = _table_schema("diabetes")
    rows = read_file(paths[0], schema, member="diabetic_data.csv", progress=progress)
    _, patient = np.unique(np.array(rows.holders), return_inverse=True)
    place = _shuffled(int(patient.max()) + 1)[patient]
    private = rows[place < 60_000]
    private = Rows(private.x, private.y, [f"patient-{holder}" for holder in private.holders or ()])
    public = rows.without_holders()
    return Splits(private, public[(place >= 60_000) & (place < 69_000)], public[place >= 69_000], schema)


def _table_schema(name: str) -> TabularSchema:
    document = package_files("learning.formats").joinpath("schemas", f"{name}.json").read_text("utf-8")
    schema = schema_from_json(json.loads(document))
    assert isinstance(schema, TabularSchema)
    return schema


_SPLITS = {"digits": _split_digits, "mnist": _split_mnist, "adult": _split_adult, "diabetes": _split_diabetes}
CATALOGUE: dict[str, KnownDataset] = {
    name: KnownDataset(
        **{key: text for key, text in known.items() if key != "files"},
        files=known.get("files", {}),
        split=_SPLITS[name],
    )
    for name, known in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
"""Datasets by name, as described in catalogue.toml."""
