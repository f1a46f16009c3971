"""Parts of runs: teachers to be trained, holders to be asked; and whose parts workers were at."""

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from common.jobs.parts import Part
from consent.models import Study
from training.models.runs import Run


class TeacherChunk(Part):
    """Some teachers of a run, ``start`` ≤ index < ``stop``."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="chunks")
    start = models.PositiveIntegerField()
    stop = models.PositiveIntegerField()

    class Meta:
        verbose_name = _("chunk of teachers")
        verbose_name_plural = _("chunks of teachers")
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
        verbose_name_plural = _("shards of holders")
        ordering = ["run", "number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="shard_number_is_unique")]

    def __str__(self) -> str:
        return f"shard {self.number}"


class WorkerTime(models.Model):
    """Time that workers spent on a study's runs lately; :mod:`training.engine.turns` writes and reads it."""

    study = models.OneToOneField(Study, on_delete=models.CASCADE, related_name="+")
    seconds = models.FloatField(help_text="At that moment; half of it is forgotten every ten minutes.")
    noted_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "worker times"

    def __str__(self) -> str:
        return f"{self.study}, {self.seconds:.0f} s"
