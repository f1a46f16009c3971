"""App configuration of training."""

from django.apps import AppConfig


class TrainingConfig(AppConfig):
    name = "training"

    def ready(self) -> None:
        from consent.promises.uses import providers_register
        from training import mail_kinds
        from training.results import results
        from training.uses import usage

        providers_register(usage, results)
        mail_kinds.register()
