"""App configuration of accounts."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "ipate_web.accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ipate_web.accounts import adapters

        adapters.register()
        adapters.connect()
