"""Imports of datasets in the browser."""

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models import Study
from consent.models.recorded import actor_or_null
from training.models.datasets import Dataset


class DatasetImport(models.Model):
    """Import of a dataset in the browser: a file was uploaded, a worker checks it against a schema and stores it.

    File and report lie in private storage until it is done or dropped. The row holds nothing of any record.
    """

    class State(models.TextChoices):
        DRAFT = "draft", _("schema to be declared")
        CHECKING = "checking", _("being checked")
        CHECKED = "checked", _("checked")
        IMPORTING = "importing", _("being imported")
        DONE = "done", _("imported")

    #: In these a worker is at it, or is waited for.
    BUSY = (State.CHECKING, State.IMPORTING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="imports")
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("kind"), max_length=10, choices=Dataset.Kind)
    provenance = models.TextField(_("where it comes from"), blank=True)
    file = models.CharField(max_length=200, help_text="As it was called.")
    label_file = models.CharField(max_length=200, blank=True, help_text="Of an idx file, as it was called.")
    holder_prefix = models.CharField(max_length=100, blank=True, help_text="Each row belongs to a person of its own.")
    with_labels = models.BooleanField(default=False, help_text="Public rows: their labels are kept, for evaluation.")
    schema = models.JSONField(default=dict, blank=True)
    remarks = models.JSONField(default=list, blank=True, help_text="What the draft of the schema could not tell.")
    state = models.CharField(max_length=10, choices=State, default=State.DRAFT)
    progress = models.FloatField(default=0.0, help_text="How much of the file is read, 0 to 1.")
    rows = models.PositiveIntegerField(null=True, blank=True, help_text="Rows without a fault.")
    faults = models.PositiveIntegerField(null=True, blank=True, help_text="How many faults the check found.")
    message = models.JSONField(default=str, blank=True, help_text="Why the import failed.")
    dataset = models.ForeignKey(Dataset, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="The worker that holds it.")
    heartbeat = models.DateTimeField(null=True, blank=True)
    requested_by = actor_or_null(blank=True)
    touched_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("import of a dataset")
        verbose_name_plural = _("imports of datasets")
        ordering = ["-touched_at"]

    def __str__(self) -> str:
        return f"{self.name} of {self.study}"

    @property
    def is_of_people(self) -> bool:
        """Whether its rows are private, which they never are in a rehearsal."""
        return self.kind == Dataset.Kind.PRIVATE and not self.study.rehearsal

    @property
    def folder(self) -> str:
        """The place of its files in private storage."""
        return f"imports/{self.pk}"
