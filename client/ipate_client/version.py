"""Version of the client, equal to the version of the site and its API."""

__version__ = "1.0.0-rc.1"
