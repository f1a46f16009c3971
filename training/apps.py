"""App configuration of the training app."""

from django.apps import AppConfig


class TrainingConfig(AppConfig):
    name = "training"

    def ready(self) -> None:
        from consent.promises.uses import providers_register
        from training.uses import results, usage
        from training.watch import mail_kinds_register

        providers_register(usage, results)
        mail_kinds_register()
