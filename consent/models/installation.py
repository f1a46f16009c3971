"""Chains of the whole installation: signed checkpoints, accounts, administrators."""

import json
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.append_only import AppendOnly
from consent.models.chains import InstallationChained
from consent.models.recorded import actor


class Checkpoint(AppendOnly):
    """Signed checkpoint of all chains of all studies; see :mod:`consent.services.checkpoints`.

    ``entry`` and ``note`` are public. ``key`` and ``heads`` are secret, because they open the entry's commitments. They
    are missing from a checkpoint that was lost in a restore and then read from the second location.
    """

    number = models.PositiveIntegerField(unique=True, help_text="Number of log entries, including this one.")
    day = models.DateField(unique=True, help_text="Date in UTC.")
    entry = models.TextField(help_text="Log entry in the form that is hashed, as JSON.")
    note = models.TextField(help_text="Signed checkpoint.")
    key = models.CharField(max_length=64, blank=True)
    heads = models.JSONField(default=dict, help_text="Study → chain → sequence number and hash of its last row.")
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("signed checkpoint")
        verbose_name_plural = _("signed checkpoints")
        ordering = ["number"]

    def __str__(self) -> str:
        return f"checkpoint {self.number}"

    @property
    def content(self) -> dict[str, Any]:
        """Checkpoint's content, parsed from ``entry``."""
        return json.loads(self.entry)


class Administrator(models.Model):
    """Account that administers the installation: it creates studies and staff accounts.

    The role grants no rights in any study. Each change is an :class:`AccountChange`.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="administrator")

    class Meta:
        verbose_name = _("installation administrator")
        verbose_name_plural = _("installation administrators")

    def __str__(self) -> str:
        return str(self.user)


class AccountChange(InstallationChained):
    """Change to an account or its permissions, made by an administrator, by a superuser or at the command line."""

    class Kind(models.TextChoices):
        CREATED = "created", _("account created")
        # Recorded for any account, including holders'; lists omit it because it shows who controls whose account.
        CHANGED = "changed", _("account changed in the admin")
        INVITED = "invited", _("password link sent again")
        APPOINTED = "appointed", _("made an administrator")
        DISMISSED = "dismissed", _("no longer an administrator")
        CLOSED = "closed", _("account closed")
        REOPENED = "reopened", _("account reopened")
        SUPERUSER = "superuser", _("made a superuser")
        NO_SUPERUSER = "no_superuser", _("no longer a superuser")
        ADMIN = "admin", _("given access to the site administration")
        NO_ADMIN = "no_admin", _("no longer has access to the site administration")
        DELETED = "deleted", _("account deleted")
        REVIEWED = "reviewed", _("has reviewed all staff accounts after a backup was restored")

    user = actor()
    kind = models.CharField(max_length=20, choices=Kind)
    changed_by = actor(null=True, help_text="Empty if changed at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(InstallationChained.Meta):
        verbose_name = _("account change")
        verbose_name_plural = _("account changes")
        constraints = [
            models.UniqueConstraint(fields=["sequence"], name="account_change_sequence_is_unique"),
            models.CheckConstraint(
                condition=Q(
                    kind__in=[
                        *("created", "changed", "invited", "appointed", "dismissed", "closed", "reopened"),
                        *("superuser", "no_superuser", "admin", "no_admin", "deleted", "reviewed"),
                    ]
                ),
                name="account_change_kind_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: user {self.user_id}"
