"""Encoders of a study, and which of its datasets they have encoded."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models import Recorded, Study
from consent.models.recorded import actor_or_null
from training.models.datasets import Dataset


class Encoder(Recorded):
    """A public network that was made without the private data, as somebody stated; see :mod:`learning.encoders`."""

    open_fields = (
        *("name", "digest", "file_digest", "takes", "width", "licence", "source", "artifact"),
        *("stated_by", "stated_at", "withdrawn_at"),
    )

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="encoders")
    name = models.CharField(_("name"), max_length=100)
    digest = models.CharField(max_length=64, editable=False, help_text="Of all that its vectors follow from.")
    file_digest = models.CharField(_("SHA-256 of the file"), max_length=64, editable=False)
    takes = models.JSONField(_("It takes"), help_text="See learning.encoders.files.")
    width = models.PositiveIntegerField(_("Numbers of a record"))
    licence = models.CharField(_("licence"), max_length=200)
    source = models.TextField(_("where it comes from"), help_text=_("And on which data it was made, if known."))
    artifact = models.CharField(
        max_length=200, blank=True, help_text="File and tokenizer in private storage. Empty: deleted."
    )
    stated_by = actor_or_null(verbose_name=_("stated by"), blank=True)
    stated_at = models.DateTimeField(_("stated on"), default=timezone.now, editable=False)
    withdrawn_at = models.DateTimeField(
        _("withdrawn on"), null=True, blank=True, editable=False, help_text="From then on no run chooses it."
    )

    class Meta:
        verbose_name = _("encoder")
        verbose_name_plural = _("encoders")
        ordering = ["study", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["study", "name"],
                condition=models.Q(withdrawn_at=None),
                name="encoder_name_is_unique_in_a_study",
            ),
            models.UniqueConstraint(
                fields=["study", "digest"],
                condition=models.Q(withdrawn_at=None),
                name="encoder_is_registered_once_in_a_study",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Encoding(models.Model):
    """The work of an encoder on a dataset. The vectors are arrays of the dataset's own file."""

    class State(models.TextChoices):
        WAITING = "waiting", _("being encoded")
        DONE = "done", _("encoded")
        FAILED = "failed", _("failed")

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="encodings")
    encoder = models.ForeignKey(Encoder, on_delete=models.CASCADE, related_name="encodings")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    progress = models.FloatField(default=0.0, help_text="How much of the dataset is encoded, in tenths.")
    seconds = models.FloatField(null=True, blank=True, help_text="Time that it took.")
    message = models.JSONField(default=str, blank=True, help_text="Why it failed.")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="The worker that holds it.")
    heartbeat = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("encoding of a dataset")
        verbose_name_plural = _("encodings of datasets")
        constraints = [models.UniqueConstraint(fields=["dataset", "encoder"], name="dataset_is_encoded_once")]

    def __str__(self) -> str:
        return f"{self.dataset} by {self.encoder}"
