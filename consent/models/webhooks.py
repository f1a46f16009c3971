"""Webhooks: programs that are told what happens in a study, and what was sent to them."""

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.recorded import Recorded
from consent.models.studies import Study


class WebhookEndpoint(Recorded):
    """Address of a program that is told what happens in a study: which events, and the secret that signs them."""

    open_fields = ("events", "created_by", "created_at")
    sealed_fields = ("url", "secret")  # whoever knows an address can often write to it

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    events = models.JSONField(help_text="Names of what it is told of, see consent.services.webhooks.EVENTS.")
    secret = models.TextField(help_text="Encrypted with the key for second factors.")
    created_by = actor()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        ordering = ["study", "pk"]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"


class WebhookDelivery(models.Model):
    """Message to an endpoint, with the words as they are sent, and how that went."""

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=40)
    body = models.TextField(help_text="JSON; the same at each try.")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Of the last answer.")
    fault = models.CharField(max_length=100, blank=True, help_text="What kept the last answer away.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    due_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("delivery of a webhook")
        verbose_name_plural = _("deliveries of webhooks")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["due_at"], condition=Q(state="waiting"), name="webhook_waiting")]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "sent", "failed"]), name="webhook_delivery_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.endpoint}: {self.state}"
