"""Results of runs that lead to no model."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from training.models.datasets import Dataset
from training.models.published import Published
from training.models.runs import Run


class RunResult(Published):
    """Table of counts, or synthetic rows, that a run has published with its card: a function of what it released.

    Its CSV is kept as a file: what was released once stays the same, however later versions write tables.
    """

    run = models.OneToOneField(Run, on_delete=models.PROTECT, primary_key=True, related_name="result")
    content = models.JSONField(help_text="The table, as its class reads it; of synthetic rows what is said of them.")
    artifact = models.CharField(max_length=200, help_text="Its CSV in the models storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of that file.")
    card = models.JSONField()
    dataset = models.ForeignKey(
        Dataset,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="drawn_by",
        help_text="The public dataset that synthetic rows are; null of a table of counts.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("result of a run")
        verbose_name_plural = _("results of runs")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"result of {self.run}"

    @property
    def is_rows(self) -> bool:
        """Whether it is synthetic rows."""
        return self.dataset_id is not None
