"""Reading and storing tables, compared with an earlier version and with pandas, by the number of rows.

    python benchmarks/reading.py [--before COMMIT] [--only speed|memory|stored] [--rows N …]

Prints processor seconds for 20,000 rows of 52 columns with this version, with the commit (in a separate worktree) and
with `pandas.read_csv`, which only splits and converts; versions take turns, and the shortest of five times is used.
Then prints seconds and peak memory of complete reads in a separate process, and of complete imports of as many new
people, for files of 10 columns. Imports use a separate test database on the server of DATABASE_URL, or SQLite.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TURNS = 5
ROWS, NUMBERS, CATEGORIES = 20_000, 40, 10
SPEED = """
import json, sys, time
from pathlib import Path
from learning.formats import Report, read_file, schema_from_json
path, document = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
took = []
for _turn in range(3):  # the first imports what it needs
    began, report = time.process_time(), Report()
    rows = read_file(path, schema_from_json(document), report=report)
    took.append(time.process_time() - began)
    assert len(rows) and not report.count, report.faults
print(min(took))
"""
PANDAS = """
import sys, time
import pandas
took = []
for _turn in range(3):
    began = time.process_time()
    pandas.read_csv(sys.argv[1])
    took.append(time.process_time() - began)
print(min(took))
"""
MEMORY = """
import json, resource, sys, time
from pathlib import Path
from learning.formats import Report, schema_from_json
from learning.formats.isolation import Allowance, read_isolated
path, document = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
steps, report, began = [], Report(), time.perf_counter()
rows = read_isolated(path, schema_from_json(document), allowance=Allowance(4000, 600), report=report,
                  progress=lambda done, total: steps.append(done))
