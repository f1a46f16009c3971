"""Time until a browser first shows text, for the main pages of staff and data holders.

    python benchmarks/first_paint.py [--loads 5] [--output benchmarks/results/first_paint.md]

Serves a study with 20 runs from gunicorn, in a separate database (next to the one of DATABASE_URL, or else SQLite), and
opens each page in Chromium at both widths, each time with an empty cache. The time is the browser's
``first-contentful-paint``, in milliseconds from the start of the navigation. Other work on the machine lengthens it.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from databases import empty_database
from playwright.sync_api import Browser, sync_playwright
from web_load import gunicorn
from web_speed import ROOT
from web_study import site_set_up, study_build

WIDTHS = {1280: 900, 390: 844}
RUNS = 20
MOST = 1000
"""Milliseconds that a page may take on an idle machine."""
FIRST_PAINT = """() => new Promise((done) => new PerformanceObserver((list) => {
  for (const { name, startTime } of list.getEntries()) if (name === "first-contentful-paint") done(startTime);
}).observe({ type: "paint", buffered: true }))"""


def pages_build() -> dict[str, tuple[str, dict[str, str]]]:
    """Build a study, and return the path and session cookies of each page by name."""
    from django.test import Client

    from consent.models import Role, Study
    from consent.services import holder_link, membership_add
    from tests import factories

    def session(name: str) -> dict[str, str]:
        client = Client()
        client.force_login(factories.user_create(name))
        return {key: cookie.value for key, cookie in client.cookies.items()}

    paths, staff = study_build(RUNS)
    study, run = Study.objects.get(), paths["run"]
    membership_add(study=study, user=factories.user_create("clara"), role=Role.CHAIR, acting_user=None)
    holder_link(holder=study.holders.earliest("pk"), user=factories.user_create("hanna"))
    factories.holder_create(study, "new", factories.user_create("hugo"))
    root, my = paths["study"], f"/my/{study.slug}/"
    compared = "&".join(f"run={pk}" for pk in study.runs.filter(status="finished").values_list("pk", flat=True)[:2])
    undecided, decided, chair = session("hugo"), session("hanna"), session("clara")
    return {
        "sign in": ("/sign-in/", {}),
        "holder: read and decide": (my, undecided),
        "holder: my choice": (f"{my}choice/", decided),
        "holder: what was learned": (f"{my}uses/", decided),
        "holder: withdraw": (f"{my}withdraw/", decided),
        "studies": ("/", staff),
        "overview of a study": (root, staff),
        "run": (run, staff),
        "comparison of runs": (f"{root}runs/compare/?{compared}", staff),
        "model": (run.replace("/runs/", "/models/"), staff),
        "proposal of a policy": (f"{root}policies/new/", chair),
        "release register": (f"{root}ledger/", staff),
    }


def milliseconds(browser: Browser, address: str, cookies: dict[str, str], width: int) -> float:
    """Return the time until the first paint of a page in a new browser context, which has an empty cache."""
    context = browser.new_context(viewport={"width": width, "height": WIDTHS[width]})
    context.add_cookies([{"name": name, "value": value, "url": address} for name, value in cookies.items()])
    page = context.new_page()
    response = page.goto(address)
    assert response is not None and response.status == 200, address
    found = page.evaluate(FIRST_PAINT)
    context.close()
    return found


def table_of(measured: dict[str, dict[int, list[float]]]) -> str:
    """Return median and longest time of each page and width as a table."""
    widths = " | ".join(f"{width:,} px" for width in WIDTHS)
    lines = [f"| page | {widths} |", "|---|" + "---|" * len(WIDTHS)]
    for name, by_width in measured.items():
        cells = (f"{statistics.median(by_width[width]):.0f} ({max(by_width[width]):.0f})" for width in WIDTHS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=5, help="number of times that each page is opened at each width")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        raise SystemExit("Chromium is missing: install the package “chromium”.")
    sys.path.insert(1, str(ROOT))
    measured: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="ipate-paint-") as folder, empty_database(folder):
        site_set_up()
        pages = pages_build()
        with gunicorn(workers=2) as (_pid, site), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
            for _load in range(1 + given.loads):
                for name, (page, cookies) in pages.items():
                    for width in WIDTHS:
                        time = milliseconds(browser, site + page, cookies, width)
                        measured.setdefault(name, {}).setdefault(width, []).append(time)
            browser.close()
    for by_width in measured.values():
        for times in by_width.values():
            del times[0]  # includes the costs of a process's first requests
    slowest = max(max(times) for by_width in measured.values() for times in by_width.values())
    table = table_of(measured)
    load = os.getloadavg()[0]
    print(f"{table}\n\nslowest {slowest:.0f} ms, at most {MOST} on an idle machine; load {load:.1f}")
    if given.output:
        note = f"Median (longest) milliseconds of {given.loads} loads, with an empty cache; load {load:.1f}."
        given.output.write_text(f"# Time until first text\n\n`python benchmarks/first_paint.py`: {note}\n\n{table}\n")


if __name__ == "__main__":
    main()
