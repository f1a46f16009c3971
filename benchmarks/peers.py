"""Our private classifier compared with private peers and models without privacy, on tables with the same rows.

    python -m benchmarks.peers FOLDER [TABLE …] [--splits 5] [--epsilons 3 1 0.25] [--ebm PYTHON] [--diffprivlib PYTHON]
        [--jax PYTHON]

The folder has cardio.csv, bank-additional-full.csv, magic.csv, credit.csv, telco.csv and support2.csv from the UCI
repository, Kaggle and Vanderbilt University; Adult and Diabetes are read from IPATE_DATA_DIR. Each split has 65 %
private rows, 20 % public rows without labels, and 15 % test rows. Everybody promises the same ε at δ = 1e-5. All
contenders know the limits of numbers, the categories and the number of private rows; only “ours” also uses the public
rows. “Ours, no public rows” uses a tenth of each account to draw rows from noisy counts, as runs do. DP-EBM is in
interpret-core, diffprivlib needs an older scikit-learn, and JAX-Privacy is in jax-privacy, so pass the Pythons of
environments that have them; Opacus is used if it can be imported.

Results are stored after each fit in benchmarks/results/peers.json, and the program continues where it stopped.
benchmarks/results/peers.md is written from them.
"""

import argparse
import csv
import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, partialmethod
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy.optimize import brentq
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from accounting.caps import caps_of
from benchmarks.estimators import DELTA, DIFFPRIVLIB, elsewhere_probabilities, opacus_probabilities
from learning import estimators
from learning.estimators import IndividualDPClassifier, IndividualDPSynthesis
from learning.formats import TabularSchema, catalogue_load
from learning.mechanisms.counts.table_plan import feature_columns
from learning.mechanisms.steps.steps_plan import COUNTED, ROWS, Steps, plan_steps

RESULTS = Path(__file__).resolve().parent / "results" / "peers.json"
BINS = 20

#: Columns of SUPPORT2 that are known only later, predictions, and scores.
_LATER = "|death|slos|d.time|charges|totcst|totmcst|avtisst|sps|aps|surv2m|surv6m|prg2m|prg6m|dnr|dnrday|sfdm2"

#: Table → file, delimiter, label, positive label, columns that are left out, columns of codes.
FILES: dict[str, tuple[str, str, str, str, set[str], set[str]]] = {
    "cardio": ("cardio.csv", ";", "cardio", "1", {"id"}, {"gender", "cholesterol", "gluc"}),
    "bank": ("bank-additional-full.csv", ";", "y", "yes", set(), set()),
    "MAGIC": ("magic.csv", ",", "10", "g", set(), set()),
    "credit": ("credit.csv", ",", "default.payment.next.month", "1", {"ID"}, {"SEX", "EDUCATION", "MARRIAGE"}),
    "telco": ("telco.csv", ",", "Churn", "Yes", {"customerID"}, set()),
    "SUPPORT2": ("support2.csv", ",", "hospdead", "1", set(_LATER.split("|")), set()),
}

EBM = """
import sys
import numpy as np
from interpret.privacy import DPExplainableBoostingClassifier
data, out, epsilon, seed = np.load(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
kinds = ["nominal" if each else "continuous" for each in data["is_code"]]
bounds = {place: (0.0, 1.0) for place, each in enumerate(data["is_code"]) if not each}
model = DPExplainableBoostingClassifier(
    feature_types=kinds, privacy_bounds=bounds, epsilon=epsilon, delta=1e-5, random_state=None, n_jobs=1
)
model.fit(data["x"], data["y"])
np.save(out, model.predict_proba(data["test"])[:, 1])
"""

