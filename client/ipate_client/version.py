"""Version of the client, which is also the version of the site and its API."""

__version__ = "1.0.0-rc.1"
