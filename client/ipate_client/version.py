"""Version of the client, which is that of the site and its API."""

__version__ = "1.0.0-rc.1"