#: Trains the network that `opacus` trains, with samples of as many rows on average.
JAX = """
import sys
import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy import batch_selection
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
data, out, epsilon, seed = np.load(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
x, y, size = np.float32(data["x"]), data["y"], 512
relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
plan = BandMFExecutionPlanConfig(
    iterations=10 * len(x) // size, strategy=np.ones(1), epsilon=epsilon, delta=1e-5, l2_clip_norm=1.0,
    normalize_by=size, sampling_prob=size / len(x), partition_type=batch_selection.PartitionType.INDEPENDENT,
    accountant=dp_accounting.pld.PLDAccountant(relation), noise_seed=seed,
).plan
def logits(w, x):
    return jnp.tanh(x @ w[0] + w[1]) @ w[2] + w[3]
def loss(w, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(w, x)), y[:, None], 1).mean()
one, two = jax.random.split(jax.random.key(seed))
span = lambda key, *shape: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) / shape[0] ** 0.5
w = [span(one, x.shape[1], 64), jnp.zeros(64), span(two, 64, 2), jnp.zeros(2)]
clipped, noise = jax.jit(plan.clipped_grad(loss, batch_argnums=(1, 2))), plan.noise_addition_transform
state, update = noise.init(w), jax.jit(noise.update)
for rows in plan.batch_selection_strategy.batch_iterator(len(x), seed):
    total = jax.tree.map(jnp.zeros_like, w)
    for part in batch_selection.split_and_pad_global_batch(rows, 640):
        slope = clipped(w, x[part], y[part], is_padding_example=part < 0)
        total = jax.tree.map(jnp.add, total, slope)
    total, state = update(total, state)
    w = jax.tree.map(jnp.subtract, w, total)
np.save(out, np.asarray(jax.nn.softmax(logits(w, np.float32(data["test"])))[:, 1]))
"""


@dataclass(frozen=True)
class Column:
    """Column of a table: a number from 0 to 1 in one coordinate (``width`` 1), or a category in several."""

    start: int
    width: int


