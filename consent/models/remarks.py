"""Remarks on proposals: comments and rejections."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import StudyChained
from consent.models.consent_forms import ConsentFormProposal
from consent.models.policies import EpsilonPolicy
from consent.models.studies import Study


class Remark(StudyChained):
    """Comment on a proposal, or its rejection with the reason: of an ε policy or of a consent form."""

    class Kind(models.TextChoices):
        COMMENT = "comment", _("comment")
        REJECTION = "rejection", _("rejected")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="remarks")
    policy = models.ForeignKey(EpsilonPolicy, on_delete=models.PROTECT, null=True, related_name="remarks")
    form = models.ForeignKey(ConsentFormProposal, on_delete=models.PROTECT, null=True, related_name="remarks")
    kind = models.CharField(max_length=10, choices=Kind)
    text = models.TextField(_("text"))
    made_by = actor()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("remark on a proposal")
        verbose_name_plural = _("remarks on proposals")
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="remark_sequence_is_unique"),
            models.UniqueConstraint(
                fields=["policy"], condition=Q(kind="rejection"), name="epsilon_policy_is_rejected_once"
            ),
            models.UniqueConstraint(
                fields=["form"], condition=Q(kind="rejection"), name="consent_form_proposal_is_rejected_once"
            ),
            models.CheckConstraint(condition=Q(kind__in=["comment", "rejection"]), name="remark_kind_is_known"),
            models.CheckConstraint(
                condition=Q(policy=None, form__isnull=False) | Q(policy__isnull=False, form=None),
                name="remark_is_about_one_proposal",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.sequence}"
