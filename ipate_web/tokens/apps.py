"""App configuration of API tokens."""

from django.apps import AppConfig


class TokensConfig(AppConfig):
    name = "ipate_web.tokens"
    default_auto_field = "django.db.models.BigAutoField"
