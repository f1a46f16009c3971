"""Contents of an installation: exact files, known licences, a list of parts, signed releases.

Installations of earlier releases are restored with their data in this version by the product's own command.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from django.conf import settings

from deploy.release import environment

ROOT = Path(settings.BASE_DIR)
REQUIREMENTS = ROOT / "requirements"

#: Licences that allow using and distributing parts with Apache-2.0, as packages write them.
ALLOWED = re.compile(
    r"(Apache|BSD|MIT|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|0BSD|CC0|HPND|Unlicense)", re.IGNORECASE
)
#: Licences that packages do not state in a machine-readable way, looked up by hand; and weak copyleft, which requires
#: that changes of that library itself be distributed: none of them is changed here.
LOOKED_UP = {"psycopg": "LGPL-3.0-only", "psycopg-binary": "LGPL-3.0-only", "pyrage": "MIT", "skops": "MIT"}
#: Packages for other platforms or versions of Python.
ELSEWHERE = {"async-timeout", "colorama", "tzdata"}


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return the version and hashes of each package in a file of requirements/."""
    text = (REQUIREMENTS / name).read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if match := re.match(r"([\w.-]+)==([^\s;]+)", line):
            found[match[1].lower().replace("_", "-")] = (match[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def test_every_package_has_its_version_and_hashes_and_none_is_of_cuda() -> None:
    names = set()
    for name in ("site.txt", "worker.txt", "docs.txt", "dev.txt", "encoders.txt", "release.txt", "torch.txt"):
        found = locked(name)
        assert found and all(version and hashes for version, hashes in found.values()), name
        text = re.sub(r"(?m)^#.*", "", (REQUIREMENTS / name).read_text())
        assert "://" not in text and "index" not in text, name
        names |= found.keys()
    assert len(names) > 150
    assert [name for name in names if name.startswith(("nvidia-", "cuda-")) or name == "triton"] == []


def test_the_lists_pin_the_required_versions() -> None:
    for name in ("site", "worker", "docs", "dev", "encoders", "release"):
        found = locked(f"{name}.txt")
        for line in (REQUIREMENTS / f"{name}.in").read_text().splitlines():
            if match := re.match(r"([\w.-]+)(?:\[[\w,]+\])?==(\S+)", line):
                assert found[match[1].lower().replace("_", "-")][0] == match[2], f"{line}: run make lock"


def test_installed_versions_are_the_locked_ones() -> None:
    for name, (version, _) in {**locked("site.txt"), **locked("worker.txt"), **locked("torch.txt")}.items():
        if name not in ELSEWHERE:
            assert metadata.version(name).partition("+")[0] == version, name


def licence_of(name: str) -> str:
    said = metadata.metadata(name)
    classifiers = [each for each in said.get_all("Classifier") or [] if each.startswith("License ::")]
    return said.get("License-Expression") or "; ".join(classifiers) or (said.get("License") or "").split("\n")[0]


def test_every_licence_is_known() -> None:
    looked_at = (locked("site.txt").keys() | locked("worker.txt").keys() | {"torch"}) - ELSEWHERE - LOOKED_UP.keys()
    unknown = {name: licence for name in looked_at if not ALLOWED.search(licence := licence_of(name))}
    assert unknown == {}, "read the licence, then add it to ALLOWED or LOOKED_UP"


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="OpenSSH is not installed")
def test_a_release_is_signed(tmp_path: Path) -> None:
    """Runs the lines of the target ``release`` that make digests and their signature, on other files."""
    release, key = tmp_path / "var" / "release", tmp_path / "key"
    release.mkdir(parents=True)
    (release / "ipate-1.0.0.tar.gz").write_bytes(b"an archive")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "sha256sum" in line]
    command = line.strip().removeprefix("@").replace("$(KEY)", str(key))
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, stderr=subprocess.DEVNULL)
    (tmp_path / "signers").write_text(f"release@ipate.example {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "signers"), "-I", "release@ipate.example"]
    verify += ["-n", "ipate-release", "-s", str(release / "SHA256SUMS.sig")]

    def is_signed() -> bool:
        sums = (release / "SHA256SUMS").read_bytes()
        return subprocess.run(verify, input=sums, capture_output=True, check=False).returncode == 0

    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert is_signed() and subprocess.run(check, cwd=release, check=False).returncode == 0
    (release / "ipate-1.0.0.tar.gz").write_bytes(b"another archive")
    assert subprocess.run(check, cwd=release, check=False, capture_output=True).returncode != 0
    (release / "SHA256SUMS").write_text("0" * 64 + "  ipate-1.0.0.tar.gz\n")
    assert not is_signed()


RELEASE_TOOLS = ROOT / ".venv-release" / "bin" / "cyclonedx-py"


@pytest.mark.skipif(not RELEASE_TOOLS.exists(), reason="make sbom was not run here")
def test_the_list_of_parts_names_every_part(tmp_path: Path) -> None:
    target = tmp_path / "sbom.json"
    command = [RELEASE_TOOLS, "environment", "--output-reproducible", "-o", target, ROOT / ".venv" / "bin" / "python"]
    subprocess.run(command, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    document = json.loads(target.read_text())
    parts = {each["name"].lower().replace("_", "-"): each for each in document["components"]}
    assert document["bomFormat"] == "CycloneDX"
    assert locked("site.txt").keys() - ELSEWHERE <= parts.keys()
    assert parts["django"]["version"] == locked("site.txt")["django"][0]


#: Archives of `python -m deploy.release`, one for each release.
RELEASES = sorted(Path(__file__).parent.glob("releases/*.tar.xz"))


def python(var: Path, *arguments: str) -> str:
    given = os.environ | environment(var)
    given.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("release", [*RELEASES, None], ids=lambda path: path.name if path else "this version")
def test_an_installation_is_upgraded_whole(release: Path | None, tmp_path: Path) -> None:
    """In place of the next release, an installation of this version is archived and restored."""
    if release is None:
        release = tmp_path / "released.tar.xz"
        python(tmp_path / "var-of-old", "-m", "deploy.release", str(release))
    left, var = tmp_path / "left", tmp_path / "var"
    shutil.unpack_archive(release, left)
    (made,) = left.glob("ipate-2*.tar")
    var.mkdir()
    (left / "journal").rename(var / "journal")
    assert "locked" not in python(var, "manage.py", "restore", str(made), "--yes")
    before = json.loads((left / "facts.json").read_text("utf-8"))
    after = json.loads(python(var, "-m", "tests.releases", "facts").splitlines()[-1])
    assert after.keys() >= before.keys()
    assert {name: after[name] for name in before} == before
    python(var, "-m", "tests.releases", "go_on")


def test_releases_have_left_something_behind() -> None:
    assert RELEASES and all(path.stat().st_size < 500_000 for path in RELEASES)
