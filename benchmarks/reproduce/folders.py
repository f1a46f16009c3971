"""Where data and votes are."""

from __future__ import annotations

import os
from pathlib import Path

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
