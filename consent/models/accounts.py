"""Administrators of the installation, and every change of an account."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.append_only import AppendOnly
from consent.models.actors import actor


class Administrator(models.Model):
    """Account that administers the installation: creates studies and accounts of staff.

    It gives no right in any study. Each change is an :class:`AccountChange`.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="administrator")

    class Meta:
        verbose_name = _("administrator of the installation")
        verbose_name_plural = _("administrators of the installation")

    def __str__(self) -> str:
        return str(self.user)


class AccountChange(AppendOnly):
    """Act on an account by an administrator of the installation or at its command line."""

    class Kind(models.TextChoices):
        CREATED = "created", _("account made")
        INVITED = "invited", _("link for a password sent again")
        APPOINTED = "appointed", _("made an administrator")
        DISMISSED = "dismissed", _("no longer an administrator")
        CLOSED = "closed", _("account closed")
        REOPENED = "reopened", _("account opened again")

    user = actor()
    kind = models.CharField(max_length=10, choices=Kind)
    changed_by = actor(null=True, help_text="Empty: at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("change of an account")
        verbose_name_plural = _("changes of accounts")
        ordering = ["-changed_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["created", "invited", "appointed", "dismissed", "closed", "reopened"]),
                name="account_change_kind_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: user {self.user_id}"
