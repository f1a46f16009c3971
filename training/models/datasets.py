"""Datasets, whose arrays are kept in private storage, their imports, and encoders that turn records into vectors."""

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from consent.models import Recorded, Study
from consent.models.recorded import actor_or_null
from learning.formats import outcome_of
from learning.outcomes import Outcome

DRAWN = gettext_noop("Synthetic rows drawn from a release by one of this study's runs.")
"""Provenance of synthetic rows. For all other rows, the person who imports them describes the provenance."""


class Dataset(Recorded):
    """Rows of one study: private (owned by holders), public (to vote on) or test (for evaluation)."""

    own_words = (DRAWN,)
    open_fields = ("name", "kind", "schema", "most_records", "provenance", "imported_by", "imported_at", "removed_at")
    # Erasing one person's records changes these fields.
    sealed_fields = ("artifact", "digest", "balance")
    working_fields = ("rows", "holders", "seen_classes")  # fields that are computed from the arrays

    class Kind(models.TextChoices):
        PRIVATE = "private", _("private")
        PUBLIC = "public", _("public")
        TEST = "test", _("test")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="datasets")
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("kind"), max_length=10, choices=Kind)
    schema = models.JSONField(help_text="Format of a row: columns or image shape, and classes. Public.")
    rows = models.PositiveIntegerField()
    holders = models.PositiveIntegerField(default=0)
    most_records = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Largest number of records stored for one holder; null if there was no limit. Public.",
    )
    seen_classes = models.JSONField(
        blank=True, help_text="Numbers of the classes that occur in the labels. Secret for a private dataset."
    )
    balance = models.JSONField(
        default=list, blank=True, help_text="Numbers of rows imported and left out, with reasons; secret if private."
    )
    provenance = models.TextField(
        _("origin"), blank=True, help_text="The operator's statement; on the model card if public."
    )
    artifact = models.CharField(max_length=200, help_text="File with the arrays, in private storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the arrays.")
    imported_by = actor_or_null(blank=True)
    imported_at = models.DateTimeField(default=timezone.now, editable=False)
    removed_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the arrays were deleted; the row is kept for its runs."
    )

    class Meta:
        verbose_name = _("dataset")
        verbose_name_plural = _("datasets")
        ordering = ["study", "kind", "name"]
        constraints = [models.UniqueConstraint(fields=["study", "name"], name="dataset_name_is_unique_in_a_study")]

    def __str__(self) -> str:
        return self.name

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty if the schema declares another target."""
        return self.schema["classes"]

    @property
    def outcome(self) -> Outcome:
        """The outcome to learn."""
        return outcome_of(self.schema)


# --- Imports ----------------------------------------------------------------------------------------------------------


class DatasetImport(models.Model):
    """Import of a dataset in the browser: a user uploads a file, which a worker checks against a schema and stores.

    The file and the report are in private storage until the import is done or discarded. The row contains no record
    data.
    """

    class State(models.TextChoices):
        DRAFT = "draft", _("waiting for a schema")
        CHECKING = "checking", _("being checked")
        CHECKED = "checked", _("checked")
        IMPORTING = "importing", _("being imported")
        DONE = "done", _("imported")

    #: States in which a worker is or will be processing the import.
    BUSY = (State.CHECKING, State.IMPORTING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="imports")
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("kind"), max_length=10, choices=Dataset.Kind)
    provenance = models.TextField(_("origin"), blank=True)
    file = models.CharField(max_length=200, help_text="Original name of the uploaded file.")
    label_file = models.CharField(max_length=200, blank=True, help_text="Original name of an IDX label file.")
    holder_prefix = models.CharField(max_length=100, blank=True, help_text="Prefix of generated pseudonyms, if any.")
    with_labels = models.BooleanField(default=False, help_text="Whether public rows keep their labels for evaluation.")
    schema = models.JSONField(default=dict, blank=True)
    remarks = models.JSONField(default=list, blank=True, help_text="What the draft schema leaves undetermined.")
    state = models.CharField(max_length=10, choices=State, default=State.DRAFT)
    progress = models.FloatField(default=0.0, help_text="Fraction of the file that has been read, from 0 to 1.")
    rows = models.PositiveIntegerField(null=True, blank=True, help_text="Number of rows without errors.")
    faults = models.PositiveIntegerField(null=True, blank=True, help_text="Number of errors found by the check.")
    message = models.JSONField(default=str, blank=True, help_text="Reason why the import failed.")
    dataset = models.ForeignKey(Dataset, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="Worker that is processing it.")
    heartbeat = models.DateTimeField(null=True, blank=True)
    requested_by = actor_or_null(blank=True)
    touched_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("dataset import")
        verbose_name_plural = _("dataset imports")
        ordering = ["-touched_at"]

    def __str__(self) -> str:
        return f"{self.name} of {self.study}"

    @property
    def is_of_people(self) -> bool:
        """Whether the import's rows belong to people and are private; always False in a rehearsal."""
        return self.kind == Dataset.Kind.PRIVATE and not self.study.rehearsal

    @property
    def folder(self) -> str:
        """Folder of the import's files in private storage."""
        return f"imports/{self.pk}"


# --- Encoders ---------------------------------------------------------------------------------------------------------


class Encoder(Recorded):
    """Public network that its uploader declares was built without the private data; see :mod:`learning.encoders`."""

    open_fields = (
        *("name", "digest", "file_digest", "takes", "width", "licence", "source", "artifact"),
        *("stated_by", "stated_at", "withdrawn_at"),
    )

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="encoders")
    name = models.CharField(_("name"), max_length=100)
    digest = models.CharField(max_length=64, editable=False, help_text="SHA-256 of file, input and tokenizer.")
    file_digest = models.CharField(_("SHA-256 of the file"), max_length=64, editable=False)
    takes = models.JSONField(_("Input"), help_text="Expected input; see learning.encoders.files.")
    width = models.PositiveIntegerField(_("Numbers per record"))
    licence = models.CharField(_("licence"), max_length=200)
    source = models.TextField(_("origin"), help_text=_("Include the data that the encoder was made with, if known."))
    artifact = models.CharField(
        max_length=200, blank=True, help_text="File and tokenizer in private storage; empty once deleted."
    )
    stated_by = actor_or_null(verbose_name=_("declared by"), blank=True)
    stated_at = models.DateTimeField(_("declared on"), default=timezone.now, editable=False)
    withdrawn_at = models.DateTimeField(
        _("withdrawn on"), null=True, blank=True, editable=False, help_text="New runs cannot use it afterwards."
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
    """Encoding of a dataset by an encoder. The vectors are stored as arrays in the dataset's file."""

    class State(models.TextChoices):
        WAITING = "waiting", _("being encoded")
        DONE = "done", _("encoded")
        FAILED = "failed", _("failed")

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="encodings")
    encoder = models.ForeignKey(Encoder, on_delete=models.CASCADE, related_name="encodings")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    progress = models.FloatField(default=0.0, help_text="Fraction of the dataset that has been encoded.")
    seconds = models.FloatField(null=True, blank=True, help_text="Duration in seconds.")
    message = models.JSONField(default=str, blank=True, help_text="Reason why the encoding failed.")
    claimed_by = models.CharField(max_length=80, blank=True, help_text="Worker that is processing it.")
    heartbeat = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("dataset encoding")
        verbose_name_plural = _("dataset encodings")
        constraints = [models.UniqueConstraint(fields=["dataset", "encoder"], name="dataset_is_encoded_once")]

    def __str__(self) -> str:
        return f"{self.dataset} by {self.encoder}"
