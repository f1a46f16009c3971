"""Django app configuration of the accounts."""

from django.apps import AppConfig


class AccountingConfig(AppConfig):
    name = "accounting"
