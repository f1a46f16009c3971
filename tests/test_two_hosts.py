"""Two hosts in network namespaces: site and worker on one, database, broker and storages on the other."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.worker_hosts import cut_off, network, process, services
from tests.workers import wait_until

ROOT = Path(__file__).resolve().parent.parent


def missing() -> str:
    """Return what two hosts need that this machine does not have, or an empty text."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if absent := [name for name in ("ip", "redis-server", "redis-cli") if not shutil.which(name)]:
        return f"not installed: {', '.join(absent)}"
    if not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return "PostgreSQL's initdb is not installed"
    name = f"ipate-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespaces here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


MISSING = missing()
pytestmark = [*(pytest.mark.worker, pytest.mark.exhaustive), pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture
def hosts() -> Iterator[tuple[int, Path, dict[str, str]]]:
    """Yield the number of the network, the folder with logs, and the environment of the host with site and worker."""
    folder = Path(tempfile.mkdtemp(prefix="ipate-two-hosts-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    number = os.getpid() % 250
    try:
        with network(number, "a") as address, services(folder, address) as variables:
            own = {
                "PATH": os.environ["PATH"],
                "IPATE_VAR_DIR": str(folder / "state"),
                "IPATE_BIND": f"{address.rpartition('.')[0]}.2:8000",
                "IPATE_SITE_URL": f"http://{address.rpartition('.')[0]}.2:8000",
                "IPATE_HEARTBEAT_TIMEOUT": "5",
                "IPATE_SECRET_KEY": secrets.token_urlsafe(50),
                "WEB_CONCURRENCY": "1",
                "OMP_NUM_THREADS": "1",
            }
            (folder / "state").mkdir()
            yield number, folder, variables | own
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_host_without_its_database_says_so_and_comes_back(hosts: tuple[int, Path, dict[str, str]]) -> None:
    number, folder, variables = hosts
    inside = ["ip", "netns", "exec", f"ipate-a{number}", str(ROOT / "ipate")]
    for command in (["migrate", "-v0"], ["collectstatic", "--noinput", "-v0"]):
        subprocess.run([*inside, *command], env=variables, check=True, capture_output=True)
    logs = [folder / f"{name}.log" for name in ("web", "worker", "beat")]
    with ExitStack() as stack:
        for log in logs:
            stack.enter_context(process([*inside, log.stem], log, env=variables))
        client = stack.enter_context(httpx.Client(base_url=variables["IPATE_SITE_URL"], timeout=300))

        def state(**wanted: str) -> Any:
            def look() -> Any:
                with suppress(httpx.TransportError):
                    found = client.get("/readyz").json()
                    return found if wanted.items() <= found.items() else None

            return wait_until(look, *logs, pause=0.2)

        state(status="ready", database="ok", broker="ok", storage="ok", worker="ok")
        assert client.get("/").status_code == 200
        with cut_off(number, "a"):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{variables['IPATE_SITE_URL']}/healthz", timeout=2)
            # No traffic leaves the host: the site's process is alive, but its database is unreachable.
            alive = ["python", "-c", ASK.format(variables["IPATE_SITE_URL"])]
            within = subprocess.run([*inside[:-1], *alive], capture_output=True, text=True, check=False, env=variables)
            assert within.stdout.strip() == "200", within.stderr
        state(status="ready", database="ok", broker="ok", worker="ok")


ASK = "import urllib.request; print(urllib.request.urlopen('{}/healthz', timeout=300).status)"
