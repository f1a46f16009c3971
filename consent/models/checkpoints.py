"""Signed checkpoints of everything on record."""

import json
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.append_only import AppendOnly


class Checkpoint(AppendOnly):
    """Signed checkpoint of all chains of all studies; see :mod:`consent.services.checkpoints`.

    ``entry`` and ``note`` are public. ``key`` and ``heads`` are not: they open what the entry commits to. A checkpoint
    that a restore had forgotten and that was read again from the second place has neither.
    """

    number = models.PositiveIntegerField(unique=True, help_text="Number of entries of the log, this one included.")
    day = models.DateField(unique=True, help_text="In UTC.")
    entry = models.TextField(help_text="The log's entry, as it was hashed: JSON.")
    note = models.TextField(help_text="The signed checkpoint.")
    key = models.CharField(max_length=64, blank=True)
    heads = models.JSONField(default=dict, help_text="Study → chain → sequence and hash of its last row.")
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("signed checkpoint")
        verbose_name_plural = _("signed checkpoints")
        ordering = ["number"]

    def __str__(self) -> str:
        return f"checkpoint {self.number}"

    @property
    def content(self) -> dict[str, Any]:
        """Content of the entry."""
        return json.loads(self.entry)
