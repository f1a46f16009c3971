"""Accesses of staff to one holder's choice, on record."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import StudyChained
from consent.models.holders import DataHolder
from consent.models.studies import Study


class LevelAccess(StudyChained):
    """Access of a staff member to one holder's choice, with the reason."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="level_accesses")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    seen_by = actor()
    seen_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("look at a holder's choice")
        verbose_name_plural = _("looks at holders' choices")

    def __str__(self) -> str:
        return f"{self.seen_by_id} at {self.seen_at:%Y-%m-%d %H:%M}"
