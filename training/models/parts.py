"""Parts of runs: teachers to be trained, holders to be asked."""

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from common.jobs.parts import Part
from training.models.runs import Run


class TeacherChunk(Part):
    """Some teachers of a run, ``start`` ≤ index < ``stop``."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="chunks")
    start = models.PositiveIntegerField()
    stop = models.PositiveIntegerField()

    class Meta:
        verbose_name = _("chunk of teachers")
        ordering = ["run", "start"]
        constraints = [
            models.UniqueConstraint(fields=["run", "start"], name="chunk_start_is_unique"),
            models.CheckConstraint(condition=Q(stop__gt=F("start")), name="chunk_is_not_empty"),
        ]

    def __str__(self) -> str:
        return f"teachers {self.start}–{self.stop - 1}"


class Shard(Part):
    """Some holders who are asked the batch under way: those whose id leaves ``number`` when divided by the shards."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="shards")
    number = models.PositiveIntegerField()

    class Meta:
        verbose_name = _("shard of holders")
        ordering = ["run", "number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="shard_number_is_unique")]

    def __str__(self) -> str:
        return f"shard {self.number}"
