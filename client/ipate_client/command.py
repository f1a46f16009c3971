"""Follow runs and make predictions in a terminal.

    ipate-client runs [--study SLUG] [--status STATUS]
    ipate-client watch RUN
    ipate-client predict RUN rows.csv [--output predictions.csv]

Set the environment variables IPATE_SITE and IPATE_TOKEN to the site and your token. The exit status is 0 on success, 1
if a run ended without a result or the site refused the request, and 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import httpx

from ipate_client.documents import Predictions
from ipate_client.local_model import LocalModel
from ipate_client.problems import ProblemError, RunEndedError
from ipate_client.site import Site
from ipate_client.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.command == "predict" and asked.model is not None:
            _write(LocalModel.load(asked.model).predictions(_rows(asked.rows)), asked.output)
            return 0
        with Site() as site:
            if asked.command == "runs":
                filters = {name: getattr(asked, name) for name in ("study", "status") if getattr(asked, name)}
                for run in site.runs(**filters):
                    sys.stdout.write(f"{run.id}  {run.status:<10} {run.study:<20} {run.title}\n")
            elif asked.command == "watch":
                sys.stdout.write(f"{site.wait(asked.run, every=asked.every, progress=sys.stderr.isatty())}\n")
            else:
                _write(site.predict(asked.run, _rows(asked.rows)), asked.output)
    except (ProblemError, RunEndedError, httpx.TransportError, OSError, ValueError, ImportError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ipate-client", description="Follow runs and predict.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("runs", help="list the runs that you may see, newest first")
    runs.add_argument("--study", default="", help="slug of the study")
    runs.add_argument("--status", default="", help="status, such as draft or finished")
    watch = commands.add_parser("watch", help="wait until a run has ended")
    watch.add_argument("run", help="id of the run")
    watch.add_argument("--every", type=float, default=5.0, help="seconds between requests")
    predict = commands.add_parser("predict", help="predict rows with a run's model")
    which = predict.add_mutually_exclusive_group(required=True)
    which.add_argument("run", nargs="?", help="id of the run, to predict on the site")
    which.add_argument("--model", help="an ONNX file from the site, to predict on this machine")
    predict.add_argument("rows", help="rows as CSV with a header, or as JSON")
    predict.add_argument("--output", help="output CSV file; standard output if omitted")
    return parser


def _rows(path: str) -> list[Any]:
    """Return the rows of a file. CSV values remain strings, because the site and its models parse numbers."""
    if path.endswith(".json"):
        return list(json.loads(Path(path).read_text("utf-8")))
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def _write(predictions: Predictions, path: str | None) -> None:
    if path is None:
        _write_to(sys.stdout, predictions)
        return
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        _write_to(file, predictions)


def _write_to(file: TextIO, predictions: Predictions) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["label", *predictions.classes, "outside"])
    for label, values, outside in zip(predictions.labels, predictions.probabilities, predictions.outside):
        name = " ".join(label) if isinstance(label, list) else label
        writer.writerow([name, *(f"{value:.6g}" for value in values), " ".join(outside)])


if __name__ == "__main__":
    sys.exit(main())
