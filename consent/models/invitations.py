"""Invitations and links for holders, and paper letters."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.holders import DataHolder
from consent.models.recorded import Recorded, actor
from consent.models.studies import Study


class Invitation(Recorded):
    """Code that lets its bearer decide as one holder, until it is revoked or the holder's account is confirmed.

    Only a hash of the code is kept. An invitation without ``holder`` is open: its first user becomes a new holder.
    """

    sealed_fields = (
        *("holder", "code_hash", "created_by", "created_at", "revoked_by", "revoked_at"),
        *("returned_by", "returned_at"),
    )
    working_fields = ("last_used_at",)

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="invitations")
    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, null=True, related_name="invitations")
    code_hash = models.CharField(
        max_length=64, unique=True, help_text="Keyed hash of the code; a plain SHA-256 for older, longer codes."
    )
    created_by = actor(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True)
    revoked_by = actor(null=True)
    revoked_at = models.DateTimeField(null=True)
    returned_by = actor(null=True)
    returned_at = models.DateTimeField(null=True, help_text="Time at which the letter was marked as undeliverable.")

    class Meta:
        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["study", "-created_at", "-id"], name="invitation_latest")]
        constraints = [
            models.UniqueConstraint(
                fields=["holder"], condition=Q(revoked_at__isnull=True), name="a_holder_has_one_valid_invitation"
            )
        ]

    def __str__(self) -> str:
        return str(_("invitation of %(name)s") % {"name": self.holder} if self.holder else _("open invitation"))


class LinkReissue(StudyChained):
    """New link to a holder's decisions that replaces earlier links, with the reason."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="link_reissues")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="link_reissues")
    reason = models.CharField(max_length=500)
    issued_by = actor()
    issued_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("new link for a data holder")
        verbose_name_plural = _("new links for data holders")

    def __str__(self) -> str:
        return f"by {self.issued_by_id} at {self.issued_at:%Y-%m-%d %H:%M}"


class Letterhead(Recorded):
    """Words and logo of a study's letters, receipts and paper forms. Empty fields use the site's words."""

    open_fields = ("texts", "logo")

    #: Texts of a letter in each language.
    TEXTS = ("salutation", "text", "refusal", "closing")

    study = models.OneToOneField(Study, on_delete=models.CASCADE, related_name="letterhead")
    texts = models.JSONField(_("letter texts"), default=dict, blank=True, help_text="Language code → name → text.")
    logo = models.TextField(_("logo"), blank=True, help_text="PNG image in Base64.")

    class Meta:
        verbose_name = _("letterhead")
        verbose_name_plural = _("letterheads")

    def __str__(self) -> str:
        return str(self.study)


class Letter(models.Model):
    """Paper letter to a holder without email: its kind, subject and time of printing, and the user who printed it."""

    class Kind(models.TextChoices):
        NEW_FORM = "new_form", _("new information: decide again")
        RENEWAL = "renewal", _("consent is ending or has ended: decide again")
        ANSWERER = "answerer", _("another person now answers for the records")
        RECEIPT = "receipt", _("receipt for a decision on paper")
        NEWS = "news", _("what was learned")

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="letters")
    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, related_name="letters")
    kind = models.CharField(max_length=10, choices=Kind)
    about = models.CharField(max_length=40, help_text="Key of the row that the letter is about.")
    made_by = actor()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("letter")
        verbose_name_plural = _("letters")
        ordering = ["-made_at", "-pk"]
        indexes = [models.Index(fields=["study", "kind", "about"], name="letter_about")]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["new_form", "renewal", "answerer", "receipt", "news"]),
                name="letter_kind_is_known",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.holder}"
