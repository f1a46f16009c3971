"""App configuration of consent."""

from django.apps import AppConfig


class ConsentConfig(AppConfig):
    name = "consent"

    def ready(self) -> None:
        from consent import mail_kinds

        mail_kinds.register()
