"""Datasets: rows of one study, whose arrays lie in private storage."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from consent.models import Recorded, Study
from consent.models.recorded import actor_or_null
from learning.formats import outcome_of
from learning.outcomes import Outcome

DRAWN = gettext_noop("Synthetic rows, drawn from what a run of this study has released.")
"""Provenance of synthetic rows; what people state is in their own words."""


class Dataset(Recorded):
    """Rows of one study: private (owned by holders), public (put to the vote) or test (for evaluation)."""

    own_words = (DRAWN,)
    open_fields = ("name", "kind", "schema", "most_records", "provenance", "imported_by", "imported_at", "removed_at")
    # One person's erasure changes them.
    sealed_fields = ("artifact", "digest", "balance")
    working_fields = ("rows", "holders", "seen_classes")  # follow from the arrays

    class Kind(models.TextChoices):
        PRIVATE = "private", _("private")
        PUBLIC = "public", _("public")
        TEST = "test", _("test")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="datasets")
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("kind"), max_length=10, choices=Kind)
    schema = models.JSONField(help_text="What a row is: the columns or the image shape, and the classes; public.")
    rows = models.PositiveIntegerField()
    holders = models.PositiveIntegerField(default=0)
    most_records = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Records of one holder that it took at most, public; null where it took all, as it once was.",
    )
    seen_classes = models.JSONField(
        blank=True, help_text="Numbers of the classes that the labels hold; a secret if private."
    )
    balance = models.JSONField(
        default=list, blank=True, help_text="What became of each row of the file it came from; a secret if private."
    )
    provenance = models.TextField(
        _("where it comes from"), blank=True, help_text="As the operator states it; on the card if public."
    )
    artifact = models.CharField(max_length=200, help_text="Its arrays in private storage.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the arrays.")
    imported_by = actor_or_null(blank=True)
    imported_at = models.DateTimeField(default=timezone.now, editable=False)
    removed_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When its arrays were deleted; the row stays for its runs."
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
        """Names of the classes; none where the schema declares another target."""
        return self.schema["classes"]

    @property
    def outcome(self) -> Outcome:
        """What is to be learned."""
        return outcome_of(self.schema)
