"""The site, with one method for each action of a researcher, a data steward or an operator."""

from __future__ import annotations

from ipate_client.results import Results
from ipate_client.studies import Studies


class Site(Results, Studies):
    """A site of iPATE, and the actions of its API.

    Args:
        address: Address of the site; the variable IPATE_SITE if left out.
        token: Your token, from the page “API tokens”; the variable IPATE_TOKEN if left out.
        timeout: Seconds to wait for an answer.

    Every method raises ProblemError if the site refuses, and httpx.TransportError if it cannot be reached. It may be
    used from several threads.
    """

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
