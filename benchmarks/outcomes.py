"""Numbers, times and labels learned by private gradient steps, by the same model without noise, and by Cox's model.

    python -m benchmarks.outcomes FOLDER

The folder contains files that are not in this repository: ``housing.csv`` (California housing, 20,640 districts, one
holder each), ``flchain.arff`` (7,874 people, from scikit-survival's datasets) and ``support2.csv`` (9,105 patients). A
third of the records is used for testing; a quarter of the others are public points, and the rest belong to holders.
Every row of a table is the mean over five seeds for the division and the noise. For times, there is a row for
scikit-survival's Cox model without any promise, if it is installed (it is not a requirement). docs/outcomes.md
describes the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from accounting.privacy import IndividualAccounts, gdp_mu
from common.noise import SimulationNoise
from learning.mechanisms.protocol import PlannedLevel
from learning.mechanisms.steps.descent import Descent
from learning.mechanisms.steps.linear import owned_records, release_sums, step_contributions
from learning.mechanisms.steps.rehearsals import descent_adjustment
from learning.mechanisms.steps.steps_plan import Steps, plan_steps, strength_of
from learning.outcomes import Codes, Numbers, Target, Times
from learning.representations import representation_create

DELTA, SEEDS = 1e-5, 5
PROMISES: dict[str, tuple[float, ...]] = {"1-2-3": (1.0, 2.0, 3.0), "1": (1.0,), "0.25": (0.25,), "0.1": (0.1,)}
SHARES = (0.34, 0.43, 0.23)  # shares of the holders by promise, if there are three promises
COX = "Cox, without privacy"
_PLENTY = 1e30


@dataclass(frozen=True, eq=False)
class Case:
    """A data set: records (n, d) between 0 and 1, the codes of their targets, and the kind of target."""

    name: str
    x: NDArray[np.float32]
    codes: Codes
    target: Target


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    for load in (housing, flchain, support2):
        if options.only in load.__name__:
            table(load(options.folder), options.seeds)


def table(case: Case, seeds: int) -> None:
    """Print the measures of a case at all promises."""
    cox = [COX] if isinstance(case.target, Times) and find_spec("sksurv") else []
    for name in (*cox, "without noise", *PROMISES):
        found = [cox_measures(case, seed) if name == COX else measures(case, name, seed) for seed in range(seeds)]
        means = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
        values = ", ".join(f"{key} {value:.4g}" for key, value in means.items())
        sys.stdout.write(f"{case.name}, {name}: {values}\n")
        sys.stdout.flush()


def division(case: Case, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Return public points, records of holders, and test records."""
    order = np.random.default_rng(seed).permutation(len(case.x))
    tested, learned = np.split(order, [len(order) // 3])
    public, private = np.split(learned, [len(learned) // 4])
    return public, private, tested


def measures(case: Case, promise: str, seed: int, steps: Steps | None = None) -> dict[str, float]:
    """Return measures of one run's model. ``without noise`` is the plan for the strongest promises, without noise."""
    public, private, tested = division(case, seed)
    epsilons = PROMISES.get(promise, PROMISES["1-2-3"])
    rng = np.random.default_rng(1000 + seed)
    drawn = rng.choice(len(epsilons), len(private), p=SHARES if len(epsilons) == 3 else None)
    caps = np.array([gdp_mu(epsilon, DELTA) ** 2 for epsilon in epsilons])
    levels = [PlannedLevel(str(each), float(cap), float((drawn == each).sum())) for each, cap in enumerate(caps)]
    chosen, loss = steps or Steps(), case.target.loss
    placed = chosen.placed(case.x, strength_of(levels, share=1.0, steps=chosen), loss=loss)
    fitted = representation_create(placed.representation, placed.representation_parameters).fit(case.x[public])
    points, mine = fitted.transform(case.x[public]), fitted.transform(case.x[private])
    plan = plan_steps(
        levels, dimensions=points.shape[1], n_classes=case.target.outputs, share=1.0, steps=chosen, loss=loss
    )
    everyone = np.arange(len(private))
    records = owned_records(mine, case.codes[private], everyone, everyone)
    noisy = promise in PROMISES
    accounts = IndividualAccounts(caps[drawn] if noisy else np.full(len(private), _PLENTY))
    state, noise = Descent.begin(plan, points, case.target.outputs, loss), SimulationNoise(seed)
    while not state.finished:
        sums, _ = step_contributions(
            records,
            state.weights,
            clip_norm=state.clip_norm,
            accounts=accounts,
            sigma=plan.sigma,
            level_weights=plan.level_weights(caps[drawn]),
            loss=loss,
        )
        state = state.after(release_sums(sums, plan.sigma, noise) if noisy else sums)
    model = state.model(fitted, case.target)
    model.adjustment = descent_adjustment(state, case.target)
    return measures_of(case, model.predict_proba(case.x[tested]), tested)


def measures_of(case: Case, predictions: NDArray[np.float64], tested: NDArray[np.int64]) -> dict[str, float]:
    """Return measures of predictions for the test records."""
    found = case.target.evaluated(predictions, case.codes[tested]).measures
    return {each.name: each.estimate.value for each in found if each.estimate.value is not None}


def cox_measures(case: Case, seed: int) -> dict[str, float]:
    """Return our measures of scikit-survival's Cox model, and the concordance that scikit-survival computes."""
    from sksurv.linear_model import CoxPHSurvivalAnalysis  # type: ignore[import-not-found]
    from sksurv.metrics import concordance_index_censored  # type: ignore[import-not-found]

    target = case.target
    assert isinstance(target, Times), "only outcomes of times have hazards"
    _public, private, tested = division(case, seed)
    times, events = target.times(case.codes)
    truth = np.array(list(zip(events, times, strict=True)), dtype=[("event", bool), ("time", float)])
    x = case.x.astype(np.float64)
    # some penalty, because the columns of a category add up to 1
    model = CoxPHSurvivalAnalysis(alpha=1e-2).fit(x[private], truth[private])
    ends = [min(end, times[private].max()) for end in target.ends]
    survival = np.array([each(ends) for each in model.predict_survival_function(x[tested])])
    theirs = concordance_index_censored(events[tested], times[tested], model.predict(x[tested]))[0]
    return measures_of(case, survival, tested) | {"concordance by scikit-survival": float(theirs)}


def housing(folder: Path) -> Case:
    """Return the median house value of a district, 15,000 to 500,001 dollars, from eight numbers and its location."""
    frame = pd.read_csv(folder / "housing.csv")
    ranges = {
        **{"longitude": (-125, -114), "latitude": (32, 42), "housing_median_age": (0, 52), "median_income": (0, 15)},
        **{"rooms": (0, 10), "bedrooms": (0, 2), "people": (0, 6), "households": (0, 2000)},
    }
    households = frame["households"]
    frame["rooms"], frame["bedrooms"] = frame["total_rooms"] / households, frame["total_bedrooms"] / households
    frame["people"] = frame["population"] / households
    x = scaled(frame, ranges)
    places = pd.get_dummies(frame["ocean_proximity"]).to_numpy(np.float32)
    target = Numbers(0, 500_001, "dollars")
    codes = target.coded([frame["median_house_value"].to_numpy(np.float64)])
    return Case("California housing", np.hstack([x, places]), codes, target)


def flchain(folder: Path) -> Case:
    """Return deaths within 13 years after a test of free light chains."""
    lines = (folder / "flchain.arff").read_text().split("@data\n")
    names = [line.split()[1] for line in lines[0].splitlines() if line.startswith("@attribute")]
    rows = [line.split(",") for line in lines[1].splitlines() if line]
    frame = pd.DataFrame([row[: len(names)] for row in rows], columns=names).replace("?", None)
    for name in ("age", "kappa", "lambda", "creatinine", "futime", "flc.grp", "sample.yr"):
        frame[name] = pd.to_numeric(frame[name])
    ranges = {
        **{"age": (50, 100), "kappa": (0, 6), "lambda": (0, 6), "creatinine": (0, 3), "flc.grp": (1, 10)},
        "sample.yr": (1995, 2003),
    }
    x = np.hstack(
        [
            scaled(frame, ranges),
            (frame["sex"] == "F").to_numpy(np.float32)[:, None],
            (frame["mgus"] == "yes").to_numpy(np.float32)[:, None],
        ]
    )
    target = Times((365, 730, 1095, 1461, 1826, 2191, 2557, 2922, 3287, 3652, 4018, 4383, 4748, 5114), "days")
    times = [frame["futime"].to_numpy(np.float64), (frame["death"] == "dead").to_numpy(np.float64)]
    return Case("flchain", x, target.coded(times), target)


def support2(folder: Path) -> Case:
    """Return deaths of seriously ill people within three years of admission, without later assessments and charges."""
    frame = pd.read_csv(folder / "support2.csv", index_col=0)
    ranges = {
        **{"age": (18, 100), "num.co": (0, 9), "edu": (0, 25), "scoma": (0, 100), "avtisst": (0, 80)},
        **{"meanbp": (0, 200), "wblc": (0, 60), "hrt": (0, 250), "resp": (0, 80), "temp": (32, 42)},
        **{"pafi": (0, 800), "alb": (0, 6), "bili": (0, 30), "crea": (0, 12), "sod": (110, 170), "ph": (6.8, 7.8)},
        **{"glucose": (0, 600), "bun": (0, 150), "urine": (0, 6000), "adlsc": (0, 7), "hday": (1, 60)},
        **{"diabetes": (0, 1), "dementia": (0, 1)},
    }
    words = [pd.get_dummies(frame[name].astype(str)) for name in ("sex", "dzgroup", "race", "ca", "income")]
    x = np.hstack([scaled(frame, ranges), *(each.to_numpy(np.float32) for each in words)])
    target = Times((3, 7, 14, 30, 60, 90, 180, 365, 548, 730, 1095), "days")
    codes = target.coded([frame["d.time"].to_numpy(np.float64), frame["death"].to_numpy(np.float64)])
    return Case("SUPPORT2", x, codes, target)


def scaled(frame: pd.DataFrame, ranges: Mapping[str, tuple[float, float]]) -> NDArray[np.float32]:
    """Return columns clipped to their ranges and scaled, each with another column that marks unknown values."""
    columns = []
    for name, (low, high) in ranges.items():
        values = frame[name].to_numpy(np.float64)
        missing = np.isnan(values)
        columns.append(np.where(missing, 0, ((values - low) / (high - low)).clip(0, 1)))
        if missing.any():
            columns.append(missing.astype(np.float64))
    return np.stack(columns, axis=1).astype(np.float32)


if __name__ == "__main__":
    main()
