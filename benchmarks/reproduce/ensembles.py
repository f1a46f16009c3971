"""Votes of MNIST's teachers as Individualized PATE has them, on the public images of one division.

    IPATE_DATA_DIR=… python -m benchmarks.reproduce.ensembles [--teachers 250]

Writes benchmarks/data/votes-mnist.npz: how many teachers say what of each public image, and its true class. Predictions
are kept in the cache for every ten teachers, so that an interrupted run goes on there. Fewer than 250 teachers give the
same shares of votes, less exactly: rehearsals draw from them.

The network is that of Table 3, and its images are turned by up to 7.5 degrees and shifted by up to 7 %, as printed. The
paper does not say how often an image is seen; here it is with seven moved copies, twice each. The kept votes are of the
first 110 teachers, which are 89.0 % right (printed: 90.2 %), their votes 95.8 % (97.7 %).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

VOTES = Path(__file__).resolve().parents[1] / "data" / "votes-mnist.npz"
TEACHERS, CHUNK = 250, 10
NETWORK = {"epochs": 2}
COPIES, CLASSES = 7, 10


def with_copies(
    images: NDArray[np.float32], labels: NDArray[np.integer], *, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
    """The images and their turned and shifted copies, each by itself, and the classes of all."""
    import torch

    from learning.students.moves import Moves

    moves = Moves(rotation=7.5, shift=0.07, stretch=0.0, bend=0.0, mirror=False, erase=0.0)
    copies = torch.from_numpy(images)[:, None].repeat(COPIES, 1, 1, 1)
    moved = moves(copies, torch.Generator().manual_seed(seed)).numpy()[:, 0]
    return np.concatenate([images, moved]), np.tile(labels, 1 + COPIES)


def predictions(teachers: int) -> NDArray[np.int8]:
    """Classes `(teachers, public)` by the first of 250 teachers, each of 240 private images."""
    from benchmarks.reproduce.cache import kept_array
    from benchmarks.reproduce.divided import divided
    from benchmarks.reproduce.progress import progress
    from learning.learners import learner_create

    data, learner = divided(), learner_create("cnn", NETWORK)
    parts = np.array_split(np.arange(len(data.private.y)), TEACHERS)
    about = {"name": "printed-mnist", "learner": "cnn", "parameters": NETWORK, "division": 0}

    def chunk(first: int) -> NDArray[np.int8]:
        said = []
        for teacher in range(first, first + CHUNK):
            x, y = with_copies(data.private.x[parts[teacher]], data.private.y[parts[teacher]], seed=teacher)
            model = learner.fit(x, y, classes=CLASSES, seed=teacher)
            said.append(model.predict(data.public.x).astype(np.int8))
        return np.stack(said)

    with progress(teachers, "teachers of MNIST") as bar:
        chunks = []
        for first in range(0, teachers, CHUNK):
            chunks.append(kept_array(about | {"first": first}, lambda first=first: chunk(first)))  # type: ignore[misc]
            bar.update(CHUNK)
    return np.concatenate(chunks)


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.reproduce.divided import divided

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", type=int, default=TEACHERS)
    said, truth = predictions(parser.parse_args().teachers), divided().public.y
    counts = np.stack([(said == one).sum(axis=0) for one in range(CLASSES)], axis=1)
    np.savez_compressed(VOTES, counts=counts.astype(np.uint8), truth=truth.astype(np.uint8))
    right = 100 * float((said == truth).mean()), 100 * float((counts.argmax(axis=1) == truth).mean())
    print(f"{len(said)} teachers: {right[0]:.2f} % right, votes {right[1]:.2f} %")


if __name__ == "__main__":
    main()
