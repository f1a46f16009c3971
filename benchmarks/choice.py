"""Private choice: holders indicate which of eight settings fits their records best. Measures its cost and benefit.

    IPATE_DATA_DIR=… python -m benchmarks.choice [representation ridge] [--quick]

Linear models trained by private gradient steps, with eight settings of one kind, the first of which follows the rules.
*private*: a short pilot of each setting at 2 % of everyone's account, a question to all holders at 2 %, and the chosen
setting on the rest. *free*: the same question about models that spent whole accounts, as if models and question were
free; no way of asking can beat this. *public*: the choice is made by rehearsals on labelled public points. *best*: the
best setting on the test points, in hindsight. A holder answers with a vector of norm at most 1: a *vote* has 1 at the
setting with their smallest loss; *scores* are their losses, centred and clipped. Losses are Brier scores, which are
never large for any record. Prints tables and stores the numbers in benchmarks/results/choice.json; stored rows are not
measured again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from accounting.privacy import IndividualAccounts
from benchmarks.cells import Cell, Row, missing
from benchmarks.neighbours.__main__ import parts_of_arguments, table
from benchmarks.sgd.study import Case, Taken, caps_draw, case_load, rehearsal_load, take
from common.noise import SimulationNoise
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.steps_plan import Steps, strength_of
from learning.representations import Evened

Floats = NDArray[np.float64]
Settings = Mapping[str, tuple[Case, Steps]]
"""Choices with the name of their representation, and the corresponding case."""
RESULTS = Path(__file__).resolve().parent / "results" / "choice.json"
DATA = {"support2": 2, "adult": 1, "cardio": 1, "diabetes": 1}
"""Data sets, with draws of the noise."""
PROMISES = (0.1, 1.0, 3.0)
PILOT, ASKED = 0.02, 0.02
"""Shares of every account spent by each pilot and by the question."""
PILOT_STEPS = 15
UNIT = 2.0**-16
"""Answers and noise are integer multiples of this."""
RULE = "by the rules"
SIZES = ((4, 0.1), (4, 10.0), (16, 0.1), (16, 10.0), (64, 0.1), (64, 10.0), (256, 0.1))
RIDGES = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


def representation(quick: bool) -> Iterator[Cell]:
    """Vary the threshold of all columns together and the floor of the whitening."""
    tried = {RULE: Steps()}
    for together, floor in SIZES:
        space = Evened(together=together, floor=floor)
        tried[f"{together}, {floor:g}"] = Steps(representation=space.name, representation_parameters=space.parameters())
    return _cells(tried, quick)


def ridge(quick: bool) -> Iterator[Cell]:
    """Vary the ridge of all steps, in units of a step's noise; it limits steps in which noise dominates the signal."""
    return _cells({RULE: Steps()} | {f"{one:g}": Steps(ridge=one) for one in RIDGES}, quick)


def _cells(tried: Mapping[str, Steps], quick: bool) -> Iterator[Cell]:
    for name in list(DATA)[:1] if quick else DATA:
        for epsilon in PROMISES[:1] if quick else PROMISES:
            yield {"data": name, "epsilon": epsilon}, partial(_compared, name, epsilon, tried)


def _compared(name: str, epsilon: float, tried: Mapping[str, Steps]) -> Row:
    """Return areas under the curve of the test points by way of choosing, and for all settings, as means over draws."""
    settings = dict(_settings(name, epsilon, tried))
    drawn = [_draw(settings, epsilon, draw) for draw in range(DATA[name])]
    means = {label: float(np.mean([row[label] for row in drawn])) for label in settings}
    best, by_public = max(means, key=means.__getitem__), _public_choice(name, epsilon, settings)
    row: Row = {"rules": means[RULE], "public": means[by_public], "public, chosen": by_public}
    for key in sorted(drawn[0].keys() - means.keys()):
        of_all = [row[key] for row in drawn]
        row[key] = ", ".join(of_all) if isinstance(of_all[0], str) else float(np.mean(of_all))
    return row | {"best": means[best], "best, chosen": best, "all": means}


def _draw(settings: Settings, epsilon: float, draw: int) -> Row:
    """Return the area of each setting on whole accounts and of the setting chosen by all, for one draw of the noise."""
    labels, rest = list(settings), 1.0 - PILOT * len(settings) - ASKED
    whole = [take(case, epsilon, steps=steps, seed=draw) for case, steps in settings.values()]
    pilots = [
        take(case, epsilon, steps=replace(steps, steps=PILOT_STEPS), seed=100 + draw, share=PILOT)
        for case, steps in settings.values()
    ]

    @cache
    def on_the_rest(label: str) -> float | None:
        case, steps = settings[label]
        return take(case, epsilon, steps=steps, seed=200 + draw, share=rest).area

    row: Row = {label: one.area for label, one in zip(labels, whole, strict=True)}
    row["rules on the rest"] = on_the_rest(RULE)
    for form in (vote, scores):
        free, _, _ = choice_outcome(form, whole, epsilon, 300 + draw)
        chosen, silent, spent = choice_outcome(form, pilots, epsilon, 300 + draw)
        row |= {
            f"free {form.__name__}": whole[free].area,
            f"free {form.__name__}, chosen": labels[free],
            f"private {form.__name__}": on_the_rest(labels[chosen]),
            f"private {form.__name__}, chosen": labels[chosen],
            f"private {form.__name__}, without noise": labels[silent],
            f"private {form.__name__}, spent": spent,
        }
    return row


