"""Conflicts of interest that members of a study declare."""

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import StudyChained
from consent.models.studies import Study


class ConflictOfInterest(StudyChained):
    """Statement by which a member of a study approves nothing there from then on. It is never taken back."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="conflicts_of_interest")
    user = actor()
    reason = models.TextField(_("what it consists in"), max_length=1000)
    declared_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("conflict of interest")
        verbose_name_plural = _("conflicts of interest")
        constraints = [
            *StudyChained.Meta.constraints,
            models.UniqueConstraint(fields=["study", "user"], name="conflict_of_interest_is_declared_once"),
        ]

    def __str__(self) -> str:
        return f"conflict of interest {self.sequence}"
