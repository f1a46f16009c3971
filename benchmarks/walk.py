"""Clicks, typed addresses and seconds from an empty installation to a published model, in a browser.

    python benchmarks/walk.py

Runs the test that follows the tutorial *A first study*, in the database and with the broker of the environment, or else
on SQLite with files. The seconds include a worker's work, but not the reading and typing of people.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
TEST = "tests/browser/test_walk.py"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ipate-walk-") as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:randomly", "-o", "junit_family=xunit1", "-o", "junit_duration_report=call"]
        subprocess.run([sys.executable, "-m", "pytest", *options, f"--junitxml={report}", TEST], cwd=ROOT, check=True)
        (case,) = ElementTree.parse(report).iter("testcase")
    for each in case.iter("property"):
        print(f"{each.get('name'):<16} {each.get('value'):>5}")
    print(f"{'seconds':<16} {float(case.get('time', 'nan')):>5.0f}")


if __name__ == "__main__":
    main()
