"""Invitations of holders, and new links in place of lost ones."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import StudyChained
from consent.models.holders import DataHolder
from consent.models.recorded import Recorded
from consent.models.studies import Study


class Invitation(Recorded):
    """Invitation: a code that lets its bearer decide as one holder, until it is revoked or their account is confirmed.

    Only the code's hash is kept. Without ``holder`` it is open: the first who uses it becomes a new holder.
    """

    sealed_fields = ("holder", "code_hash", "created_by", "created_at", "revoked_by", "revoked_at")
    working_fields = ("last_used_at",)

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="invitations")
    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, null=True, related_name="invitations")
    code_hash = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the code, in hexadecimal.")
    created_by = actor(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True)
    revoked_by = actor(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["study", "-created_at", "-id"], name="invitation_latest")]
        constraints = [
            models.UniqueConstraint(
                fields=["holder"], condition=Q(revoked_at__isnull=True), name="a_holder_has_one_valid_invitation"
            ),
        ]

    def __str__(self) -> str:
        return str(_("invitation of %(name)s") % {"name": self.holder} if self.holder else _("open invitation"))


class LinkReissue(StudyChained):
    """New link to a holder's decisions in place of earlier ones, with the reason."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="link_reissues")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="link_reissues")
    reason = models.CharField(max_length=500)
    issued_by = actor()
    issued_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("new link for a holder")
        verbose_name_plural = _("new links for holders")

    def __str__(self) -> str:
        return f"by {self.issued_by_id} at {self.issued_at:%Y-%m-%d %H:%M}"
