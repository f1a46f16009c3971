"""Pages of a study with very many holders and runs, for many clients: gunicorn, before and after, in one run.

    DATABASE_URL=postgres://… python benchmarks/web_load.py [--before COMMIT] [--holders 1000000] [--runs 100]
        [--clients 20] [--rate 14] [--workers 4] [--seconds 30] [--output FILE]

Works in a separate database next to the one of DATABASE_URL, and runs the earlier version in another, because their
tables differ. Clients request the study's page, first one request after the other, then together at a fixed rate, where
a request's time is counted from when it was due. In addition to wall-clock times, which other work on the machine
lengthens, it prints gunicorn's processor time for each request, and the page's slowest queries.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from databases import empty_database
from ledger_speed import holders_copy
from web_speed import ROOT, application_call, version_of
from web_study import site_set_up, study_build

TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(parent: int) -> float:
    """Return the processor time so far of a process and its children."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = status.read_text().partition(" (")
        except OSError:
            continue
        fields = rest.rpartition(") ")[2].split()
        if parent in (int(pid), int(fields[1])):
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


@contextmanager
def gunicorn(workers: int):
    """Run a site that serves this version; yield its process id and address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "gunicorn", "--config", "deploy/gunicorn.py", "ipate_web.wsgi:application"]
    environment = os.environ | {"IPATE_BIND": address, "WEB_CONCURRENCY": str(workers), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        for _try in range(600):
            try:
                httpx.get(f"http://{address}/healthz", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.2)
        yield process.pid, f"http://{address}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def load(url: str, cookies: dict[str, str], clients: int, seconds: float, rate: float = 0.0) -> list[float]:
    """Return the duration of each request that ``clients`` made within ``seconds``.

    rate: requests per second of all clients together; if 0, each client sends its next request after the last response.
    """
    times: list[float] = []
    interval = clients / rate if rate else 0.0
    begin = time.monotonic()
    end = begin + seconds

    def ask(number: int) -> None:
        due = begin + interval * number / clients
        with httpx.Client(cookies=cookies, timeout=120) as client:
            while max(due, time.monotonic()) < end:
                time.sleep(max(0.0, due - time.monotonic()))
                begun = due if rate else time.monotonic()
                assert client.get(url).status_code == 200
                times.append(time.monotonic() - begun)
                due += interval

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def measure(page: str, cookies: dict[str, str], given: argparse.Namespace) -> dict[str, Any]:
    found = {}
    with gunicorn(given.workers) as (pid, site):
        load(site + page, cookies, given.workers, 2.0)
        for name, rate in (("without a pause", 0.0), (f"{given.rate:g} a second", given.rate)):
            before = processor_seconds(pid)
            times = load(site + page, cookies, given.clients, given.seconds, rate)
            hundredths = statistics.quantiles(times, n=100)
            found[name] = {
                "requests": len(times),
                "p50_ms": round(1000 * hundredths[49]),
                "p95_ms": round(1000 * hundredths[94]),
                "processor_ms": round(1000 * (processor_seconds(pid) - before) / len(times), 1),
            }
            print(f"    {name:<16} {found[name]}, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def measure_before(given: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """Return results of the earlier commit's benchmark in a database built by its own code."""
    names = ("holders", "runs", "clients", "rate", "workers", "seconds")
    options = [f"--{name}={getattr(given, name)}" for name in names]
    with version_of(given.before) as folder:
        output = folder / "web_load.json"
        script = folder / "benchmarks" / "web_load.py"
        subprocess.run(
            [sys.executable, str(script), *options, f"--output={output}"], cwd=folder, env=environment, check=True
        )
        return json.loads(output.read_text())["after"]


def slowest_queries(page: str, cookies: dict[str, str], number: int = 3) -> None:
    """Print the slowest queries of a page, with their plans."""
    from django.core.wsgi import get_wsgi_application
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    application = get_wsgi_application()
    application_call(application, page, cookies)
    with CaptureQueriesContext(connection) as queries:
        application_call(application, page, cookies)
    print(
        f"  {len(queries)} queries, {1000 * sum(float(each['time']) for each in queries):.0f} ms in all; the slowest:"
    )
    for each in sorted(queries, key=lambda each: -float(each["time"]))[:number]:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {each['sql']}")
            plan = [row[0] for row in cursor.fetchall()]
        print(f"    {1000 * float(each['time']):.0f} ms: {each['sql'][:160]}")
        print("\n".join(f"      {line}" for line in plan[:12]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="a commit whose own version of the benchmark runs next")
    parser.add_argument("--holders", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rate", type=float, default=14)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    sys.path.insert(1, str(ROOT))
    environment = dict(os.environ)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ipate-web-"))
        stack.enter_context(empty_database(folder))
        site_set_up()
        from django.db import connections

        from consent.models import ConsentEvent

        begun = time.monotonic()
        addresses, cookies = study_build(given.runs)
        holders_copy(ConsentEvent.objects.last(), given.holders)
        print(f"{given.holders:,} holders, {given.runs} runs, built in {time.monotonic() - begun:.0f} s", flush=True)
        slowest_queries(addresses["study"], cookies)
        connections.close_all()
        result: dict[str, Any] = {"holders": given.holders, "runs": given.runs, "clients": given.clients}
        result["after"] = measure(addresses["study"], cookies, given)
    if given.before:
        result["before"] = measure_before(given, environment)
    if given.output:
        given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
