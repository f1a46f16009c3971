"""Processor time of a page in the site's process, before and after a change, in one run.

    python benchmarks/web_speed.py [--before COMMIT] [--runs 20] [--requests 40] [--output FILE]

Both versions run at the same time, each in a process with a separate database (next to the one of DATABASE_URL, or else
SQLite) and the same study, and respond in turns, so that other load affects both. A request goes through the WSGI
application as called by gunicorn. On PostgreSQL, the server's own time is not counted. Without --before only this
version is measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5


def application_call(application: Any, address: str, cookies: dict[str, str]) -> int:
    """Return the status of a request handled in this process."""
    parts = urlsplit(address)
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": parts.path,
        "QUERY_STRING": parts.query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "localhost",
        "HTTP_ACCEPT_LANGUAGE": "de",
        "HTTP_COOKIE": "; ".join(f"{name}={value}" for name, value in cookies.items()),
        "wsgi.url_scheme": "http",
        "wsgi.input": sys.stdin.buffer,
        "wsgi.errors": sys.stderr,
    }
    statuses: list[str] = []
    answer = application(environ, lambda status, headers, exc_info=None: statuses.append(status))
    for _part in answer:
        pass
    answer.close()
    return int(statuses[0].split()[0])


def serve(runs: int) -> None:
    """Build the study with the code in the working folder; answer each line "PAGE REQUESTS" with the medians."""
    sys.path.insert(1, os.getcwd())
    from databases import empty_database
    from web_study import site_set_up, study_build

    with tempfile.TemporaryDirectory(prefix="ipate-web-") as folder, empty_database(folder):
        site_set_up()
        from django.core.wsgi import get_wsgi_application
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        addresses, cookies = study_build(runs)
        application = get_wsgi_application()
        print(json.dumps({"database": connection.vendor}), flush=True)
        for line in sys.stdin:
            page, _, requests = line.strip().rpartition(" ")
            with CaptureQueriesContext(connection) as queries:
                assert application_call(application, addresses[page], cookies) == 200, page
            number, times = len(queries), []
            for _request in range(int(requests)):
                start = time.process_time()
                status = application_call(application, addresses[page], cookies)
                times.append(1000 * (time.process_time() - start))
                assert status == 200, f"{page} answers {status}"
            print(json.dumps({"times": times, "queries": number}), flush=True)


class Site:
    """A process that serves the version in a folder."""

    def __init__(self, folder: Path, runs: int) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", "--runs", str(runs)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("The site's process has exited; see above.")
        return json.loads(line)

    def ask(self, page: str, requests: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{page} {requests}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def version_of(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="ipate-before-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="a commit to compare with this version")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.runs)
        return
    from web_study import PAGES

    with ExitStack() as stack:
        folders = {"before": stack.enter_context(version_of(given.before))} if given.before else {}
        folders["after"] = ROOT
        sites = {name: Site(folder, given.runs) for name, folder in folders.items()}
        for site in sites.values():
            stack.callback(site.close)
        databases = {site.read()["database"] for site in sites.values()}
        measured: dict[str, dict[str, dict[str, Any]]] = {page: {} for page in PAGES}
        times: dict[tuple[str, str], list[float]] = {(page, name): [] for page in PAGES for name in sites}
        for page in PAGES:
            for site in sites.values():
                site.ask(page, 5)  # excludes the costs of a process's first requests
        for _round in range(ROUNDS):
            for page in PAGES:
                for name, site in sites.items():
                    answer = site.ask(page, max(1, given.requests // ROUNDS))
                    times[page, name] += answer["times"]
                    measured[page][name] = {"queries": answer["queries"]}
    print(f"{', '.join(databases)}, {given.runs} runs, ms of processor time for each request (queries)")
    for page, by_name in measured.items():
        for name, found in by_name.items():
            found["ms"] = round(statistics.median(times[page, name]), 1)
        line = "  ".join(f"{name} {found['ms']:>6.1f} ({found['queries']:>3})" for name, found in by_name.items())
        if "before" in by_name:
            line += f"  ratio {by_name['after']['ms'] / by_name['before']['ms']:.2f}"
        print(f"  {page:<10} {line}")
    if given.output:
        result = {"database": ", ".join(databases), "runs": given.runs, "before": given.before, "pages": measured}
        given.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
