"""Version of the client, which is that of the site and its API."""

__version__ = "0.9.0"
