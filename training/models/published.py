"""Publications of a run, which can be withdrawn: a table, or versions of its student, with their training tasks."""

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.jobs import Part
from consent.models.recorded import actor_or_null
from learning.published import released_itself
from training.measures import measures_of
from training.models.datasets import Dataset
from training.models.runs import Run


class Published(models.Model):
    """Publication of a run. Once withdrawn, it can no longer be downloaded."""

    withdrawn_at = models.DateTimeField(null=True, blank=True, editable=False)
    withdrawal_reason = models.CharField(max_length=500, blank=True, editable=False)

    class Meta:
        abstract = True

    @property
    def is_withdrawn(self) -> bool:
        """Whether the result was withdrawn and can therefore no longer be downloaded."""
        return self.withdrawn_at is not None


# --- Students ---------------------------------------------------------------------------------------------------------


class StudentModel(Published):
    """Version of a run's student: a model trained only on releases, with its card.

    Training a run's student creates a version, numbered from 1; ``Run.student`` is the published version.
    """

    class Stage(models.TextChoices):
        CANDIDATE = "candidate", _("candidate")
        PRODUCTION = "production", _("in production")
        ARCHIVED = "archived", _("archived")

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="students")
    version = models.PositiveIntegerField(default=1)
    artifact = models.CharField(max_length=200, help_text="Model file in the models storage.")
    learner = models.CharField(max_length=40, help_text="Name of the learner that can read the file.")
    seed = models.PositiveBigIntegerField(
        default=0, help_text="Seed of the training. Public, so that the model can be reproduced from the releases."
    )
    digest = models.CharField(max_length=64, help_text="SHA-256 of the model file.")
    onnx = models.CharField(max_length=200, blank=True, help_text="The same model as ONNX; empty until requested.")
    onnx_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of that file.")
    calibration = models.JSONField(help_text="Calibration of the probabilities; see learning.calibration.")
    accuracy = models.FloatField(null=True, blank=True)
    label_accuracy = models.FloatField(null=True, blank=True)
    card = models.JSONField()
    seconds = models.FloatField(null=True, blank=True, help_text="Duration of the training, in seconds.")
    score = models.FloatField(
        null=True, blank=True, help_text="Agreement with a fifth of the releases, after training on the others."
    )
    reference = models.JSONField(
        null=True, blank=True, help_text="Quality of the same student trained on the true labels of the public points."
    )
    predictions = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="Total number of records that this site has been asked to predict."
    )
    requested_by = actor_or_null(blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    stage = models.CharField(max_length=10, choices=Stage, default=Stage.CANDIDATE, editable=False)
    publication_reason = models.CharField(
        max_length=500, blank=True, editable=False, help_text="Reason, if the run would not have published it."
    )

    class Meta:
        verbose_name = _("student model")
        verbose_name_plural = _("student models")
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["run", "version"], name="student_version_is_unique")]

    def __str__(self) -> str:
        return f"student {self.version} of {self.run}"

    @property
    def measures(self) -> dict[str, Any] | None:
        """Measures on the test data with their intervals; None if the version was not evaluated."""
        return measures_of(self.card)

    @property
    def is_released_itself(self) -> bool:
        """Whether this version is the model released by the run's steps, rather than a student."""
        return released_itself(self.learner)


class StudentTraining(Part):
    """Task that trains another version of a finished run's student, or assesses the existing ``version``.

    A version is assessed by training the same student on true public labels.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trainings")
    version = models.OneToOneField(
        StudentModel, on_delete=models.CASCADE, null=True, blank=True, related_name="assessment"
    )
    learner = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict, blank=True)
    progress = models.FloatField(default=0.0, help_text="Fraction completed, from 0 to 1.")
    message = models.TextField(blank=True, help_text="Reason why the training failed, and what to do.")
    requested_by = actor_or_null(blank=True)
    requested_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("student training")
        verbose_name_plural = _("student trainings")
        ordering = ["run", "requested_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["run"],
                condition=Q(version__isnull=True) & ~Q(state="done"),
                name="one_version_of_a_student_is_trained_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.learner} for {self.run}"


# --- Tables -----------------------------------------------------------------------------------------------------------


class RunResult(Published):
    """Table of counts, or synthetic rows, published with a card; it depends only on the run's releases.

    Its CSV is stored as a file so that it stays the same even if later versions of iPATE write tables differently.
    """

    run = models.OneToOneField(Run, on_delete=models.PROTECT, primary_key=True, related_name="result")
    content = models.JSONField(help_text="Table in the format of its class; for synthetic rows, their description.")
    artifact = models.CharField(max_length=200, help_text="CSV file in the models storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of that file.")
    card = models.JSONField()
    dataset = models.ForeignKey(
        Dataset,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="drawn_by",
        help_text="Public dataset with the synthetic rows; null for a table of counts.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("run result")
        verbose_name_plural = _("run results")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"result of {self.run}"

    @property
    def is_rows(self) -> bool:
        """Whether the table consists of synthetic rows."""
        return self.dataset_id is not None
