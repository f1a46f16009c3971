"""An iPATE site, with a method for each action of researchers, data stewards and operators."""

from __future__ import annotations

from ipate_client.results import Results
from ipate_client.studies import Studies


class Site(Results, Studies):
    """Connection to an iPATE site, with a method for each action of its API.

    Args:
        address: URL of the site; by default the environment variable IPATE_SITE.
        token: Your token, from the page “API tokens”; by default the environment variable IPATE_TOKEN.
        timeout: Seconds to wait for an answer.

    Every method raises ProblemError if the site refuses the request, and httpx.TransportError if the site cannot be
    reached. A `Site` may be used from several threads.
    """

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
