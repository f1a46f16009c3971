"""Plant small faults one at a time, and report the test that finds each, to check that the suite still finds faults.

    python -m benchmarks.planted_faults               # every fault, two at a time
    python -m benchmarks.planted_faults accounting    # those of one area, or whose file or name contains the word
    python -m benchmarks.planted_faults --survivors   # run all of `make test` for each fault that the named tests miss

Each fault is planted in a scratch copy of the tracked files. First the tests that should find it run, then, with
``--survivors``, all tests that `make test` runs, without the exhaustive ones. The faults are in
``benchmarks/planted_faults.toml``, and a test checks that each still fits the code.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
_FAULTS = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Fault:
    """A change of one place in one file, and the tests that should notice it.

    Attributes:
        area: Part of the product, as in the report.
        name: What goes wrong, in a few words.
        file: Path of the file that is changed.
        old: Text that occurs exactly once in the file.
        new: Text that replaces it.
        tests: Paths or node ids of tests, in the order in which they run.
    """

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, folder: Path) -> str:
        """Return the file's text with the fault.

        Raises:
            ValueError: The text to replace does not occur exactly once.
        """
        text = (folder / self.file).read_text(encoding="utf-8")
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {found} times in {self.file}. Update {_FAULTS.name}.")
        return text.replace(self.old, self.new)


def faults() -> list[Fault]:
    """Return all faults."""
    rows = tomllib.loads(_FAULTS.read_text(encoding="utf-8"))["fault"]
    return [Fault(**row | {"tests": tuple(row["tests"])}) for row in rows]


@dataclass(frozen=True)
class Verdict:
    """The test that caught a fault (None if it survived), the command that ran it, and how long that took."""

    fault: Fault
    caught_by: str | None
    command: str
    seconds: float


class Scratch:
    """A copy of the tracked files in which one fault at a time is planted."""

    def __init__(self, folder: Path, python: str) -> None:
        self._folder, self._python = folder, python
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        for name in tracked.stdout.split("\0"):
            if name and (ROOT / name).is_file():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)

    def run(self, fault: Fault, tests: tuple[str, ...]) -> Verdict:
        """Plant ``fault``, run ``tests`` (or all tests that decide about a change) and undo it."""
        path = self._folder / fault.file
        sound = path.read_text(encoding="utf-8")
        path.write_text(fault.planted(self._folder), encoding="utf-8")
        began = time.monotonic()
        try:
            done = self._pytest(tests)
        finally:
            path.write_text(sound, encoding="utf-8")
        caught = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        if done.returncode not in (0, 1) or (done.returncode == 1 and not caught):
            raise RuntimeError(f"{fault.name}: pytest ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
        name = caught[1] if caught else None
        return Verdict(fault, name, "its tests" if tests else "make test", time.monotonic() - began)

    def _pytest(self, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        local = {name: text for name, text in os.environ.items() if name not in ("DATABASE_URL", "IPATE_BROKER_URL")}
        command = [self._python, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-m", "not exhaustive", "--tb=line"]
        command += tests or ("-n", "3", "--dist", "worksteal", "tests")
        return subprocess.run(
            command, cwd=self._folder, env=local | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )


@contextmanager
def scratches(number: int) -> Iterator["Queue[Scratch]"]:
    """Yield a queue of ``number`` scratch copies. Callers take a copy from the queue and put it back after use."""
    free: Queue[Scratch] = Queue()
    with tempfile.TemporaryDirectory(prefix="ipate-faults-") as folder:
        for place in range(number):
            free.put(Scratch(Path(folder, str(place)), sys.executable))
        yield free


def verdicts(chosen: list[Fault], *, everything: bool, processes: int) -> Iterator[Verdict]:
    """Yield the result of each fault; with ``everything`` run the whole suite for faults that their own tests miss."""
    with scratches(processes) as free, ThreadPoolExecutor(processes) as pool:

        def judge(fault: Fault) -> Verdict:
            scratch = free.get()
            try:
                verdict = scratch.run(fault, fault.tests)
                return scratch.run(fault, ()) if everything and verdict.caught_by is None else verdict
            finally:
                free.put(scratch)

        yield from pool.map(judge, chosen)


def main() -> int:
    """Print a table of faults and the test that caught each; return 1 if any survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only faults whose area, name or file contains one of these words")
    parser.add_argument("--processes", type=int, default=2, help="how many faults are tried at a time")
    parser.add_argument("--survivors", action="store_true", help="run all of make test for faults that survive")
    options = parser.parse_args()
    chosen = [
        each
        for each in faults()
        if not options.words or any(word in f"{each.area} {each.name} {each.file}" for word in options.words)
    ]
    survived = 0
    print("| area | fault | caught by | command | seconds |\n|---|---|---|---|---|")
    for verdict in verdicts(chosen, everything=options.survivors, processes=options.processes):
        survived += verdict.caught_by is None
        caught = f"`{verdict.caught_by}`" if verdict.caught_by else "**nothing**"
        fault = verdict.fault
        print(f"| {fault.area} | {fault.name} | {caught} | {verdict.command} | {verdict.seconds:.0f} |", flush=True)
    print(f"\n{len(chosen) - survived} of {len(chosen)} faults caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
