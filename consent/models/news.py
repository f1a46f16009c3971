"""News of studies: what their people are told of what was learned."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.studies import Study


class News(models.Model):
    """News that a study's people are told: a result was published, or a year is over in which something was used.

    Mails and letters are about one of these. What they say is read from today's results when they are delivered.
    """

    class Kind(models.TextChoices):
        RESULT = "result", _("a result was published")
        YEAR = "year", _("what was learned in a year")

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="news")
    kind = models.CharField(max_length=10, choices=Kind)
    about = models.CharField(max_length=40, blank=True, help_text="Key of the result; empty: all of the year.")
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
