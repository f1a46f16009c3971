"""A fresh machine that is set up by the lock and docs/operations.md alone, in production form.

It takes long, so that it is run by hand, as root: ``IPATE_FRESH_MACHINE=install`` installs from the lock (it downloads
about 1 GB); the path of an environment such as ``.venv`` stands for what `make install` would make.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

ASKED = os.environ.get("IPATE_FRESH_MACHINE", "")
PROGRAMS = ("unshare", "chroot", "adduser", "setpriv", "git", "curl", "openssl", "nginx", "redis-server")


def missing() -> str:
    """Why it cannot be tried here; empty where it can."""
    if not ASKED:
        return "it takes minutes: set IPATE_FRESH_MACHINE to install, or to the path of an environment"
    if os.geteuid() != 0:
        return "it needs root, for a root folder and a network of its own"
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    if lacking or not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return f"not installed: {', '.join(lacking) or 'postgresql'}"
    if subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], check=False).returncode:
        return "this machine gives no namespaces"
    return ""


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_documented_commands_bring_up_an_installation() -> None:
    venv = "-" if ASKED == "install" else str(Path(ASKED).resolve())
    script = Path(__file__).with_name("fresh_machine.sh")
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "bash", script, settings.BASE_DIR, venv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "THE FRESH MACHINE IS WHOLE" in done.stdout, done.stdout + done.stderr
