"""Private gradient steps, every holder's contribution charged to their own account: models, constants, speed.

    IPATE_DATA_DIR=… python -m benchmarks.sgd [mnist adult diabetes patients learned constants levels speed] [--quick]

Prints tables and keeps the numbers in benchmarks/results/sgd.json, each part under its name. `--quick` takes fewer
runs, and keeps nothing. Constants were tuned on public splits alone: see docs/sgd.md.
"""

import argparse
import json
import os
from pathlib import Path

from benchmarks.neighbours.__main__ import table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "sgd.json"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.sgd import parts

    known = {
        "mnist": parts.mnist,
        "adult": parts.adult,
        "diabetes": parts.diabetes,
        "patients": parts.patients,
        "learned": parts.learned,
        "constants": parts.constants,
        "levels": parts.levels,
        "speed": parts.speed,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="all if none is named", metavar="part")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(known):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join(known)}")
    for name in options.parts or known:
        rows = known[name](options.quick)
        print(f"\n{name}: {known[name].__doc__}")
        table(rows)
        if not options.quick:
            kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(kept | {name: rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
