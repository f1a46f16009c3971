"""App configuration of the staff pages."""

from django.apps import AppConfig


class StaffConfig(AppConfig):
    """App that provides the template tags of the staff pages."""

    name = "ipate_web.staff"
