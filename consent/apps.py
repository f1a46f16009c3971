"""App configuration of consent."""

from typing import Any

from django.apps import AppConfig


class ConsentConfig(AppConfig):
    name = "consent"

    def ready(self) -> None:
        from django.contrib.auth import get_user_model
        from django.db.models.signals import post_save, pre_delete

        from consent import mail_kinds
        from consent.services.accounts import account_deletion_record, new_account_record

        mail_kinds.register()

        def added(instance: Any, created: bool, raw: bool, **_: object) -> None:
            if created and not raw:
                new_account_record(instance)

        def deleted(instance: Any, **_: object) -> None:
            account_deletion_record(instance)

        # Signals catch every way to create or delete accounts: Django's commands, its admin, single sign-on.
        post_save.connect(added, sender=get_user_model(), weak=False, dispatch_uid="account added")
        pre_delete.connect(deleted, sender=get_user_model(), weak=False, dispatch_uid="account deleted")
