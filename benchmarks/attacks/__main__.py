"""Attacks on the promises: what can be proven about a person's participation in a run, compared with the promise.

    python -m benchmarks.attacks [canaries one-run membership groups copies] [--transcripts 100000] [--plant FAULT]
                                 [--quick]

`canaries` makes many transcripts of each mechanism, with and without a worst-case person, and bounds μ from below.
`one-run` puts a thousand such people into one run of each mechanism. `membership` infers from published models of real
data who took part (IPATE_DATA_DIR for data other than digits), `groups` tests whether people who allow more are found
more easily than others, and `copies` looks for people's records among synthetic rows of Adult. All bounds together hold
with a confidence of 99.9 %. The exit status is 1 if one exceeds its promise, which is a defect. `--plant` adds a defect
that must be found; `--plant every` first runs without one, then plants each in turn among the canaries, and fails if
one is not found. Numbers are stored in benchmarks/results/attacks.json and ROC curves as docs/attacks-*.svg, except for
`--quick` and planted defects.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

Row = dict[str, Any]

RESULTS = Path(__file__).resolve().parents[1] / "results" / "attacks.json"
DOCS = Path(__file__).resolve().parents[2] / "docs"
METHODS = {
    "neighbours": "neighbours",
    "teachers": "pate",
    "steps": "sgd",
    "sampled": "sgd, sample",
    "rows": "synthesis",
    "counts": "counts",
}
DOUBT = 1e-3
TRANSCRIPTS = 100_000
ONE_RUN, GUESSES = 1_000, 200
PROMISES = ((1.0, 2.0, 3.0), (10.0, 20.0))
SHADOWS = 64
EVERY = "every"


def canaries(transcripts: int, doubt: float) -> Iterator[Row]:
    """Yield bounds on μ for each canary, from many transcripts with and without it."""
    from benchmarks.attacks.canaries import CANARIES
    from benchmarks.attacks.estimate import gdp_bound

    for canary in CANARIES:
        count = transcripts // canary.dearer
        bound = gdp_bound(*canary.scores(count), doubt=doubt)
        yield {
            "mechanism": canary.name,
            "epsilon": canary.epsilon,
            "promise": round(canary.promise, 4),
            "transcripts": count,
            "bound": round(bound.least, 4),
            "estimate": round(bound.point, 4),
        }


def one_run(doubt: float) -> Iterator[Row]:
    """Yield bounds on μ for each mechanism, from one run with a thousand canaries."""
    import numpy as np

    from accounting.caps import caps_of
    from benchmarks.attacks.canaries import DELTA
    from benchmarks.attacks.estimate import one_run_mu
    from benchmarks.attacks.one_run import MECHANISMS, guesses_right

    for name, scores in MECHANISMS.items():
        for epsilon in (1.0, 3.0, 8.0):
            takes_part = np.random.default_rng(1).random(ONE_RUN) < 0.5
            right = guesses_right(takes_part, scores(takes_part, epsilon, DELTA), GUESSES)
            yield {
                "mechanism": name,
                "epsilon": epsilon,
                "promise": round(float(np.sqrt(caps_of(epsilon, DELTA))), 4),
                "guesses": GUESSES,
                "right": right,
                "bound": round(one_run_mu(ONE_RUN, GUESSES, right, doubt=doubt), 4),
            }


def membership(quick: bool) -> Iterator[Row]:
    """Attack published models with LiRA."""
    import numpy as np

    from benchmarks.attacks import published
    from benchmarks.attacks.membership import attack, likelihood_ratios, shadows

    targets = (published.neighbours_target, published.teachers_target, published.steps_target, published.sampled_target)
    cases = [("digits", 1_300, target_of) for target_of in targets]
    if not quick:
        cases += [
            ("adult", 2_000, target_of)
            for target_of in (published.steps_target, published.rows_target, published.counts_target)
        ]
    for name, people, target_of in cases:
        for epsilons in PROMISES:
            target = target_of(name, people, epsilons)
            taking, logits = shadows(target.publish, target.truth, 16 if quick else SHADOWS, seed=1)
            ratios = likelihood_ratios(taking, logits)
            for epsilon, cap in zip(epsilons, np.unique(target.caps), strict=True):
                theirs = target.caps == cap
                found = attack(taking[:, theirs], ratios[:, theirs], float(np.sqrt(cap)))
                yield {
                    "data": name,
                    "published": target_of.__name__.removesuffix("_target"),
                    "epsilon": epsilon,
                    "shadows": len(taking),
                } | {key: value if key == "curve" else round(value, 4) for key, value in vars(found).items()}


def groups(quick: bool) -> Iterator[Row]:
    """Attack people with LiRA, half of them at ε = 10 and half at ε = 20, as tested by Individualized DP-SGD."""
    from benchmarks.attacks import published
    from benchmarks.attacks.membership import between, likelihood_ratios, shadows

    for target_of in (published.sampled_target, published.steps_target):
        target = target_of("digits", 1_300, PROMISES[1])
        taking, logits = shadows(target.publish, target.truth, 16 if quick else SHADOWS, seed=1)
        found = between(taking, likelihood_ratios(taking, logits), target.caps == target.caps.max())
        row = {"data": "digits", "published": target_of.__name__.removesuffix("_target"), "shadows": len(taking)}
        yield row | {key: _digits(value) for key, value in vars(found).items()}


def _digits(value: float | tuple[Any, ...]) -> Any:
    """Return all numbers with four significant digits, so that small p values such as 1e-9 do not become 0."""
    return [_digits(one) for one in value] if isinstance(value, tuple) else float(f"{value:.4g}")


def copies(quick: bool) -> Iterator[Row]:
    """Look for copies of people's records among synthetic rows."""
    from benchmarks.attacks import published

    for epsilons in PROMISES:
        for found in published.copies("adult", 2_000, epsilons, 4 if quick else SHADOWS):
            yield {"data": "adult", "published": "rows"} | {key: round(value, 4) for key, value in found.items()}


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.attacks.canaries import CANARIES
    from benchmarks.attacks.faults import FAULTS
    from benchmarks.attacks.one_run import MECHANISMS
    from benchmarks.cells import table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help="all if none is given")
    parser.add_argument("--transcripts", type=int, default=TRANSCRIPTS)
    parser.add_argument("--plant", choices=[*sorted(FAULTS), EVERY], help="planted defect, which the attack must find")
    parser.add_argument("--quick", action="store_true", help="use a tenth of the transcripts and few shadow studies")
    options = parser.parse_args()
    transcripts = options.transcripts // 10 if options.quick else options.transcripts
    doubt = DOUBT / (len(CANARIES) + 3 * len(MECHANISMS))
    parts = {
        "canaries": lambda: canaries(transcripts, doubt),
        "one-run": lambda: one_run(doubt),
        "membership": lambda: membership(options.quick),
        "groups": lambda: groups(options.quick),
        "copies": lambda: copies(options.quick),
    }
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown part {', '.join(sorted(unknown))}: choose from {', '.join(parts)}")
    broken: list[str] = []
    for part in options.parts or parts:
        with FAULTS.get(options.plant, nullcontext)():
            rows = list(parts[part]())
        print(f"\n{part}:")
        table([{key: value for key, value in row.items() if key != "curve"} for row in rows])
        broken += [_named(row) for row in rows if exceeds(row)]
        if not options.plant and not options.quick:
            _keep(part, rows)
            if part == "membership":
                draw(rows)
    hidden = not_found(transcripts, doubt) if options.plant == EVERY else []
    failures = [f"The attacks proved more than was promised: {'; '.join(broken)}."] if broken else []
    failures += [f"Planted defects that were not found: {', '.join(hidden)}."] if hidden else []
    if failures:
        sys.exit(" ".join(failures))


