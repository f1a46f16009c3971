"""Estimators with an ε per row, compared with Opacus and diffprivlib, which have one ε for all: Adult, test accuracy.

    IPATE_DATA_DIR=FOLDER python -m benchmarks.estimators [--diffprivlib PYTHON] [--seeds 5]

The folder holds Adult. The other libraries are not requirements of the project. Install opacus with `--no-deps` into an
environment that includes this one (and remove its own folder `benchmarks` there); if it is missing, it is left out.
diffprivlib needs an older scikit-learn than ours, so pass the Python of a separate environment. Every row has the
promise ε = 1, 2 or 4 (34, 43 and 23 %). Libraries with a single ε have to use the smallest. For synthetic rows, the
accuracy is that of boosted trees trained on them. Numbers are stored in benchmarks/results/estimators.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from learning.estimators import IndividualDPClassifier, IndividualDPSynthesis
from learning.formats import catalogue_load
from learning.formats.catalogue import Splits
from learning.mechanisms.counts.table_plan import feature_columns

RESULTS = Path(__file__).resolve().parent / "results" / "estimators.json"
DELTA, EPSILONS, PARTS = 1e-5, (1.0, 2.0, 4.0), (0.34, 0.43, 0.23)
Arrays = dict[str, np.ndarray]
Labels = Callable[[Arrays, int], np.ndarray]

#: Run by a Python with diffprivlib. Its promise is pure ε, and the norm of rows has to be public.
DIFFPRIVLIB = """
import sys
import numpy as np
from diffprivlib.models import LogisticRegression
data, out, epsilon, seed = np.load(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
clip = lambda x: x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True) / 3.0)
model = LogisticRegression(epsilon=epsilon, data_norm=3.0, C=1.0, max_iter=500, random_state=seed)
model.fit(clip(data["x"]), data["y"])
np.save(out, model.predict_proba(clip(data["test"]))[:, 1])
"""


@cache
def _splits() -> Splits:
    return catalogue_load("adult", Path(os.environ["IPATE_DATA_DIR"]))


def adult(rows: int) -> Arrays:
    """Return private rows, public points without labels, and test rows with their classes."""
    splits = _splits()
    assert splits.private.y is not None and splits.test.y is not None
    names = {"x": splits.private.x[:rows], "y": splits.private.y[:rows], "public": splits.public.x[:2_000]}
    return {**names, "test": splits.test.x, "truth": splits.test.y}


def ours(method: str, epsilons: float | None) -> Labels:
    """Return a function that predicts with our estimator; each row has its own ε if ``epsilons`` is None."""

    def labels(data: Arrays, seed: int) -> np.ndarray:
        own = np.random.default_rng(seed).choice(EPSILONS, len(data["x"]), p=PARTS)
        model = IndividualDPClassifier(
            own if epsilons is None else epsilons, delta=DELTA, public=data["public"], method=method, seed=seed
        )
        return np.asarray(model.fit(data["x"], data["y"]).predict(data["test"]))

    return labels


def synthesis(epsilons: float | None) -> Labels:
    """Return a function that predicts with boosted trees trained on our synthetic rows; ``epsilons`` as in `ours`."""

    def labels(data: Arrays, seed: int) -> np.ndarray:
        from sklearn.ensemble import HistGradientBoostingClassifier

        columns = feature_columns(_splits().schema, 20)

        def values(x: np.ndarray) -> dict[str, np.ndarray]:
            blocks = {column: x[:, column.start : column.start + column.width] for column in columns}
            return {c.name: each[:, 0] if c.edges else each.argmax(axis=1).astype(str) for c, each in blocks.items()}

        own = np.random.default_rng(seed).choice(EPSILONS, len(data["x"]), p=PARTS)
        model = IndividualDPSynthesis(
            own if epsilons is None else epsilons,
            delta=DELTA,
            columns={c.name: (0, 1) if c.edges else [str(code) for code in range(c.width)] for c in columns},
            classes=["0", "1"],
            bins=20,
            seed=seed,
        ).fit(values(data["x"]), data["y"].astype(str))
        drawn, test = (
            np.column_stack([np.asarray(each[c.name], float) for c in columns])
            for each in (model.rows_, values(data["test"]))
        )
        trees = HistGradientBoostingClassifier(random_state=seed).fit(drawn, model.classes_of_rows_.astype(int))
        return np.asarray(trees.predict(test))

    return labels


def opacus_probabilities(
    network: Callable[[int], Any], data: Arrays, epsilon: float, rate: float, seed: int
) -> np.ndarray:
    """Return probabilities (n,) of class 1 of the test rows, from a network for this many columns trained by Opacus.

    Training takes ten epochs of samples of 512 rows at this learning rate, with gradients clipped at 1.
    """
    import torch
    from opacus import PrivacyEngine

    x, y = torch.from_numpy(data["x"].astype(np.float32)), torch.from_numpy(data["y"].astype(np.int64))
    torch.manual_seed(seed)
    model = network(x.shape[1])
    private, optimiser, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=512),
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=10,
        max_grad_norm=1.0,
    )
    for _ in range(10):
        for rows, classes in loader:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(private(rows), classes).backward()
            optimiser.step()
    with torch.no_grad():
        return model(torch.from_numpy(data["test"].astype(np.float32))).softmax(dim=1)[:, 1].numpy()


def opacus(epsilon: float) -> Labels:
    """Return a function that predicts with a linear model trained by Opacus."""

    def labels(data: Arrays, seed: int) -> np.ndarray:
        import torch

        return opacus_probabilities(lambda width: torch.nn.Linear(width, 2), data, epsilon, 2.0, seed) > 0.5

    return labels


def elsewhere_probabilities(python: str, code: str, data: Arrays, epsilon: float, seed: int) -> np.ndarray:
    """Return probabilities (n,) of class 1 of the test rows, from a model that ``code`` fits in another Python."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder, "data.npz"), Path(folder, "out.npy")
        np.savez(given, **data)
        subprocess.run([python, "-c", code, given, out, str(epsilon), str(seed)], check=True)
        return np.asarray(np.load(out))