assert not report.count, report.faults
took, own = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([took, own.ru_utime + own.ru_stime, own.ru_maxrss / 1024, len(steps)]))
"""
STORED = """
import inspect, json, os, resource, sys, tempfile, time
from pathlib import Path
with tempfile.TemporaryDirectory() as folder:
    os.environ |= {"IPATE_TEST_DIR": folder, "DJANGO_SETTINGS_MODULE": "tests.settings", "TMPDIR": folder}
    sys.path.insert(0, os.getcwd())
    import django
    django.setup()
    from django.db import connection
    name = connection.settings_dict["NAME"]
    if connection.vendor == "postgresql":
        connection.settings_dict["TEST"]["NAME"] = f"ipate_reading_{os.getpid()}"
    connection.creation.create_test_db(verbosity=0, serialize=False)
    try:
        from consent.people.pseudonyms import look_alikes_in
        from learning.formats import Report, schema_from_json
        from tests.factories import study_create
        from training.services.datasets import dataset_import
        from training.services.imports import upload_read
        study, path, steps = study_create("stored"), Path(sys.argv[1]), []
        schema = schema_from_json(json.loads(Path(sys.argv[2]).read_text()))
        following = {"progress": lambda done, total: steps.append(done)}
        if "progress" not in inspect.signature(dataset_import).parameters:
            following = {}
        took = []
        for kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) * 2:
            if len(took) == 2:
                Path("/proc/self/clear_refs").write_text("5")  # Linux forgets the peak so far
                report = Report()
                rows = upload_read(path, schema, kind="private", label_file=None, holder_prefix="", with_labels=True,
                                   report=report)
                assert not look_alikes_in(study, rows.holders)
                dataset = dataset_import(study=study, name="rows", kind="private", rows=rows, schema=schema,
                                         balance=report.balance, **following)
                assert dataset.holders == dataset.rows == len(rows) == study.holders.count()
            used = resource.getrusage(kind)
            took.append(used.ru_utime + used.ru_stime)
        status = Path("/proc/self/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        print(json.dumps([took[2] - took[0], took[3] - took[1], peak, len(steps)]))
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
"""


def table(folder: Path, rows: int, numbers: int, categories: int) -> tuple[Path, Path]:
    """Write a table of people with this many columns of numbers and categories, and its schema."""
    rng, path = np.random.default_rng(1), folder / f"{rows}.csv"
    names = [*(f"n{place}" for place in range(numbers)), *(f"c{place}" for place in range(categories))]
    with path.open("w") as file:
        file.write(",".join(["who", *names, "ill"]) + "\n")
        for start in range(0, rows, 10_000):
            count = min(10_000, rows - start)
            cells = np.hstack(
                [
                    np.array([[f"P-{start + place}"] for place in range(count)]),
                    rng.normal(50, 20, (count, numbers)).round(1).astype(str),
                    np.array(["yes", "no", "unknown", "maybe"])[rng.integers(0, 4, (count, categories))],
                    np.array(["sick", "well"])[rng.integers(0, 2, (count, 1))],
                ]
            )
            file.writelines(",".join(row) + "\n" for row in cells.tolist())
    columns = [{"name": "who", "role": "holder"}, {"name": "ill", "role": "label"}]
    columns += [
        {"name": name, "role": "feature"}
        | (
            {"type": "numeric", "minimum": -50, "maximum": 150}
            if name.startswith("n")
            else {"type": "categorical", "values": ["yes", "no", "maybe"], "missing": ["unknown"]}
        )
        for name in names
    ]
    schema = path.with_suffix(".json")
    schema.write_text(json.dumps({"kind": "table", "columns": columns, "classes": ["well", "sick"]}))
    return path, schema


def printed(program: str, *arguments: Path, root: Path = ROOT) -> str:
    """Return the output of a program that imports the project from a folder."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


@contextmanager
def version(commit: str) -> Iterator[Path]:
    """Yield a worktree of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "worktree", "add", "-q", "--detach", folder, commit], cwd=ROOT, check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, check=True)


def speed(folder: Path, before: str) -> None:
    """Print the time for one table with each version, and with pandas."""
    path, schema = table(folder, ROWS, NUMBERS, CATEGORIES)
    with version(before) as earlier:
        programs = {before: (SPEED, earlier), "this version": (SPEED, ROOT), "pandas.read_csv": (PANDAS, ROOT)}
        took: dict[str, list[float]] = {name: [] for name in programs}
        for _turn in range(TURNS):
            for name, (program, root) in programs.items():
                took[name].append(float(printed(program, path, schema, root=root)))
    print(f"{ROWS:,} rows of {NUMBERS + CATEGORIES + 2} columns, {path.stat().st_size / 1e6:.1f} MB")
    print("| | s of processor | ratio |\n|---|---|---|")
    for name, each in took.items():
        print(f"| {name} | {min(each):.2f} | {min(each) / min(took['this version']):.1f} |", flush=True)


def memory(folder: Path, sizes: list[int]) -> None:
    """Print time and memory of reading in a separate process, by the number of rows."""
    print("| rows of 10 columns | MB | s | s of processor | peak MB | steps of progress |\n|---|---|---|---|---|---|")
    for rows in sizes:
        path, schema = table(folder, rows, 6, 2)
        took, processor, peak, steps = json.loads(printed(MEMORY, path, schema))
        size = path.stat().st_size / 1e6
        print(f"| {rows:,} | {size:.0f} | {took:.1f} | {processor:.1f} | {peak:.0f} | {steps} |", flush=True)
        path.unlink()


def stored(folder: Path, sizes: list[int], before: str) -> None:
    """Print the cost of importing as many new people with each version: the importing process, and the reading one."""
    print(
        "| people | version | s of processor | of it reading | peak MB | steps of progress |\n|---|---|---|---|---|---|"
    )
    with version(before) as earlier:
        for rows in sizes:
            path, schema = table(folder, rows, 6, 2)
            for name, root in ((before, earlier), ("this version", ROOT)):
                own, reading, peak, steps = json.loads(printed(STORED, path, schema, root=root))
                print(f"| {rows:,} | {name} | {own + reading:.1f} | {reading:.1f} | {peak:.0f} | {steps} |", flush=True)
            path.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="06c1c76c")
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--only", choices=["speed", "memory", "stored"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if arguments.only in (None, "speed"):
            speed(Path(name), arguments.before)
        if arguments.only in (None, "memory"):
            memory(Path(name), arguments.rows)
        if arguments.only in (None, "stored"):
            stored(Path(name), arguments.rows, arguments.before)