#: Columns, rows (n, d) and classes (n,).
Table = tuple[tuple[Column, ...], np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Split:
    """Private rows ``x`` (n, d) with classes ``y``, public points, and test rows with their true classes."""

    columns: tuple[Column, ...]
    x: np.ndarray
    y: np.ndarray
    public: np.ndarray
    test: np.ndarray
    truth: np.ndarray

    def plain(self, x: np.ndarray) -> np.ndarray:
        """Return the rows (n, columns) with numbers as they are and codes of categories."""
        return np.column_stack([
            x[:, each.start] if each.width == 1 else x[:, each.start : each.start + each.width].argmax(axis=1)
            for each in self.columns
        ])  # fmt: skip


#: Returns the probability of the second class of each test row, for a split, an ε and a seed.
Contender = Callable[[Split, float, int], np.ndarray]


def file_load(path: Path, delimiter: str, label: str, positive: str, left_out: set[str], codes: set[str]) -> Table:
    """Return columns, rows in [0, 1] with one coordinate per category, and classes. Missing: the median."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    blocks, columns, start = [], [], 0
    for name in rows[0]:
        if name == label or name in left_out:
            continue
        texts = [row[name].strip() for row in rows]
        numbers = None if name in codes else _numbers(texts)
        if numbers is None:
            known = sorted(set(texts))
            block = np.eye(len(known), dtype=np.float32)[np.searchsorted(known, texts)]
        else:
            low, high = np.nanmin(numbers), np.nanmax(numbers)
            block = ((np.nan_to_num(numbers, nan=np.nanmedian(numbers)) - low) / ((high - low) or 1))[:, None]
        columns.append(Column(start, block.shape[1]))
        start += block.shape[1]
        blocks.append(block.astype(np.float32))
    classes = np.array([row[label].strip() == positive for row in rows], np.int64)
    return tuple(columns), np.concatenate(blocks, axis=1), classes


def _numbers(texts: Sequence[str]) -> np.ndarray | None:
    try:
        return np.array([float(text) if text else np.nan for text in texts])
    except ValueError:
        return None


def table_load(name: str, folder: Path) -> Table:
    """Return columns, rows (n, d) and classes of a table; of Diabetes, the first stay of each patient."""
    if name in FILES:
        return file_load(folder / FILES[name][0], *FILES[name][1:])
    splits = catalogue_load(name, Path(os.environ["IPATE_DATA_DIR"]))
    assert isinstance(splits.schema, TabularSchema)
    columns = tuple(Column(each.start, each.width) for each in feature_columns(splits.schema, BINS))
    private = splits.private
    if private.holders is not None:
        private = private[np.sort(np.unique(private.holders, return_index=True)[1])]
    x, y = ([getattr(part, of) for part in (private, splits.public, splits.test)] for of in ("x", "y"))
    return columns, np.concatenate(x), np.concatenate(y)


def split_of(table: Table, number: int) -> Split:
    columns, x, y = table
    order = np.random.default_rng(1000 + number).permutation(len(x))
    private, public, test = np.split(order, [int(0.65 * len(x)), int(0.65 * len(x)) + int(0.2 * len(x))])
    return Split(columns, x[private], y[private], x[public], x[test], y[test])


def regression(split: Split, _epsilon: float, _seed: int) -> np.ndarray:
    return LogisticRegression(max_iter=2000).fit(split.x, split.y).predict_proba(split.test)[:, 1]


def boosting(split: Split, _epsilon: float, seed: int) -> np.ndarray:
    codes = [place for place, each in enumerate(split.columns) if 1 < each.width <= 255]
    model = HistGradientBoostingClassifier(random_state=seed, categorical_features=codes, early_stopping=True)
    return model.fit(split.plain(split.x), split.y).predict_proba(split.plain(split.test))[:, 1]


def _steps(split: Split, epsilon: float, public: np.ndarray, seed: int) -> np.ndarray:
    known = {epsilon: float(len(split.x))}
    model = IndividualDPClassifier(epsilon, delta=DELTA, public=public, head_counts=known, classes=[0, 1], seed=seed)
    return model.fit(split.x, split.y).predict_proba(split.test)[:, 1]


def ours(split: Split, epsilon: float, seed: int) -> np.ndarray:
    return _steps(split, epsilon, split.public, seed)


def ours_without_public(split: Split, epsilon: float, seed: int) -> np.ndarray:
    """Return our probabilities with public points drawn from counts, which use the part `COUNTED` of each account."""
    cap = float(caps_of([epsilon], DELTA)[0])
    counted, rest = (
        brentq(lambda value, part=part: float(caps_of([value], DELTA)[0]) - part * cap, epsilon / 64, epsilon)
        for part in (COUNTED, 1 - COUNTED)
    )
    names = [f"c{place}" for place in range(len(split.columns))]
    plain = split.plain(split.x)
    declared = {
        name: (0, 1) if each.width == 1 else [str(code) for code in range(each.width)]
        for name, each in zip(names, split.columns, strict=True)
    }
    rows = {
        name: plain[:, place] if each.width == 1 else plain[:, place].astype(int).astype(str)
        for place, (name, each) in enumerate(zip(names, split.columns, strict=True))
    }
    drawn = IndividualDPSynthesis(
        counted, delta=DELTA, columns=declared, classes=["0", "1"], rows=ROWS, bins=BINS,
        head_counts={counted: float(len(plain))}, seed=seed,
    ).fit(rows, split.y.astype(str))  # fmt: skip
    points = np.concatenate(
        [
            np.asarray(drawn.rows_[name], np.float32)[:, None]
            if each.width == 1
            else np.eye(each.width, dtype=np.float32)[np.asarray(drawn.rows_[name], np.int64)]
            for name, each in zip(names, split.columns, strict=True)
        ],
        axis=1,
    )
    with (  # as a run plans it
        patch.object(Steps, "placed", partialmethod(Steps.placed, drawn=True)),
        patch.object(estimators, "plan_steps", partial(plan_steps, drawn=True)),
    ):
        return _steps(split, rest, points, seed)


def opacus(split: Split, epsilon: float, seed: int) -> np.ndarray:
    import torch

    def network(width: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(width, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))

    return opacus_probabilities(network, {"x": split.x, "y": split.y, "test": split.test}, epsilon, 1.0, seed)


def elsewhere(python: str, code: str, plain: bool) -> Contender:
    """Return a contender fitted in another Python; ``plain``: whether it reads categories as codes."""

    def probabilities(split: Split, epsilon: float, seed: int) -> np.ndarray:
        shape = split.plain if plain else np.asarray
        is_code = np.array([each.width > 1 for each in split.columns])
        data = {"x": shape(split.x), "y": split.y, "test": shape(split.test), "is_code": is_code}
        return elsewhere_probabilities(python, code, data, epsilon, seed)

    return probabilities


def page(found: dict[str, list[dict[str, float]]]) -> str:
    """Return the page with mean areas and accuracies of all contenders, by table and ε."""
    tables = list(dict.fromkeys(key.split("|")[0] for key in found))
    names = list(dict.fromkeys(key.split("|")[1] for key in found))
    lines = [f"*Written by `python -m benchmarks.peers`.*\n\n# Private peers\n\n{_ABOUT}"]
    for table in tables:
        epsilons = sorted({key.split("|")[2] for key in found if key.startswith(table + "|")} - {"0"}, key=float)
        splits = next(each for key, each in found.items() if key.startswith(table + "|"))
        most = f"{100 * splits[0]['majority']:.1f} %"
        lines += [f"\n## {table}\n", f"Always predicting the most frequent class: {most} right.\n"]
        lines += [
            f"| | {' | '.join(f'ε = {each}' for each in reversed(epsilons))} |",
            "|---" * (len(epsilons) + 1) + "|",
        ]
        for name in names:
            free = found.get(f"{table}|{name}|0")
            cells = [found.get(f"{table}|{name}|{each}") or free for each in reversed(epsilons)]
            if any(cells):
                lines.append(
                    f"| {name}{'' if free is None else ', without privacy'} | {' | '.join(map(_cell, cells))} |"
                )
    return "\n".join(lines) + "\n"


_ABOUT = (
    "Area under the curve and accuracy on test rows, in %. Each value is the mean over the splits in brackets, "
    "which are fewer than five where time was short. "
    "benchmarks/peers.py describes the rows and what each contender knows. AIM and MST need 18 to 69 s of "
    "processor time for each draw, so they were only measured [on Adult](methods.md#synthetic-rows-and-mbi)."
)


def _cell(results: list[dict[str, float]] | None) -> str:
    if not results:
        return "–"
    area, right = (np.mean([each[of] for each in results]) for of in ("area", "accuracy"))
    return f"{area:.3f}; {100 * right:.1f} ({len(results)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*", default=["adult", "diabetes", *FILES])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[3, 1, 0.25])
    parser.add_argument("--only", nargs="*", help="names of contenders")
    parser.add_argument("--ebm", help="a Python with interpret-core")
    parser.add_argument("--diffprivlib", help="a Python with diffprivlib")
    parser.add_argument("--jax", help="a Python with jax-privacy")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    free: dict[str, Contender] = {"logistic regression": regression, "boosting": boosting}
    contenders: dict[str, Contender] = {**free, "ours": ours, "ours, no public rows": ours_without_public}
    if given.ebm:
        contenders["DP-EBM"] = elsewhere(given.ebm, EBM, plain=True)
    if find_spec("opacus"):
        contenders["Opacus, network"] = opacus
    if given.diffprivlib:
        contenders["diffprivlib"] = elsewhere(given.diffprivlib, DIFFPRIVLIB, plain=False)
    if given.jax:
        contenders["JAX-Privacy, network"] = elsewhere(given.jax, JAX, plain=False)
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.tables:
        table = table_load(name, given.folder)
        for number in range(given.splits):
            split = split_of(table, number)
            for contender, fit in contenders.items():
                for epsilon in [0.0] if contender in free else given.epsilons:
                    results = found.setdefault(f"{name}|{contender}|{epsilon:g}", [])
                    if len(results) > number or (given.only and contender not in given.only):
                        continue
                    begun = sum(os.times()[:4])
                    chance = fit(split, epsilon, number)
                    result = {
                        "area": round(float(roc_auc_score(split.truth, chance)), 4),
                        "accuracy": round(float(((chance > 0.5) == split.truth).mean()), 4),
                        "majority": round(float(max(split.truth.mean(), 1 - split.truth.mean())), 4),
                        "seconds": round(sum(os.times()[:4]) - begun, 1),
                    }
                    results.append(result)
                    print(name, contender, epsilon, number, result, flush=True)
                    kept = {key: each for key, each in found.items() if each}
                    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
                    RESULTS.with_suffix(".md").write_text(page(kept))


if __name__ == "__main__":
    main()
