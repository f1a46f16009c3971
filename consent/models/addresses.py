"""Messages to people and programs: holders' addresses, emails, news and webhooks."""

import uuid
from uuid import uuid4

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.holders import DataHolder
from consent.models.recorded import Recorded, actor
from consent.models.studies import Study


def new_key() -> str:
    """Return a key for an address that was just entered."""
    return uuid4().hex


class HolderAddress(Recorded):
    """Means of reaching a holder without an account: email to an address that they gave, letters, or none.

    Changes are logged without the address, and after an address is deleted, no digest of it remains. Each address has
    its own ``key``; the link for confirming and deleting the address contains the signed key.
    """

    class Way(models.TextChoices):
        MAIL = "mail", _("by email")
        LETTER = "letter", _("by letter")
        NOTHING = "nothing", _("no news")

    sealed_fields = ("holder", "way", "key", "confirmed_at")
    working_fields = ("email", "language", "left_at")

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="+")
    holder = models.OneToOneField(DataHolder, on_delete=models.CASCADE, related_name="address")
    way = models.CharField(max_length=10, choices=Way)
    email = models.EmailField(blank=True)
    key = models.CharField(max_length=32, unique=True, default=new_key, editable=False)
    language = models.CharField(max_length=10)
    confirmed_at = models.DateTimeField(null=True)
    left_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("data holder's address")
        verbose_name_plural = _("data holders' addresses")
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=(Q(way="mail") & ~Q(email="")) | Q(way__in=["letter", "nothing"], email=""),
                name="address_of_mails_alone",
            )
        ]

    def __str__(self) -> str:
        return f"{self.way} to holder {self.holder_id}"


class Mail(models.Model):
    """Email to an account's owner or to an address that a holder gave: its kind, subject, time and status.

    The text is not stored. On delivery it is written from ``kind``, ``study`` and ``about``, which reveal no level.
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
    about = models.CharField(max_length=40, blank=True, help_text="Key of the row it is about, or a language code.")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    fault = models.CharField(
        max_length=100, blank=True, help_text="Class of the last error; its message may contain names."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    due_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("email")
        verbose_name_plural = _("emails")
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
    """An account's email preferences."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="mail_wishes")
    language = models.CharField(_("email language"), max_length=10, choices=settings.LANGUAGES)
    uses = models.BooleanField(
        _("email me when a new run may use my records"),
        default=False,
        help_text=_("We send this email to everyone in the study who asks for it, whether they take part or not."),
    )
    results = models.BooleanField(
        _("email me about results: when one is published, and once a year"),
        default=True,
        help_text=_(
            "We send this email to everyone who has decided and has not withdrawn, whether they take part or not."
        ),
    )
    approvals = models.BooleanField(_("email me when something needs approval or is approved"), default=True)
    ends = models.BooleanField(_("email me when one of my runs has finished or failed"), default=True)
    shares = models.BooleanField(_("email me when a group has used most of its share in a run"), default=True)

    class Meta:
        verbose_name = _("email settings")
        verbose_name_plural = _("email settings")

    def __str__(self) -> str:
        return f"user {self.user_id}: {self.language}"


class News(models.Model):
    """News for a study's people, about a published result or about a year in which a result was used.

    Emails and letters refer to a row of this table. Their text describes the results at the time of delivery.
    """

    class Kind(models.TextChoices):
        RESULT = "result", _("a result was published")
        YEAR = "year", _("what was learned this year")

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="news")
    kind = models.CharField(max_length=10, choices=Kind)
    about = models.CharField(max_length=40, blank=True, help_text="Key of the result; empty for a year's news.")
    published_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("news")
        verbose_name_plural = _("news")
        ordering = ["-published_at", "-pk"]
        indexes = [models.Index(fields=["study", "-published_at"], name="news_latest")]
        constraints = [
            models.UniqueConstraint(
                fields=["study", "about"], condition=Q(kind="result"), name="a_result_is_told_once"
            ),
            models.CheckConstraint(condition=Q(kind__in=["result", "year"]), name="news_kind_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.study_id} at {self.published_at:%Y-%m-%d}"


class WebhookEndpoint(Recorded):
    """URL of a program that is notified of events in a study, with the events and the secret for signatures."""

    open_fields = ("events", "created_by", "created_at")
    sealed_fields = ("url", "secret")  # anyone who has the URL can often write to it

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    events = models.JSONField(help_text="Names of the subscribed events; see consent.services.webhooks.EVENTS.")
    secret = models.TextField(help_text="Secret for signatures, encrypted with the key for second factors.")
    created_by = actor()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        ordering = ["study", "pk"]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"


class WebhookDelivery(models.Model):
    """Message to an endpoint, with its body as sent and its delivery status."""

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=40)
    body = models.TextField(help_text="JSON, identical for every attempt.")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="HTTP status code of the last response.")
    fault = models.CharField(max_length=100, blank=True, help_text="Reason why the last attempt got no response.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    due_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["due_at"], condition=Q(state="waiting"), name="webhook_waiting")]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "sent", "failed"]), name="webhook_delivery_state_is_known"
            )
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.endpoint}: {self.state}"
