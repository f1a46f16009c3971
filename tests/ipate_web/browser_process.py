"""A process of its own with a browser in it: reads requests as JSON lines, writes the status codes of their answers.

A line is ``[path, fields, times]``: the page is opened, and its form sent ``times`` times, with the CSRF token that the
page gave. A token can only be had from a page that is shown; where it is refused, the page's status is the answer.
"""

import json
import sys

import django
from django.test import Client
from django.test.utils import setup_test_environment


def statuses(path: str, fields: dict[str, str], times: int) -> list[int]:
    client = Client(enforce_csrf_checks=True)
    page = client.get(path)
    if page.status_code != 200:
        return [page.status_code] * times
    sent = {**fields, "csrfmiddlewaretoken": client.cookies["csrftoken"].value}
    return [client.post(path, sent).status_code for _ in range(times)]


def main() -> None:
    django.setup()
    setup_test_environment()
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        print(json.dumps(statuses(*json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
