"""API token model: only a SHA-512 digest is stored (django-rest-knox)."""

from typing import Any

from django.contrib.auth.models import User
from django.db import models
from django.utils.translation import gettext_lazy as _
from knox.models import AbstractAuthToken


class ApiToken(AbstractAuthToken):
    """Token that lets a program act as ``user`` until ``expiry``; ``token_key`` is its beginning, for display."""

    name = models.CharField(_("name"), max_length=60)

    class Meta(AbstractAuthToken.Meta):
        abstract = False
        verbose_name = _("API token")
        ordering = ["-created"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="api_token_name_is_unique_for_a_user")]

    def __str__(self) -> str:
        return self.name


def tokens_end(user: User, **_: Any) -> None:
    """Delete the tokens of an account that was closed."""
    ApiToken.objects.filter(user=user).delete()
