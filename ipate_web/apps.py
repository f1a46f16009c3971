"""App configuration of the Django project."""

from django.apps import AppConfig


class IpateWebConfig(AppConfig):
    """App that provides the commands which start the site and its workers."""

    name = "ipate_web"
