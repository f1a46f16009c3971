from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ConsentConfig(AppConfig):
    name = "consent"

    def ready(self) -> None:
        from ipate_web.append_only import install_after_migrate

        post_migrate.connect(install_after_migrate, dispatch_uid="append-only triggers")
