"""Kill a hub, its sites and their network at random during runs, and check every account afterwards.

    .venv/bin/python -m benchmarks.site_kills [--kills 100] [--seed 1] [--folder FOLDER]

A hub and three sites are each in a network namespace with their own database, pages or worker. nginx terminates TLS in
front of the hub, with a certificate that the sites have pinned; they reach it only through a proxy (CONNECT), as if
from behind a firewall. Runs follow one another until enough strikes have hit: a worker or the hub's pages killed with
all their children, the proxy killed, or the network of one of them cut, for up to some seconds. Then it reports how
each run ended and why, whether any account is above its cap, and whether anyone was charged twice for one question.
Needs root, iproute2, nginx and openssl. Writes benchmarks/results/site_kills.json with --write.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.worker_hosts import cut_off, network, process

RESULTS = Path(__file__).parent / "results" / "site_kills.json"
SITES = 3
HUB, PORT, TLS, PROXY = "a", 8000, 8443, 3128
#: Seconds between strikes, and until the struck part comes back.
BETWEEN, AWAY = (0.5, 4.0), (0.2, 3.0)
#: Share of every cap for a run; runs follow one another.
SHARE = 0.1
#: Seconds after which the hub continues without a site, and after which a run of this benchmark counts as stuck.
PATIENCE, STUCK = 60, 1800


@dataclass
class Target:
    """A target for strikes: a process that ``begin`` restarts, or a host whose network is cut."""

    name: str
    begin: Callable[[], AbstractContextManager[subprocess.Popen]] | None
    host: str = ""
    stack: ExitStack | None = None
    running: subprocess.Popen | None = None

    def start(self) -> None:
        assert self.begin is not None, "a process"
        self.stack = ExitStack()
        self.running = self.stack.enter_context(self.begin())

    def kill(self) -> None:
        assert self.running is not None and self.stack is not None, "it was started"
        os.killpg(self.running.pid, signal.SIGKILL)
        self.stack.close()


@contextmanager
def certificate(folder: Path, address: str) -> Iterator[tuple[Path, Path]]:
    """Yield a self-signed certificate of the hub, and its key."""
    made, key = folder / "hub.pem", folder / "hub.key"
    names = ["-subj", "/CN=hub", "-addext", f"subjectAltName=IP:{address}"]
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run([*new, *names, "-out", str(made), "-keyout", str(key)], check=True, capture_output=True)
    yield made, key


def nginx_settings(folder: Path, address: str, made: Path, key: Path) -> Path:
    """Write the request settings of deploy/nginx.conf for one server, without root's folders."""
    settings = folder / "nginx.conf"
    settings.write_text(
        f"""daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_processes 1; user root;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/sent;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen {address}:{TLS} ssl; ssl_certificate {made}; ssl_certificate_key {key};
        client_max_body_size 200m;
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Proto $scheme;
        location / {{ proxy_pass http://127.0.0.1:{PORT}; }}
    }}
}}
"""
    )
    return settings


