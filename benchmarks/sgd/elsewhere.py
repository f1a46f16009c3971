"""Data that the catalogue does not know, as splits of it: people's records, public points, and points for the test."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from learning.formats.catalogue import Splits
from learning.formats.documents import schema_from_json
from learning.formats.files import check_sha256
from learning.formats.read import read_file
from learning.formats.rows import DataError, Rows, as_numbers
from learning.formats.schema import ImageSchema

_SEED = 2022
_PUBLIC = 9_000


@dataclass(frozen=True)
class Elsewhere:
    """A table: its file in the data directory, where to get it, how many people are private and how many public."""

    path: str
    source: str
    sha256: str
    private: int
    public: int


ELSEWHERE = {
    "cardio": Elsewhere(
        "cardio/cardio_train.csv",
        "github.com/sarthakjain36/cardio_data",
        "28590cbf37f72ac631fc8dcb60b4cb3a83ed029f19ff983b7e608ee5d4d4da26",
        50_000,
        5_000,
    ),
    "support2": Elsewhere(
        "support2/support2.csv",
        "github.com/sarahmercaldo/MissingDataAndPrediction",
        "fc21c384aa93b312e97cd818075e98c7a6590a6f80dab478631c7c530d11ce01",
        6105,
        1500,
    ),
}
"""70,000 patients, 11 columns, a disease of heart or vessels or not; 9,105 patients, death in hospital."""


def elsewhere_load(name: str, data_dir: Path) -> Splits:
    """A table with its rows in a random order, a holder for each private one.

    Of SUPPORT2 the columns are left out that are known only after the outcome (death, times, costs, later function,
    orders not to resuscitate), the predictions of a model or of physicians, and the scores of severity, aps and sps.
    """
    known = ELSEWHERE[name]
    path = data_dir / known.path
    if not path.is_file():
        raise DataError(f"The file {known.path} is missing.", f"Get it from {known.source}, SHA-256 {known.sha256}.")
    check_sha256(path, known.sha256)
    schema = schema_from_json(json.loads((Path(__file__).parent / "schemas" / f"{name}.json").read_text("utf-8")))
    rows = read_file(path, schema, holders=False)
    rows = rows[np.random.default_rng(_SEED).permutation(len(rows))]
    private, public = rows[: known.private], rows[known.private : known.private + known.public]
    return Splits(private.one_holder_per_row("person"), public, rows[known.private + known.public :], schema)


FASHION = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
_FASHION_5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b56 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


def fashion_load(data_dir: Path) -> Splits:
    """Fashion-MNIST as the catalogue divides MNIST: training images are private, 9,000 of the test images public.

    From the folder fashion-mnist, or where Debian's package dataset-fashion-mnist puts it.
    """
    places = (data_dir / "fashion-mnist", Path("/usr/share/datasets/fashion-mnist"))
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise DataError("Fashion-MNIST is missing.", f"Put its four .gz files into {places[0]}.")
    schema, paths = ImageSchema(28, 28, 1, FASHION), []
    for name, sha256 in _FASHION_5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b56.items():
        paths.append(folder / f"{name}.gz")
        check_sha256(paths[-1], sha256, name)
    private = read_file(paths[0], schema, label_file=paths[1], holders=False)
    rest = read_file(paths[2], schema, label_file=paths[3], holders=False)
    private, rest = (replace(part, x=as_numbers(part.x)) for part in (private, rest))
    return Splits(private.one_holder_per_row("image"), rest[:_PUBLIC], rest[_PUBLIC:], schema)


CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE = 32


def cifar10_load(data_dir: Path) -> Splits:
    """Of 50,000 training images 9,000 at random are public, the others private, each with a holder; all test images.

    From the binary version of its publisher: a byte for the class, then the pixels channel by channel.
    """
    folder, schema = data_dir / "cifar10", ImageSchema(_SIDE, _SIDE, 3, CIFAR10)
    train, test = (
        _batches(folder, names) for names in ([f"data_batch_{n}.bin" for n in range(1, 6)], ["test_batch.bin"])
    )
    train = train[np.random.default_rng(_SEED).permutation(len(train))]
    return Splits(train[_PUBLIC:].one_holder_per_row("image"), train[:_PUBLIC], test, schema)


def _batches(folder: Path, names: list[str]) -> Rows:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{', '.join(missing)} missing.", f"Put CIFAR-10's binary version into {folder}.")
    records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 1 + 3 * _SIDE**2) for name in names])
    images = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return Rows((images / np.float32(255)).astype(np.float32), records[:, 0].astype(np.int64))
