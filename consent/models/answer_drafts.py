"""Answers that somebody ticked who decides later."""

from django.db import models
from django.utils import timezone

from consent.models.holders import DataHolder


class AnswerDraft(models.Model):
    """Answer that a holder ticked and has not confirmed, kept because they wanted to decide later; no decision."""

    holder = models.OneToOneField(DataHolder, on_delete=models.CASCADE, related_name="+")
    answer = models.JSONField(help_text="Fields of the decision form.")
    kept_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "answer to decide on later"
        verbose_name_plural = "answers to decide on later"

    def __str__(self) -> str:
        return f"answer of holder {self.holder_id}"
