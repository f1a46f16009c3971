"""Remarks on proposals: comments, rejections and approvals."""

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
    """Comment on a proposal of an ε policy or of a consent form, its rejection with the reason, or an approval.

    The text of an approval states its conditions; it is empty where there are none.
    """

    class Kind(models.TextChoices):
        COMMENT = "comment", _("comment")
        REJECTION = "rejection", _("rejected")
        APPROVAL = "approval", _("approved")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="remarks")
    policy = models.ForeignKey(EpsilonPolicy, on_delete=models.PROTECT, null=True, related_name="remarks")
    form = models.ForeignKey(ConsentFormProposal, on_delete=models.PROTECT, null=True, related_name="remarks")
    kind = models.CharField(max_length=10, choices=Kind)
    text = models.TextField(_("text"), blank=True)
    made_by = actor()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("remark on a proposal")
        verbose_name_plural = _("remarks on proposals")
        constraints = [
            *StudyChained.Meta.constraints,
            models.UniqueConstraint(
                fields=["policy"], condition=Q(kind="rejection"), name="epsilon_policy_is_rejected_once"
            ),
            models.UniqueConstraint(
                fields=["form"], condition=Q(kind="rejection"), name="consent_form_proposal_is_rejected_once"
            ),
            models.UniqueConstraint(
                fields=["policy", "made_by"],
                condition=Q(kind="approval"),
                name="epsilon_policy_is_approved_once_by_each",
            ),
            models.UniqueConstraint(
                fields=["form", "made_by"], condition=Q(kind="approval"), name="consent_form_is_approved_once_by_each"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["comment", "rejection", "approval"]), name="remark_kind_is_known"
            ),
            models.CheckConstraint(
                condition=Q(kind="approval") | ~Q(text=""), name="remark_has_a_text_unless_it_approves"
            ),
            models.CheckConstraint(
                condition=Q(policy=None, form__isnull=False) | Q(policy__isnull=False, form=None),
                name="remark_is_about_one_proposal",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.sequence}"
