"""Versions of students, and their trainings."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.jobs.parts import Part
from consent.models.actors import actor_or_null
from learning.published import released_itself
from training.models.runs import Run


class StudentModel(models.Model):
    """A version of a run's student: a model that has learned from releases alone, and its card.

    A run has as many as were trained, numbered from 1; ``Run.student`` is the published one.
    """

    class Stage(models.TextChoices):
        CANDIDATE = "candidate", _("candidate")
        PRODUCTION = "production", _("in production")
        ARCHIVED = "archived", _("archived")

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="students")
    version = models.PositiveIntegerField(default=1)
    artifact = models.CharField(max_length=200, help_text="The model in the models storage.")
    learner = models.CharField(max_length=40, help_text="The learner that reads it.")
    seed = models.PositiveBigIntegerField(
        default=0, help_text="Public: the same releases and seed give the same model."
    )
    digest = models.CharField(max_length=64, help_text="SHA-256 of the file.")
    onnx = models.CharField(max_length=200, blank=True, help_text="The same model as ONNX, once it was asked for.")
    onnx_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of that file.")
    accuracy = models.FloatField(null=True, blank=True)
    label_accuracy = models.FloatField(null=True, blank=True)
    card = models.JSONField()
    seconds = models.FloatField(null=True, blank=True, help_text="How long it learned.")
    score = models.FloatField(
        null=True, blank=True, help_text="Agreement with a fifth of the releases, having learned from the others."
    )
    reference = models.JSONField(
        null=True, blank=True, help_text="How the same student does on true labels of the public points."
    )
    asked_by = actor_or_null(blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    stage = models.CharField(max_length=10, choices=Stage, default=Stage.CANDIDATE, editable=False)
    withdrawn_at = models.DateTimeField(null=True, blank=True, editable=False)
    withdrawal_reason = models.CharField(max_length=500, blank=True, editable=False)

    class Meta:
        verbose_name = _("student model")
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["run", "version"], name="student_version_is_unique")]

    def __str__(self) -> str:
        return f"student {self.version} of {self.run}"

    @property
    def is_withdrawn(self) -> bool:
        """Whether it is given to nobody any more."""
        return self.withdrawn_at is not None

    @property
    def is_released_itself(self) -> bool:
        """Whether it is what a run released step by step, and no student that learned from that."""
        return released_itself(self.learner)


class StudentTraining(Part):
    """Training of students of a finished run, in a task of its own: of another version, or to assess a version.

    To assess a ``version``, the same student learns from four fifths of the releases, and from true public labels.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trainings")
    version = models.OneToOneField(
        StudentModel, on_delete=models.CASCADE, null=True, blank=True, related_name="assessment"
    )
    learner = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict, blank=True)
    progress = models.FloatField(default=0.0, help_text="How much is done, 0 to 1.")
    message = models.TextField(blank=True, help_text="Why nothing came of it, and what to do.")
    asked_by = actor_or_null(blank=True)
    asked_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("training of a student")
        verbose_name_plural = _("trainings of students")
        ordering = ["run", "asked_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["run"],
                condition=Q(version__isnull=True) & ~Q(state="done"),
                name="one_version_of_a_student_is_trained_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.learner} for {self.run}"
