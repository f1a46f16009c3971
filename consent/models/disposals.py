"""Disposals: the log of everything that was ended permanently."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.holders import DataHolder
from consent.models.recorded import actor
from consent.models.studies import Study


class Disposal(StudyChained):
    """Act that permanently ended something: a holder's records, a dataset, a publication, a study, or its records.

    The erasure of a holder's records has two rows, one for the request and one for its completion. A holder's decision
    to keep records stored after a withdrawal is also logged.
    """

    is_act = True

    class Kind(models.TextChoices):
        ASKED = "asked", _("erasure of a person's records requested")
        ERASED = "erased", _("a person's records erased")
        KEPT = "kept", _("a person who withdrew wants their records kept")
        DATASET = "dataset", _("dataset removed")
        ENCODER = "encoder", _("encoder withdrawn")
        RESULT = "result", _("model or table withdrawn")
        CLOSED = "closed", _("study closed")
        EXPIRED = "expired", _("all private records erased")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="disposals")
    kind = models.CharField(max_length=10, choices=Kind)
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, null=True, related_name="disposals")
    subject = models.CharField(
        max_length=100,
        blank=True,
        help_text="Name of a dataset or encoder; digest of a model or table; last day of a closed study's records.",
    )
    rows = models.PositiveIntegerField(null=True, blank=True, help_text="Number of erased rows of private datasets.")
    files = models.PositiveIntegerField(null=True, blank=True, help_text="Number of erased scans of letters.")
    reason = models.CharField(max_length=500, blank=True)
    recorded_by = actor(null=True, help_text="Empty for a holder's link, the study's rule, or a scheduled date.")
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("closing or erasure")
        verbose_name_plural = _("closings and erasures")
        constraints = [
            *StudyChained.Meta.constraints,
            models.CheckConstraint(
                condition=Q(kind__in=["asked", "erased", "kept"], holder__isnull=False)
                | Q(kind__in=["dataset", "encoder", "result", "closed", "expired"], holder__isnull=True),
                name="disposal_kind_is_known_and_says_of_whom",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.sequence}"
