"""Rounds, batches and queries: what was asked, and what was released together."""

from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from training.models.runs import Run


class Round(models.Model):
    """One round in which every holder is asked, in one space of representation: about public points, or for gradients.

    ``artifact`` holds what is asked, all of it public: the fitted ``representation`` (bytes), and what the method of
    the run needs beside it.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="rounds")
    index = models.PositiveIntegerField()
    representation = models.JSONField(help_text="The sentence that says what the space is.")
    artifact = models.CharField(max_length=200)
    sigma = models.FloatField(help_text="Standard deviation of the noise of each number, in units of the largest norm.")
    radius_share = models.FloatField(
        null=True, blank=True, help_text="Of votes: the share of the public points within the radius of a query."
    )
    size = models.PositiveIntegerField(help_text="How many queries are asked, or steps taken.")
    position = models.PositiveIntegerField(default=0, help_text="How many of them were released.")
    opened_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("round")
        verbose_name_plural = _("rounds")
        ordering = ["run", "index"]
        constraints = [
            models.UniqueConstraint(fields=["run", "index"], name="round_index_is_unique"),
            models.CheckConstraint(condition=Q(position__lte=F("size")), name="round_position_within_size"),
        ]

    def __str__(self) -> str:
        return f"round {self.index + 1}"


class Batch(models.Model):
    """Queries or gradient steps that are committed together, in one transaction with what they cost."""

    # The unique constraint is index enough.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="batches", db_index=False)
    index = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    size = models.PositiveIntegerField(help_text="How many queries or steps it has.")
    labels = models.PositiveIntegerField(help_text="How many of its queries were answered.")
    round = models.ForeignKey(Round, on_delete=models.CASCADE, null=True, blank=True, related_name="batches")
    attempt = models.CharField(
        max_length=200, blank=True, help_text="Who was asked, with what room: a file, kept where votes are."
    )
    released = models.CharField(
        max_length=200, blank=True, help_text="What was released, where that is no query's: a file, public."
    )
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        ordering = ["run", "index"]
        constraints = [models.UniqueConstraint(fields=["run", "index"], name="batch_index_is_unique")]

    def __str__(self) -> str:
        return f"batch {self.index}"


class Query(models.Model):
    """One public point put to the vote: answered with a label, reinforced or rejected."""

    # The unique constraint is index enough.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="queries", db_index=False)
    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="results")
    row = models.PositiveIntegerField(help_text="The point's row in the public dataset.")
    label = models.PositiveSmallIntegerField(null=True, help_text="Class index; empty where rejected.")
    reinforced = models.BooleanField(
        default=False, help_text="Whether the label is the student's own, which the teachers did not contradict."
    )
    counts = models.JSONField(null=True, blank=True, help_text="Noisy counts by class, where they were released.")

    class Meta:
        verbose_name = _("query")
        verbose_name_plural = _("queries")
        ordering = ["run", "row"]
        constraints = [models.UniqueConstraint(fields=["run", "row"], name="a_point_is_put_to_the_vote_once")]

    def __str__(self) -> str:
        return f"query {self.row}"