def not_found(transcripts: int, doubt: float) -> list[str]:
    """Return the defects that no canary's bound reveals when they are planted."""
    from benchmarks.attacks.faults import FAULTS

    hidden = []
    for name, plant in sorted(FAULTS.items()):
        with plant():
            found = [_named(row) for row in canaries(transcripts, doubt) if exceeds(row)]
        print(f"\n{name}: {'; '.join(found) or 'not found'}")
        hidden += [] if found else [name]
    return hidden


def draw(rows: Sequence[Row]) -> None:
    """Write docs/attacks-*.svg, ROC curves of publications with a line for each promise."""
    from benchmarks.attacks.membership import RATES
    from benchmarks.neighbours.figure import Line, figure

    for data, published in dict.fromkeys((row["data"], row["published"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["published"]) == (data, published)]
        curves = {f"ε = {row['epsilon']:g}": {float(rate): true for rate, true in row["curve"].items()} for row in mine}
        curves["chance"] = {rate: rate for rate in RATES}
        least = min(RATES) / 2  # if no one is found at all
        drawing = figure(
            [
                Line(name, {rate: math.log10(max(true, least)) for rate, true in curve.items()})
                for name, curve in curves.items()
            ],
            title=f"Membership inference: {data}, method {METHODS[published]}",
            across="false positives",
            up="true positives",
            span=(-3.5, 0.0),
            shown=lambda log: f"{100 * 10**log:.3g} %",
        )
        (DOCS / f"attacks-{data}-{published}.svg").write_text(drawing)


def exceeds(row: Row) -> bool:
    """Return whether an attack did better than the promise allows: a bound on μ, or four standard errors above it."""
    if "bound" in row:
        return row["bound"] > row["promise"]
    if "gap" in row:
        return False  # a test of the differences between promises; "membership" compares each with its own promise
    if "area" not in row:
        return row["found"] - 4 * row["uncertain"] > row["most_found"]
    return row["area"] - 4 * row["uncertain"] > row["most_area"]


def _named(row: Row) -> str:
    return " ".join(str(row[key]) for key in ("mechanism", "data", "published", "epsilon") if key in row)


def _keep(part: str, rows: Sequence[Row]) -> None:
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(kept | {part: list(rows)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
