"""Requests to the API, with retries where they are safe, and with one exception class for all refusals."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import random
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from ipate_client.problems import ProblemError
from ipate_client.version import __version__

USER_AGENT = f"ipate-client/{__version__} python/{platform.python_version()} httpx/{httpx.__version__}"
_UNAVAILABLE = (502, 503, 504)
_TRIES = 4
_LONGEST_WAIT = 180.0
"""Maximum number of seconds for which requests are retried while the site asks the client to wait."""


class Connection:
    """Connection to an iPATE site, with requests to its API.

    Args:
        address: URL of the site; by default the environment variable IPATE_SITE.
        token: Your token, from the page “API tokens”; by default the environment variable IPATE_TOKEN.
        timeout: Seconds to wait for an answer.

    Every method raises ProblemError if the site refuses the request, and httpx.TransportError if the site cannot be
    reached. Requests that change nothing, or whose key lets the site recognise repetitions, are sent again if the
    connection breaks or the site is unavailable. Requests wait as long as the site's `Retry-After` header requires.
    """

    def __init__(self, address: str | None = None, token: str | None = None, *, timeout: float = 60.0) -> None:
        address, token = address or os.environ.get("IPATE_SITE"), token or os.environ.get("IPATE_TOKEN")
        if not address or not token:
            raise ValueError("Pass address and token, or set the environment variables IPATE_SITE and IPATE_TOKEN.")
        headers = {"Authorization": f"Bearer {token}", "User-Agent": USER_AGENT}
        self._http = httpx.Client(base_url=f"{address.rstrip('/')}/api/v1/", headers=headers, timeout=timeout)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _pages(self, path: str, filters: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        offset, size = 0, 1000
        while True:
            page = self._get(path, {**(filters or {}), "limit": size, "offset": offset}).json()
            yield from page["results"]
            offset += size
            if not page["next"]:
                return

    def _get(self, path: str, params: dict[str, Any] | None = None) -> httpx.Response:
        return self._request("GET", path, params=params)

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        return dict(self._request(method, path, **arguments).json())

    def _list(self, method: str, path: str, **arguments: Any) -> list[dict[str, Any]]:
        return list(self._request(method, path, **arguments).json())

    def _asked(self, path: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer to a POST request that changes nothing and can therefore be repeated."""
        return self._json("POST", path, is_repeatable=True, **arguments)

    def _once(self, path: str, **arguments: Any) -> dict[str, Any]:
        """Send a request that must take effect only once, with a key that lets the site recognise a repetition."""
        return self._json("POST", path, headers=_key(), is_repeatable=True, **arguments)

    def _once_list(self, path: str, **arguments: Any) -> list[dict[str, Any]]:
        return self._list("POST", path, headers=_key(), is_repeatable=True, **arguments)

    def _request(self, method: str, path: str, *, is_repeatable: bool = False, **arguments: Any) -> httpx.Response:
        """Send a request, with retries, and return the successful response. Raises ProblemError."""
        retries = _Retries(is_repeatable or method in ("GET", "PUT"))
        while True:
            try:
                response = self._http.request(method, path, **arguments)
            except httpx.TransportError:
                if not retries.after_break():
                    raise
                continue
            if not retries.after(response):
                return _successful(response)

    def _download(self, path: str, params: dict[str, Any] | None = None) -> bytes:
        """Return a file after checking its digest. If the connection breaks, fetch only the missing part.

        Raises:
            ValueError: the file does not match the site's digest.
        """
        content, tag, retries = bytearray(), "", _Retries(True)
        while True:
            headers = {"Accept-Encoding": "identity"}
            if content and tag:
                headers |= {"Range": f"bytes={len(content)}-", "If-Range": tag}
            try:
                with self._http.stream("GET", path, params=params, headers=headers) as response:
                    if not response.is_success:
                        response.read()
                        if retries.after(response):
                            continue
                    _successful(response)
                    if response.status_code != httpx.codes.PARTIAL_CONTENT:
                        content.clear()
                    tag = response.headers.get("ETag", "")
                    for part in response.iter_bytes():
                        content += part
            except httpx.TransportError:
                if not retries.after_break():
                    raise
                continue
            digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
            if response.headers.get("Repr-Digest", f"sha-256=:{digest}:") != f"sha-256=:{digest}:":
                raise ValueError("The file does not match the site's digest. Download it again.")
            return bytes(content)


def _key() -> dict[str, str]:
    return {"Idempotency-Key": uuid4().hex}


class _Retries:
    """Retry policy, which decides whether to send a request again and waits before doing so."""

    def __init__(self, is_repeatable: bool) -> None:
        self._is_repeatable, self._tried = is_repeatable, 1
        self._until = time.monotonic() + _LONGEST_WAIT

    def after_break(self) -> bool:
        """Return whether to send the request again after the connection broke."""
        if not self._is_repeatable or self._tried >= _TRIES:
            return False
        time.sleep(_spread(2.0 ** (self._tried - 1)))
        self._tried += 1
        return True

    def after(self, response: httpx.Response) -> bool:
        """Return whether to send the request again after this response."""
        asked = _seconds(response.headers.get("Retry-After"))
        if response.status_code == httpx.codes.TOO_MANY_REQUESTS:  # the site refused the request before doing anything
            return self._wait(1.0 if asked is None else asked)
        if response.status_code not in _UNAVAILABLE or not self._is_repeatable:
            return False
        return self.after_break() if asked is None else self._wait(asked)

    def _wait(self, seconds: float) -> bool:
        seconds = _spread(max(1.0, seconds))
        if time.monotonic() + seconds > self._until:
            return False
        time.sleep(seconds)
        return True


def _spread(seconds: float) -> float:
    """Return the pause, extended randomly by up to a quarter, so that clients do not all retry at the same time."""
    return seconds * random.uniform(1, 1.25)  # noqa: S311 - no secret


def _seconds(header: str | None) -> float | None:
    """Return the seconds to wait from a Retry-After header: a number of seconds, or a date (RFC 9110, 10.2.3).

    >>> _seconds("7"), _seconds("Fri, 31 Dec 1999 23:59:59 GMT"), _seconds("soon"), _seconds(None)
    (7.0, 0.0, None, None)
    """
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        date = parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())


def _successful(response: httpx.Response) -> httpx.Response:
    """Return the response if its status is from 200 to 299. Raises ProblemError otherwise."""
    if response.is_redirect:
        place = response.headers["Location"]
        text = f"The site redirects to {place}, which the client does not follow. Give the site's address"
        raise ProblemError(
            response.status_code, f"{text} as it appears there, such as https:// instead of http://.", []
        )
    if not response.is_success:
        raise ProblemError.of(response)
    return response


def at(*parts: str | int) -> str:
    """Return a path made of these parts, escaping each.

    >>> at("studies", "a/b?", "budget")
    'studies/a%2Fb%3F/budget'

    Raises:
        ValueError: a part is empty, or would change the rest of the path.
    """
    for part in map(str, parts):
        if part.strip(".") == "":
            raise ValueError(f"“{part}” is not a name or id.")
    return "/".join(quote(str(part), safe="") for part in parts)
