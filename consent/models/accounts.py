"""Administrators of the installation, and every change of an account."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import InstallationChained


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


class AccountChange(InstallationChained):
    """Act on an account by an administrator or superuser or at the command line, or change of what it may do."""

    class Kind(models.TextChoices):
        CREATED = "created", _("account made")
        # Of anybody, holders included: by it one sees whose account is in another's hands, and lists leave it out.
        CHANGED = "changed", _("account changed in the admin")
        INVITED = "invited", _("link for a password sent again")
        APPOINTED = "appointed", _("made an administrator")
        DISMISSED = "dismissed", _("no longer an administrator")
        CLOSED = "closed", _("account closed")
        REOPENED = "reopened", _("account opened again")
        SUPERUSER = "superuser", _("made a superuser")
        NO_SUPERUSER = "no_superuser", _("no longer a superuser")
        ADMIN = "admin", _("let into the site administration")
        NO_ADMIN = "no_admin", _("no longer let into the site administration")
        DELETED = "deleted", _("account deleted")
        REVIEWED = "reviewed", _("has reviewed all accounts of staff after a restored backup")

    user = actor()
    kind = models.CharField(max_length=20, choices=Kind)
    changed_by = actor(null=True, help_text="Empty: at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(InstallationChained.Meta):
        verbose_name = _("change of an account")
        verbose_name_plural = _("changes of accounts")
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
