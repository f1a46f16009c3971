"""Consent forms: versions, proposals, drafts, and the validity of consents."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.recorded import actor
from consent.models.studies import Study


class Renewal(models.TextChoices):
    """Consequence of a new version of the consent form for people who consented to an earlier version."""

    NOT_ASKED = "not_asked", _("not asked again")
    ASKED = "asked", _("asked again; their consent remains valid until they answer")
    REQUIRED = "required", _("asked again; their consent is suspended until they answer")


class Validity(models.Model):
    """Abstract model of the validity of a consent to a version of the form: some months, until a day, or unlimited."""

    valid_months = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(600)]
    )
    valid_until = models.DateField(null=True, blank=True, help_text="Last day on which a consent is valid.")

    class Meta:
        abstract = True


#: Versions published before this setting existed are valid indefinitely, as their holders agreed.
_VALID_FOR_GOOD = {"valid_months": None, "valid_until": None}
#: At most one of the two limits may be set.
_ONE_VALIDITY = Q(valid_months=None) | Q(valid_until=None)


class ConsentFormProposal(Validity, StudyChained):
    """Version of the consent form that is pending until a second committee member approves it, which publishes it.

    ``follows`` is the version in force when this version was proposed (0 if there was none); once a newer version is
    published, this one can no longer be published. A small correction, which changes no fact, has ``objection_until``:
    it comes into force at that time without a second person, unless a committee member has rejected it by then.
    """

    added_columns = _VALID_FOR_GOOD

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="consent_form_proposals")
    follows = models.PositiveIntegerField()
    texts = models.JSONField()
    facts = models.JSONField(help_text="The study's statements about itself; see consent.wording.facts.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical JSON of texts and facts.")
    renewal = models.CharField(max_length=10, choices=Renewal)
    objection_until = models.DateTimeField(null=True, blank=True)
    answer_by = models.DateField(
        null=True, blank=True, help_text="Date by which an answer is requested; empty for a correction."
    )
    proposed_by = actor()
    proposed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("proposed consent form")
        verbose_name_plural = _("proposed consent forms")
        constraints = [
            *StudyChained.Meta.constraints,
            models.CheckConstraint(
                condition=Q(renewal__in=Renewal.values), name="consent_form_proposal_renewal_is_known"
            ),
            models.CheckConstraint(
                condition=Q(objection_until=None) | Q(renewal=Renewal.NOT_ASKED),
                name="consent_form_correction_asks_nobody_again",
            ),
            models.CheckConstraint(condition=_ONE_VALIDITY, name="consent_form_proposal_has_one_validity"),
        ]

    def __str__(self) -> str:
        return f"proposal after version {self.follows}"

    @property
    def is_correction(self) -> bool:
        """Whether the version comes into force automatically after the objection period."""
        return self.objection_until is not None


class ConsentForm(Validity, StudyChained):
    """Published version of a study's consent form. ``texts`` maps a language code to Markdown.

    ``proposal`` and ``proposed_by`` show who proposed the version. ``published_by`` is the approver; empty for a
    correction to which no one objected by ``objection_until``. ``facts`` are the study's statements about itself in
    this version.
    """

    added_columns = {"renewal": Renewal.NOT_ASKED, **_VALID_FOR_GOOD}

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="consent_forms")
    version = models.PositiveIntegerField()
    texts = models.JSONField()
    facts = models.JSONField(help_text="The study's statements about itself; see consent.wording.facts.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical JSON of texts and facts.")
    renewal = models.CharField(max_length=10, choices=Renewal, default=Renewal.NOT_ASKED)
    objection_until = models.DateTimeField(null=True, blank=True)
    proposal = models.OneToOneField(ConsentFormProposal, on_delete=models.PROTECT, related_name="form")
    proposed_by = actor()
    published_by = actor(null=True, blank=True)
    published_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("consent form version")
        verbose_name_plural = _("consent form versions")
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["study", "version"], name="consent_form_version_is_unique"),
            *StudyChained.Meta.constraints,
            models.CheckConstraint(condition=Q(renewal__in=Renewal.values), name="consent_form_renewal_is_known"),
            models.CheckConstraint(condition=_ONE_VALIDITY, name="consent_form_has_one_validity"),
            models.CheckConstraint(
                condition=(Q(objection_until=None, published_by__isnull=False) & ~Q(published_by=F("proposed_by")))
                | Q(objection_until__isnull=False, published_by=None, renewal=Renewal.NOT_ASKED),
                name="consent_form_is_approved_by_a_second_person",
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.version}"


class ConsentFormDraft(models.Model):
    """The next version of a study's form while it is being written.

    ``texts`` and ``facts`` are as in :class:`ConsentForm`. A draft without facts uses those of the study.
    """

    study = models.OneToOneField(Study, on_delete=models.CASCADE, related_name="consent_form_draft")
    texts = models.JSONField(default=dict)
    facts = models.JSONField(null=True, blank=True)
    saved_by = actor()
    saved_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("consent form draft")
        verbose_name_plural = _("consent form drafts")

    def __str__(self) -> str:
        return f"draft for {self.study}"