def diffprivlib(python: str, epsilon: float) -> Labels:
    """Return a function that predicts with a logistic regression trained by diffprivlib in another Python."""
    return lambda data, seed: elsewhere_probabilities(python, DIFFPRIVLIB, data, epsilon, seed) > 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--diffprivlib", help="a Python that has it")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    data = adult(options.rows)
    majority = max(np.bincount(data["truth"])) / len(data["truth"])
    contenders: dict[str, Labels] = {}
    for method in ("steps", "pate", "neighbours"):
        contenders[f"{method}, own ε"] = ours(method, None)
        contenders[f"{method}, ε = 1 for all"] = ours(method, min(EPSILONS))
    contenders["synthetic rows, own ε"] = synthesis(None)
    contenders["synthetic rows, ε = 1 for all"] = synthesis(min(EPSILONS))
    if find_spec("opacus"):
        contenders[f"Opacus {version('opacus')}, ε = 1 for all"] = opacus(min(EPSILONS))
    if options.diffprivlib:
        contenders["diffprivlib, ε = 1 for all"] = diffprivlib(options.diffprivlib, min(EPSILONS))
    found: list[dict[str, Any]] = []
    for name, labels in contenders.items():
        rights, begun = [], _seconds()
        for seed in range(options.seeds):
            rights.append(float((labels(data, seed) == data["truth"]).mean()))
        row = {"name": name, "accuracy": round(float(np.mean(rights)), 4), "least": round(min(rights), 4)}
        found.append(row | {"most": round(max(rights), 4), "seconds": round((_seconds() - begun) / options.seeds, 1)})
        print(found[-1], flush=True)
        about = {"rows": options.rows, "seeds": options.seeds, "majority": round(float(majority), 4)}
        RESULTS.write_text(json.dumps({**about, "results": found}, indent=1, ensure_ascii=False) + "\n")


def _seconds() -> float:
    """Return processor seconds of this process and its children."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
