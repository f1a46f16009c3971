"""App configuration of the shared foundations."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class CommonConfig(AppConfig):
    name = "common"

    def ready(self) -> None:
        from common.append_only import install_after_migrate

        # The signal is sent for each app, but always after the very last migration, so one receiver is enough.
        post_migrate.connect(install_after_migrate, sender=self, dispatch_uid="append-only triggers")