PROXY_PROGRAM = """
import socketserver, socket, sys, threading
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        method, target, *_ = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        assert method == "CONNECT", method
        host, _, port = target.rpartition(":")
        try:
            there = socket.create_connection((host, int(port)), 5)
        except OSError:
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\\r\\n\\r\\n")
            return
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        there.settimeout(None)
        def pump(a, b):
            try:
                while data := a.recv(65536):
                    b.sendall(data)
            except OSError:
                pass
            for each in (a, b):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        back = threading.Thread(target=pump, args=(there, self.connection), daemon=True)
        back.start()
        pump(self.connection, there)
        back.join()
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ipate-site-kills-"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipate_web.settings")
    os.environ["IPATE_VAR_DIR"] = str(folder / "own")
    import django

    django.setup()
    with tqdm(total=given.kills) as bar:
        found = kills(folder, given.kills, given.seed, os.getpid() % 250, bar)
    print(json.dumps(found, indent=1))
    if given.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    shutil.rmtree(folder)
    if wrong(found):
        raise SystemExit(f"Wrong: {', '.join(wrong(found))}.")


def wrong(found: dict[str, Any]) -> list[str]:
    """Return descriptions of faults."""
    said = [f"run {place} ended without a reason" for place, run in enumerate(found["runs"]) if not run["told"]]
    for name, state in found["accounts"].items():
        said += [f"{name}: {fault}" for fault in state["faults"]]
        said += [f"{name}: an account is above its cap"] * (not state["within"])
        said += [f"{name}: {state['twice']} questions were charged twice"] * bool(state["twice"])
    return said


def kills(folder: Path, number: int, seed: int, net: int, bar: tqdm) -> dict[str, Any]:
    """Carry out runs until enough strikes have hit; return how runs ended, and the state of every installation.

    Args:
        folder: Folder of all installations.
        number: Number of strikes.
        seed: Seed for targets and times of strikes.
        net: Unused network number, up to 250.
        bar: Progress bar of strikes.
    """
    from ipate_web.joint_demo import alliance_make, databases_make, pages, run_begin, stepping, worker

    hosts, chance = "abcd"[: SITES + 1], random.Random(seed)
    program = folder / "proxy.py"
    program.write_text(PROXY_PROGRAM)
    with ExitStack() as stack:
        outside = stack.enter_context(network(net, hosts))
        address = f"{outside.rpartition('.')[0]}.2"
        made, key = stack.enter_context(certificate(folder, address))
        among = [_installation(folder, net, host, address, outside) for host in hosts]
        settings = nginx_settings(folder, address, made, key)
        inside = [*among[0].within, "nginx", "-c", str(settings)]
        stack.enter_context(process(inside, folder / "nginx.out"))

        def proxy() -> AbstractContextManager[subprocess.Popen]:
            return process([sys.executable, str(program), outside, str(PROXY)], folder / "proxy.log")

        targets = [Target("pages of the hub", lambda: pages(among[0])), Target("proxy", proxy)]
        targets += [Target(f"worker of {each.name}", lambda each=each: worker(each)) for each in among]  # type: ignore[misc]
        steps = [stack.enter_context(stepping(each)) for each in among]
        databases_make(steps)
        for each in targets[:2]:
            each.start()
        alliance_make(steps, "digits", tqdm.write, made.read_text())
        for each in targets[2:]:
            each.start()
        for each in targets:
            stack.callback(lambda each=each: each.stack and each.stack.close())
        targets += [Target(f"network of {each.name}", None, host) for each, host in zip(among, hosts, strict=True)]
        runs: list[dict[str, Any]] = []
        struck: Counter[str] = Counter()
        while struck.total() < number:
            run_begin(steps, chance.choice(["together", "separate"]), SHARE)
            begun, hits = time.monotonic(), 0
            while True:
                states = [each.do("run_state") for each in steps]
                if all(state["status"] in ("finished", "failed", "cancelled") for state in states):
                    break
                if time.monotonic() - begun > STUCK:
                    break
                if struck.total() < number:
                    target = chance.choice(targets)
                    _strike(target, net, chance.uniform(*AWAY))
                    struck[target.name] += 1
                    hits += 1
                    bar.update()
                time.sleep(chance.uniform(*BETWEEN))
            runs.append(_run_outcome(states, hits, time.monotonic() - begun))
        return {
            "seed": seed,
            "strikes": dict(sorted(struck.items())),
            "runs": runs,
            "accounts": {each.at.name: each.do("accounts_state") for each in steps},
        }


def _installation(folder: Path, net: int, host: str, address: str, outside: str) -> Any:
    from ipate_web.joint_demo import Installation

    place = folder / host
    place.mkdir()
    is_hub = host == HUB
    name = "Hub" if is_hub else f"Clinic {host.upper()}"
    variables = {
        "IPATE_HEARTBEAT_TIMEOUT": "4",
        "IPATE_SWEEP_INTERVAL": "1",
        "IPATE_SITES_PATIENCE": str(PATIENCE),
        "OMP_NUM_THREADS": "1",
        "HTTPS_PROXY": "" if is_hub else f"http://{outside}:{PROXY}",
        "HTTP_PROXY": "",
    }
    if is_hub:
        variables |= {"IPATE_SITE_URL": f"https://{address}:{TLS}", "IPATE_BEHIND_PROXY": "true"}
    within = ("ip", "netns", "exec", f"ipate-{host}{net}")
    return Installation(name, place, PORT, f"https://{address}:{TLS}", within, variables)


def _strike(target: Target, net: int, away: float) -> None:
    """Kill a process and restart it after a while, or cut a network for that time."""
    if target.begin is None:
        with cut_off(net, target.host):
            time.sleep(away)
        return
    target.kill()
    time.sleep(away)
    target.start()


def _run_outcome(states: list[dict[str, Any]], hits: int, seconds: float) -> dict[str, Any]:
    """Return how a run ended: finished everywhere, or stopped with a reason."""
    ended = all(state["status"] == "finished" or (state["status"] == "failed" and state["message"]) for state in states)
    return {
        "strikes": hits,
        "seconds": round(seconds),
        "questions": states[0]["position"],
        "states": [state["status"] for state in states],
        "reasons": sorted({state["message"] for state in states if state["status"] != "finished"}),
        "told": ended,
    }


if __name__ == "__main__":
    main()
