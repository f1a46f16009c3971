"""A fresh machine that is set up by docs/install.md alone, in production form, by a systemd of its own; a run finishes.

What `make install` makes is this environment; with ``IPATE_FRESH_MACHINE=install`` it is installed from the lock, which
downloads about 1 GB.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

PROGRAMS = ("unshare", "nsenter", "chroot", "adduser", "setpriv", "git", "curl", "openssl", "nginx", "redis-server")


def missing() -> str:
    """Why it cannot be tried here; empty where it can."""
    if os.geteuid() != 0:
        return "it needs root, for a root folder and a network of its own"
    lacking = [name for name in (*PROGRAMS, "/lib/systemd/systemd") if not shutil.which(name)]
    if lacking or not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return f"not installed: {', '.join(lacking) or 'postgresql'}"
    namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")
    if subprocess.run(["unshare", *namespaces, "--fork", "true"], check=False).returncode:
        return "this machine gives no namespaces"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "this machine gives no control groups"
    return ""


@pytest.mark.exhaustive
@pytest.mark.worker
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_documented_commands_bring_up_an_installation() -> None:
    venv = "-" if os.environ.get("IPATE_FRESH_MACHINE") == "install" else sys.prefix
    script = Path(__file__).with_name("fresh_machine.sh")
    command = ["bash", script, settings.BASE_DIR, venv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "THE FRESH MACHINE IS WHOLE" in done.stdout, done.stdout + done.stderr
