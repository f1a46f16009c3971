"""Splits of data that are not in the catalogue: people's records, public points, and test points."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.folders import kept_array
from learning.encoders import EncoderProcess
from learning.formats import TabularSchema
from learning.formats.catalogue import Splits
from learning.formats.columns import NumericColumn, TextColumn
from learning.formats.documents import schema_from_json
from learning.formats.files import check_sha256
from learning.formats.read import read_file
from learning.formats.rows import DataError, Rows, as_numbers
from learning.formats.schema import ImageSchema

_SEED = 2022
_PUBLIC = 9_000


@dataclass(frozen=True)
class Elsewhere:
    """A table: its file in the data directory, its source, and the numbers of private and public people."""

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
"""70,000 patients, 11 columns, with or without a disease of heart or vessels; 9,105 patients, death in hospital."""


def elsewhere_load(name: str, data_dir: Path) -> Splits:
    """Return a table with its rows in random order, one holder for each private row.

    For SUPPORT2, the following columns are left out: those known only after the outcome (death, times, costs, later
    function, orders not to resuscitate), predictions of a model or of physicians, and the severity scores aps and sps.
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
_FASHION_FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


RARE = (0.83, 0.09, 0.05, 0.03)
"""Shares of the generated classes."""


def rare_load(_folder: Path) -> Splits:
    """Return generated records of twelve numbers with rare classes: 6,000 holders, 2,000 public and 5,000 test rows."""
    means = np.random.default_rng(1).normal(0.0, 0.62, (len(RARE), 12))
    means[0] = 0.0
    rng = np.random.default_rng(100)

    def rows(number: int) -> Rows:
        classes = rng.choice(len(RARE), number, p=RARE)
        x = (means[classes] + rng.normal(0.0, 1.0, (number, 12)) + 5.0) / 10.0
        return Rows(x.clip(0.0, 1.0).astype(np.float32), classes)

    columns = tuple(NumericColumn(f"x{place}", 0, 1) for place in range(12))
    private, public, test = rows(6_000), rows(2_000), rows(5_000)
    owned = Rows(private.x, private.y, [f"p-{place:04}" for place in range(6_000)])
    return Splits(owned, public, test, TabularSchema(columns, ("a", "b", "c", "d")))


def fashion_load(data_dir: Path) -> Splits:
    """Return Fashion-MNIST divided like the catalogue's MNIST: training images are private, 9,000 test images public.

    It is read from the folder fashion-mnist, or from Debian's package dataset-fashion-mnist.
    """
    places = (data_dir / "fashion-mnist", Path("/usr/share/datasets/fashion-mnist"))
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise DataError("Fashion-MNIST is missing.", f"Put its four .gz files into {places[0]}.")
    schema, paths = ImageSchema(28, 28, 1, FASHION), []
    for name, sha256 in _FASHION_FILES.items():
        paths.append(folder / f"{name}.gz")
        check_sha256(paths[-1], sha256, name)
    private = read_file(paths[0], schema, label_file=paths[1], holders=False)
    rest = read_file(paths[2], schema, label_file=paths[3], holders=False)
    private, rest = (replace(part, x=as_numbers(part.x)) for part in (private, rest))
    return Splits(private.one_holder_per_row("image"), rest[:_PUBLIC], rest[_PUBLIC:], schema)


CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE, _HELD_OUT, _TEST = 32, 5_000, 1_000


def cifar10_load(data_dir: Path) -> Splits:
    """Return CIFAR-10 with 9,000 random public images of the first 45,000 training images; the others are private.

    Each private image has its own holder. The test images are the last 5,000 training images and the first 1,000 test
    images, which are the same in every copy. This reads the publisher's binary version: a byte for the class, then the
    pixels channel by channel.
    """
    folder, schema = data_dir / "cifar10", ImageSchema(_SIDE, _SIDE, 3, CIFAR10)
    train, test = (
        _batches(folder, names) for names in ([f"data_batch_{n}.bin" for n in range(1, 6)], ["test_batch.bin"])
    )
    known, held_out = train[:-_HELD_OUT], train[-_HELD_OUT:]
    known = known[np.random.default_rng(_SEED).permutation(len(known))]
    judging = Rows(*(np.concatenate([getattr(part, of) for part in (held_out, test[:_TEST])]) for of in ("x", "y")))
    return Splits(known[_PUBLIC:].one_holder_per_row("image"), known[:_PUBLIC], judging, schema)


def _batches(folder: Path, names: list[str]) -> Rows:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{', '.join(missing)} missing.", f"Put CIFAR-10's binary version into {folder}.")
    records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 1 + 3 * _SIDE**2) for name in names])
    images = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return Rows((images / np.float32(255)).astype(np.float32), records[:, 0].astype(np.int64))


_TEXTS, _TEXT_PEOPLE, _MOST_PUBLIC_TEXTS = TextColumn("text", 1000), 4_000, 2_000


def sms_load(data_dir: Path) -> Splits:
    """Return the SMS spam collection of 5,574 messages. Each line has a class, a tab and the message."""
    lines = _text_file(data_dir, "SMSSpamCollection").split("\n")
    rows = [line.split("\t", 1) for line in lines if line]
    return _texts([text for _, text in rows], [kind for kind, _ in rows], ("ham", "spam"))


def news_load(data_dir: Path) -> Splits:
    """Return the official test part of AG News, 7,600 texts in four classes: title and description."""
    rows = list(csv.DictReader(io.StringIO(_text_file(data_dir, "ag_news_test.csv"))))
    texts = [f"{row['title']} {row['description']}" for row in rows]
    return _texts(texts, [row["label"] for row in rows], ("1", "2", "3", "4"))


def _text_file(data_dir: Path, name: str) -> str:
    path = data_dir / "texts" / name
    if not path.is_file():
        raise DataError(f"The file texts/{name} is missing.", "See docs/encoders.md for what it is.")
    return path.read_text("utf-8")


def _texts(texts: list[str], kinds: list[str], classes: tuple[str, ...]) -> Splits:
    """Return texts in random order: public texts, 4,000 texts of one holder each, and the rest as test texts."""
    rows = Rows(_TEXTS.encode(texts), np.array([classes.index(kind) for kind in kinds]))
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    public = min(_MOST_PUBLIC_TEXTS, (len(rows) - _TEXT_PEOPLE) // 2)
    last = public + _TEXT_PEOPLE
    schema = TabularSchema((_TEXTS,), classes)
    return Splits(rows[public:last].one_holder_per_row("person"), rows[:public], rows[last:], schema)


_PIXELS = 112


def encoded(name: str, splits: Splits) -> Splits:
    """Return the same data with each image or text encoded separately, by EfficientNet-Lite0 or MiniLM."""

    def vectors(of: str, part: Rows) -> Rows:
        about = {"name": f"{name}-{of}", "pixels": _PIXELS, "records": hashlib.sha256(part.x.tobytes()).hexdigest()}
        return replace(part, x=kept_array(about, lambda: _vectors(part.x)))

    parts = {of: vectors(of, getattr(splits, of)) for of in ("private", "public", "test")}
    return replace(splits, **parts)


def _vectors(records: NDArray[Any]) -> NDArray[Any]:
    from learning.encoders.making import efficientnet_lite0, minilm

    encoder = efficientnet_lite0(_PIXELS) if records.ndim > 2 else minilm()
    with EncoderProcess(encoder, records.shape[1:]) as process:
        return process.encode(records)
