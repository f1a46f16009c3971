"""ε policies, their approval, and the ethics committee's statements: remarks on proposals, conflicts of interest."""

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.consent_forms import ConsentFormProposal
from consent.models.recorded import actor
from consent.models.studies import Study


class Level(models.TextChoices):
    """Level of protection: HIGH protection has the smallest ε."""

    HIGH = "HIGH", _("high protection")
    AVERAGE = "AVERAGE", _("average protection")
    LOW = "LOW", _("low protection")


class EpsilonPolicy(StudyChained):
    """Proposed mapping of levels to ε, which applies after a second person has approved it."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="epsilon_policies")
    version = models.PositiveIntegerField()
    high = models.FloatField(_("ε at high protection"), validators=[MinValueValidator(0)])
    average = models.FloatField(_("ε at average protection"), validators=[MinValueValidator(0)])
    low = models.FloatField(_("ε at low protection"), validators=[MinValueValidator(0)])
    reason = models.TextField(_("reason"))
    name_reason = models.TextField(
        _("reason for keeping the names"),
        blank=True,
        max_length=500,
        help_text=_(
            "If a level's odds are worse than its name suggests, explain here why you are keeping the name. People "
            "read this when they choose a level."
        ),
    )
    answer_by = models.DateField(
        null=True, blank=True, help_text="Date by which an answer is requested; passing it has no effect."
    )
    proposed_by = actor()
    proposed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("ε policy")
        verbose_name_plural = _("ε policies")
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["study", "version"], name="epsilon_policy_version_is_unique"),
            *StudyChained.Meta.constraints,
            models.CheckConstraint(
                condition=Q(high__gt=0, average__gt=F("high"), low__gt=F("average")), name="epsilon_policy_is_ordered"
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.version}: ε {self.high:g} / {self.average:g} / {self.low:g}"

    def epsilon(self, level: str) -> float:
        return {Level.HIGH: self.high, Level.AVERAGE: self.average, Level.LOW: self.low}[Level(level)]


class EpsilonPolicyApproval(StudyChained):
    """Approval by a second person. ``proposed_by`` repeats the proposer so that the database can compare the two."""

    study_lookup = "policy__study_id"

    policy = models.OneToOneField(EpsilonPolicy, on_delete=models.PROTECT, related_name="approval")
    proposed_by = actor()
    approved_by = actor()
    approved_at = models.DateTimeField(default=timezone.now, editable=False)
    effective_from = models.DateTimeField(default=timezone.now)

    class Meta(StudyChained.Meta):
        verbose_name = _("ε policy approval")
        verbose_name_plural = _("ε policy approvals")
        constraints = [
            models.CheckConstraint(
                condition=~Q(approved_by=F("proposed_by")), name="epsilon_policy_is_approved_by_a_second_person"
            )
        ]

    def __str__(self) -> str:
        return f"{self.policy} approved"

    @property
    def study_id(self) -> int:
        return self.policy.study_id


class Remark(StudyChained):
    """Comment on a proposed ε policy or consent form, its rejection with the reason, or an approval.

    The text of an approval states its conditions and is empty if there are none.
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
        verbose_name = _("comment on a proposal")
        verbose_name_plural = _("comments on proposals")
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


class ConflictOfInterest(StudyChained):
    """Statement by a member of a study not to approve anything in it from then on. It cannot be withdrawn."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="conflicts_of_interest")
    user = actor()
    reason = models.TextField(_("description"), max_length=1000)
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
