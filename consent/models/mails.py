"""Mails to the people of accounts and to addresses that were left, and wishes of accounts about them."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.addresses import HolderAddress
from consent.models.studies import Study


class Mail(models.Model):
    """Mail to the person of an account, or to an address that was left: which kind, about what, when, and its state.

    Its words are not kept. They are written when it is delivered, from ``kind``, ``study`` and ``about``, none of which
    tells a level.
    """

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")
        DROPPED = "dropped", _("no confirmed address")

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    address = models.ForeignKey(HolderAddress, on_delete=models.CASCADE, null=True, related_name="mails")
    kind = models.CharField(max_length=30)
    study = models.ForeignKey(Study, on_delete=models.CASCADE, null=True, related_name="+")
    about = models.CharField(max_length=40, blank=True, help_text="Key of the row that it is about, or a language.")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    fault = models.CharField(
        max_length=100, blank=True, help_text="Class of the last error; its words may name people."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    due_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("mail")
        verbose_name_plural = _("mails")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["due_at"], condition=Q(state="waiting"), name="mail_waiting")]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "sent", "failed", "dropped"]), name="mail_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(user__isnull=True, address__isnull=False) | Q(user__isnull=False, address__isnull=True),
                name="mail_goes_to_an_account_or_an_address",
            ),
        ]

    def __str__(self) -> str:
        reader = f"user {self.user_id}" if self.user_id else f"address {self.address_id}"
        return f"{self.kind} to {reader}: {self.state}"


class MailWishes(models.Model):
    """Wishes of an account about its mails."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="mail_wishes")
    language = models.CharField(_("language of mails"), max_length=10, choices=settings.LANGUAGES)
    uses = models.BooleanField(
        _("write to me when a new run may use my records"),
        default=False,
        help_text=_("The mail goes to everybody in the study who wishes it, whether they take part or not."),
    )
    results = models.BooleanField(
        _("write to me what was learned, when a result is published and once a year"),
        default=True,
        help_text=_("The mail goes to everybody who has decided and has not withdrawn, whether they take part or not."),
    )
    approvals = models.BooleanField(_("write to me when something waits for approval, or is approved"), default=True)
    ends = models.BooleanField(_("write to me when a run of mine has finished or failed"), default=True)
    shares = models.BooleanField(_("write to me when a group has used most of a run's share"), default=True)

    class Meta:
        verbose_name = _("wishes about mails")
        verbose_name_plural = _("wishes about mails")

    def __str__(self) -> str:
        return f"user {self.user_id}: {self.language}"
