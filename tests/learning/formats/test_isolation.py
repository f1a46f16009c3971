"""Reading files in a separate process."""

import gzip
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from common.confinement import protections, scratch_folder, scratch_sweep
from learning.formats import DataError, Report, TabularSchema, limits, read_file, schema_draft
from learning.formats.columns import CategoricalColumn, HolderColumn, LabelColumn, NumericColumn
from learning.formats.isolation import Allowance, draft_isolated, read_isolated
from learning.formats.records import NameFile

AGE = NumericColumn("age", 0, 100, missing=("",))
COLUMNS = HolderColumn("who"), AGE, CategoricalColumn("sex", ("f", "m"), other=True)
SCHEMA = TabularSchema((*COLUMNS, LabelColumn("ill")), ("no", "yes"))
TEXT = "who,age,sex,ill\nada,50,f,yes\nben,,d,no\neve,200,m,no\n,old,f,maybe\n"
ENOUGH = Allowance(500, 20)


@pytest.mark.exhaustive
def test_rows_report_draft_and_refusal_are_those_of_the_reader(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(TEXT)
    here, apart, result = Report(), Report(), []
    expected = read_file(path, SCHEMA, report=here)
    rows = read_isolated(path, SCHEMA, allowance=ENOUGH, report=apart, progress=lambda *step: result.append(step))
    np.testing.assert_array_equal(rows.x, expected.x)
    np.testing.assert_array_equal(rows.y, expected.y)
    assert rows.holders == expected.holders
    for fact in ("count", "clipped", "unknown", "missing"):
        assert getattr(apart, fact) == getattr(here, fact), fact
    assert [str(fault) for fault in apart.faults] == [str(fault) for fault in here.faults]
    assert any(hasattr(fault.problem, "to_json") for fault in apart.faults), "otherwise no page could translate them"
    assert result[-1] == (path.stat().st_size,) * 2
    assert draft_isolated(path, ENOUGH, private=False) == schema_draft(path)
    path.write_text("one\n")
    with pytest.raises(DataError, match="has only one column, “one”"):
        draft_isolated(path, ENOUGH, private=True)


@pytest.mark.exhaustive
def test_a_slow_file_is_a_fault_and_one_that_grows_too_much_an_error(tmp_path, monkeypatch):
    path, report = tmp_path / "a.csv.gz", Report()
    path.write_bytes(gzip.compress(TEXT.encode() + b"\n" * 100_000_000, 1))
    read_isolated(path, SCHEMA, allowance=Allowance(500, 1), report=report)
    assert ["took longer than 1 seconds" in str(fault) for fault in report.faults] == [True]
    monkeypatch.setattr(limits, "LEAST_CONTENT", 1 << 18)
    monkeypatch.setattr(limits, "MOST_GROWTH", 2)
    path.write_bytes(gzip.compress(TEXT.encode() + b"\n" * (1 << 20)))
    with pytest.raises(DataError, match="When unpacked, the file grows to more than"):
        read_file(path, SCHEMA, report=None)


@pytest.mark.skipif(sys.platform != "linux", reason="needs seccomp and Landlock")
def test_a_confined_process_has_no_network():
    program = """
from common.confinement import confine
import os, socket, subprocess
confine(memory=200 << 20, seconds=5)
for reach in (
    socket.socket, lambda: subprocess.run(["true"]), lambda: os.kill(os.getppid(), 0), lambda: bytearray(300 << 20)
):
    try:
        print(reach())
    except (PermissionError, MemoryError):
        print("refused")
print(len(bytearray(100 << 20)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused"] * 4 + [str(100 << 20)]


@pytest.mark.skipif(not protections().get("files"), reason="the kernel has no Landlock")
def test_a_confined_process_opens_only_its_own_files(tmp_path):
    """Otherwise a file that takes over its reader could put the site's secrets into its output."""
    for name in ("own", "secret", "made"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    program = f"""
from pathlib import Path
from common.confinement import confine
folder = Path({str(tmp_path)!r})
confine(memory=400 << 20, reads=[folder / "own" / "file"], writes=[folder / "made"])
import pyreadstat, pydicom  # as readers do when they meet such a file
for attempt in (
    (folder / "own" / "file").read_text,
    lambda: (folder / "made" / "file").write_text("four"),
    (folder / "secret" / "file").read_text,
    lambda: (folder / "own" / "file").write_text("x"),
    lambda: (folder / "secret" / "new").write_text("x"),
    lambda: list(folder.iterdir()),
    Path("/etc/passwd").read_text,
    Path("/proc/1/environ").read_bytes,
    (folder / "made" / "file").unlink,
):
    try:
        print(attempt())
    except PermissionError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["own", "4", *["refused"] * 6, "None"]
    assert (tmp_path / "own" / "file").read_text() == "own"


def test_copies_are_gone_afterwards_and_those_of_killed_processes_swept(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as folder:
        (folder / "copy").write_text("a record")
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    left, young = tmp_path / "ipate-scratch-left", tmp_path / "ipate-scratch-young"
    for each in (left, young):
        each.mkdir()
        (each / "copy").write_text("a record")
    os.utime(left, (time.time() - 100,) * 2)
    scratch_sweep(50)
    assert (left.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 2500])
def test_names_in_a_file_are_read_like_a_list(tmp_path, count):
    names = [f"ä{place}" for place in range(count)]
    (tmp_path / "names").write_text("".join(f"{name}\n" for name in names), "utf-8")
    read = NameFile(tmp_path / "names")
    assert len(read) == count and list(read) == names and read == names
    assert read[-1] == names[-1] and read[count // 2 : count + 3] == names[count // 2 :] and read[::-1] == names[::-1]