@lru_cache(maxsize=1)
def _case(name: str) -> Case:
    return case_load(name, 0, Steps())


def _settings(name: str, epsilon: float, tried: Mapping[str, Steps]) -> Iterator[tuple[str, tuple[Case, Steps]]]:
    """Yield every setting with the default representation for whole accounts, and the corresponding case."""
    case = _case(name)
    caps = caps_draw(epsilon, len(case.records))
    strength = strength_of([PlannedLevel("ALL", float(caps[0]), len(caps))], share=1.0, steps=Steps())
    for label, steps in tried.items():
        named = steps.placed(case.points, strength)
        case = case.placed(named, strength)
        yield label, (case, named)


def _public_choice(name: str, epsilon: float, settings: Settings) -> str:
    """Return the setting with the largest area in a rehearsal whose people and test are labelled public points."""
    case = rehearsal_load(name, 0, Steps())
    areas = {label: take(case, epsilon, steps=steps, seed=400).area or 0.0 for label, (_, steps) in settings.items()}
    return max(areas, key=areas.__getitem__)


Form = Callable[[Floats, Floats], NDArray[np.int64]]
"""Losses `(H, K)` of all holders and `(P, K)` of public points → `(H, K)` answers of norm at most 1, in `UNIT`."""


def vote(losses: Floats, _public: Floats) -> NDArray[np.int64]:
    """Return 1 at the setting with the smallest loss."""
    answers = np.zeros(losses.shape, np.int64)
    answers[np.arange(len(losses)), losses.argmin(axis=1)] = round(1 / UNIT)
    return answers


def scores(losses: Floats, public: Floats) -> NDArray[np.int64]:
    """Return losses minus their mean, clipped to norm 1; 1 is the median norm of public points."""
    centred, usual = (of.mean(axis=1, keepdims=True) - of for of in (losses, public))
    length = np.median(np.linalg.norm(usual, axis=1))
    centred /= np.maximum(length, np.linalg.norm(centred, axis=1, keepdims=True))
    return np.trunc(centred / UNIT).astype(np.int64)  # rounded towards 0, so that no norm increases


def choice_outcome(form: Form, models: list[Taken], epsilon: float, seed: int) -> tuple[int, int, float]:
    """Return the chosen setting, the choice without noise, and the mean share of an account that choosing costs."""
    caps = caps_draw(epsilon, len(models[0].case.records))
    sigma = (1 / (ASKED * caps.max())) ** 0.5
    losses, public = (np.stack([of(one) for one in models], axis=1) for of in (_losses, _public_losses))
    answers, accounts = form(losses, public), IndividualAccounts(caps)
    allowed = accounts.charge((answers.astype(np.float64) ** 2).sum(axis=1) * UNIT**2, sigma)
    sums = (answers * allowed[:, None]).sum(axis=0)
    released = sums + SimulationNoise(seed).rounded_normal(sigma / UNIT, sums.shape)
    return int(released.argmax()), int(sums.argmax()), float((accounts.spent / caps).mean())


def _losses(taken: Taken) -> Floats:
    """Return `(H,)` mean Brier scores of all holders' records, which are secret."""
    records = taken.case.records
    each = _brier(taken.logits_of(records.x), records.y)
    return np.add.reduceat(each, records.first[:-1]) / np.diff(records.first)


def _public_losses(taken: Taken) -> Floats:
    """Return `(P,)` Brier scores of public points, as if each had the class that the model finds least likely."""
    logits = taken.logits_of(taken.case.public)
    return _brier(logits, logits.argmin(axis=1))


def _brier(logits: Floats, y: NDArray[np.integer]) -> Floats:
    """Return `(n,)` squared distances of the probabilities from the truth, at most 1."""
    away = softmax(logits, axis=1)
    away[np.arange(len(logits)), y] -= 1
    return (away**2).sum(axis=1) / 2


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names, quick = parts_of_arguments(__doc__, {part.__name__: part for part in (representation, ridge)})
    for name in names:
        rows = [] if quick else _kept().get(name, [])
        for row in missing(rows, globals()[name](quick)):
            rows.append(row)
            if not quick:
                RESULTS.write_text(json.dumps(_kept() | {name: rows}, indent=1) + "\n")
        print(f"\n{name}: {globals()[name].__doc__}")
        table(rows)


def _kept() -> dict[str, list[Row]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


if __name__ == "__main__":
    main()
