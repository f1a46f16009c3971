"""App configuration of API tokens."""

from django.apps import AppConfig


class TokensConfig(AppConfig):
    name = "ipate_web.tokens"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from consent.services.accounts import account_closed
        from ipate_web.tokens.models import tokens_end

        account_closed.connect(tokens_end, dispatch_uid="tokens end")
