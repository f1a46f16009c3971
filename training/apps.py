"""App configuration of training."""

from django.apps import AppConfig


class TrainingConfig(AppConfig):
    name = "training"

    def ready(self) -> None:
        from consent.uses import provider_register
        from training import mail_kinds
        from training.uses import usage

        provider_register(usage)
        mail_kinds.register()
