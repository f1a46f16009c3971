"""API token model: only a SHA-512 digest is stored (django-rest-knox)."""

from typing import Any

from django.contrib.auth.models import User
from django.db import models
from django.utils.translation import gettext_lazy as _
from knox.models import AbstractAuthToken


class Scope(models.TextChoices):
    """Permitted uses of a token, within its user's permissions."""

    READ = "read", _("read: studies, runs, labels, models")
    PROPOSE = "propose", _("propose: plan and propose runs, train versions of students")
    PREDICT = "predict", _("predict: ask models for predictions")
    DECIDE = (
        "decide",
        _(
            "decide: approve and cancel runs, publish and withdraw models and tables, set thresholds and stages, "
            "take head counts, register encoders, decide about alliances' runs"
        ),
    )
    REHEARSE = "rehearse", _("rehearse: set up rehearsal studies, import their datasets")
    RECORDS = "records", _("records: import data, record decisions on paper")
    WEBHOOKS = "webhooks", _("webhooks: list, create, test and remove webhooks")


def every_scope() -> list[str]:
    """Return all scopes, which are also the scopes of tokens created before scopes existed."""
    return list(Scope.values)


class ApiToken(AbstractAuthToken):
    """Token that lets a program act as ``user`` until ``expiry``; ``token_key`` is its beginning, for display."""

    name = models.CharField(_("name"), max_length=60)
    scopes = models.JSONField(_("permissions"), default=every_scope)

    class Meta(AbstractAuthToken.Meta):
        abstract = False
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        ordering = ["-created"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="api_token_name_is_unique_for_a_user")]

    def __str__(self) -> str:
        return self.name

    @property
    def scope_names(self) -> str:
        """Return short names of the token's scopes, for a page."""
        return ", ".join(self.scopes)


def tokens_end(user: User, **_: Any) -> None:
    """Delete the tokens of a closed account."""
    ApiToken.objects.filter(user=user).delete()
