"""App configuration of accounts."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "ipate_web.accounts"

    def ready(self) -> None:
        from ipate_web.accounts import signals

        signals.register()
        signals.connect()
