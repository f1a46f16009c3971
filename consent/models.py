"""Models of studies, roles, consent forms, ε policies, data holders and consent events."""

import uuid
from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from common.append_only import AppendOnly, Chained, Head
from consent.languages import first_language, languages_check


class Level(models.TextChoices):
    """Level of protection: HIGH protection has the smallest ε."""

    HIGH = "HIGH", _("high protection")
    AVERAGE = "AVERAGE", _("average protection")
    LOW = "LOW", _("low protection")


class Role(models.TextChoices):
    """Role of a user in one study; see :mod:`consent.permissions`."""

    OPERATOR = "operator", _("operator")
    STEWARD = "steward", _("data steward")
    COMMITTEE = "committee", _("ethics committee")
    CHAIR = "chair", _("chair of the ethics committee")
    AUDITOR = "auditor", _("auditor")
    RESEARCHER = "researcher", _("researcher")


#: Of these a person holds at most one in a study: nobody both operates a study and decides on its ε.
EXCLUSIVE_ROLES = (Role.OPERATOR, Role.COMMITTEE, Role.CHAIR)


def _actor(**kwargs: Any) -> models.ForeignKey:
    """Foreign key to the user who acted. No database constraint: records outlive accounts."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", **kwargs
    )


class LawfulBasis(models.TextChoices):
    """Lawful basis on which the controller processes the records (GDPR Articles 6 and 9)."""

    CONSENT = "consent", _("consent (GDPR Article 6(1)(a))")
    EXPLICIT_CONSENT = "explicit_consent", _("explicit consent to sensitive data (GDPR Article 9(2)(a))")
    OTHER = "other", _("consent under another law")


class Afterwards(models.TextChoices):
    """Fate of a consent when the person dies or can no longer decide."""

    ENDS = "ends", _("consent ends: the records are used in nothing new")
    STANDS = "stands", _("consent stands")


class AfterWithdrawal(models.TextChoices):
    """Fate of a person's stored records when they withdraw."""

    ERASED = "erased", _("they are erased")
    ASKED = "asked", _("the person decides whether they are erased")


class Study(models.Model):
    """One purpose, one controller, one δ, its holders, data and runs."""

    slug = models.SlugField(_("short name"), unique=True, help_text=_("Used in addresses; cannot be changed later."))
    title = models.CharField(_("title"), max_length=200)
    purpose = models.TextField(_("purpose"), help_text=_("What will be learned, and for whom, in plain words."))
    controller = models.CharField(_("controller"), max_length=200, help_text=_("The organisation that answers for it."))
    controller_address = models.TextField(
        _("address of the controller"), blank=True, help_text=_("Postal address, as on a letter.")
    )
    data_protection_officer = models.TextField(
        _("data protection officer"),
        blank=True,
        help_text=_("Name or office, and how to reach it. Empty: there is none."),
    )
    supervisory_authority = models.TextField(
        _("supervisory authority"),
        blank=True,
        help_text=_("With which people can lodge a complaint: name and address."),
    )
    contact = models.EmailField(_("contact"), help_text=_("Where holders can ask questions."))
    data_categories = models.TextField(
        _("which data"), blank=True, help_text=_("Which records of a person, in plain words: what, and from when.")
    )
    data_source = models.TextField(
        _("source of the data"),
        blank=True,
        help_text=_("Where the records come from, such as: your treatment at our clinic. It cannot be changed later."),
    )
    recipients = models.TextField(
        _("who else sees raw records"),
        blank=True,
        help_text=_(
            "People or bodies beside the controller. Empty: nobody. If one is outside the European Union, say where, "
            "and what protects the records there."
        ),
    )
    retention = models.TextField(
        _("how long"), blank=True, help_text=_("How long the records are kept for this, and what happens then.")
    )
    retention_until = models.DateField(
        _("last day of the records"),
        null=True,
        blank=True,
        help_text=_("On the day after it the study is closed and its private records are erased. Empty: no such day."),
    )
    after_withdrawal = models.CharField(
        _("stored records after a withdrawal"),
        max_length=10,
        choices=AfterWithdrawal,
        default=AfterWithdrawal.ASKED,
        help_text=_("Holders read it before they decide, and it is carried out."),
    )
    lawful_basis = models.CharField(_("lawful basis"), max_length=20, choices=LawfulBasis, default=LawfulBasis.CONSENT)
    jurisdiction = models.CharField(
        _("jurisdiction"), max_length=100, blank=True, help_text=_("Whose law holds, for example “Germany (EU)”.")
    )
    after_death = models.CharField(
        _("when somebody has died"),
        max_length=10,
        choices=Afterwards,
        default=Afterwards.ENDS,
        help_text=_("Holders are told before they decide."),
    )
    after_incapacity = models.CharField(
        _("when somebody can no longer decide"),
        max_length=10,
        choices=Afterwards,
        default=Afterwards.ENDS,
        help_text=_("Holders are told before they decide. Where it ends, a legal proxy is asked anew."),
    )
    mail_opening = models.TextField(
        _("opening of mails"),
        blank=True,
        max_length=500,
        help_text=_(
            "What mails to the people of this study begin with, for example a greeting and who writes. Whoever sees a "
            "mail reads it: say nothing of anybody's decision."
        ),
    )
    languages = models.JSONField(
        _("languages"),
        default=first_language,
        validators=[languages_check],
        help_text=_("In which the consent form must be complete before it is published: codes like en, de, fr."),
    )
    translations = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="Texts of the study in other languages: code → field → text; see consent.study_texts.",
    )
    delta = models.FloatField(
        "δ",
        default=1e-5,
        validators=[MinValueValidator(1e-9), MaxValueValidator(0.01)],
        help_text=_("The δ at which every ε is stated; well below 1 / number of holders."),
    )
    rehearsal = models.BooleanField(
        _("rehearsal"),
        default=False,
        help_text=_(
            "For data that are nobody's secret: no holders are asked and nothing is promised. Comparisons and tuning "
            "belong here. It cannot be changed later."
        ),
    )
    retain_votes = models.BooleanField(
        _("keep the teachers' predictions after a run"),
        default=False,
        help_text=_("Allows auditors to recompute every cost; the predictions are secrets."),
    )
    closed_at = models.DateTimeField(null=True, blank=True, editable=False)
    expired_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the private records of the closed study were erased."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("study")
        verbose_name_plural = _("studies")
        ordering = ["title"]
        constraints = [
            models.CheckConstraint(
                condition=Q(delta__gte=1e-9, delta__lte=0.01), name="study_delta_is_small_and_positive"
            ),
            models.CheckConstraint(
                condition=Q(after_death__in=Afterwards.values, after_incapacity__in=Afterwards.values),
                name="study_says_what_ends_a_consent",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_closed(self) -> bool:
        """Whether nothing is asked and nothing is learned any more."""
        return self.closed_at is not None


class Membership(models.Model):
    """A user's role in a study. Every change of it is recorded as a :class:`RoleChange`."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="memberships")
    # An account is deleted only after its roles have been taken away, on record.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("membership")
        ordering = ["study", "role", "user"]
        constraints = [
            models.UniqueConstraint(fields=["study", "user", "role"], name="membership_is_given_once"),
            models.UniqueConstraint(
                fields=["study", "user"],
                condition=Q(role__in=EXCLUSIVE_ROLES),
                name="a_user_operates_a_study_or_oversees_it",
                violation_error_message=_(
                    "Nobody has two of the roles operator, ethics committee and chair of the ethics committee in one "
                    "study. Take the other role away first, or choose another person."
                ),
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_role_display()}"


class ChainHead(Head):
    """Signed heads of a study's hash chains; see :mod:`common.append_only`."""

    # The rows of a chain protect their study; one that has none, not even a role given, takes the heads along.
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="chain_heads")

    class Meta:
        verbose_name = _("chain head")
        ordering = ["study", "chain"]
        constraints = [models.UniqueConstraint(fields=["study", "chain"], name="a_chain_has_one_head")]

    def __str__(self) -> str:
        return f"{self.chain} {self.sequence}"


class Renewal(models.TextChoices):
    """Consequence of a new version of the consent form for those who consented to an earlier one."""

    NOT_ASKED = "not_asked", _("they are not asked again")
    ASKED = "asked", _("they are asked again; their consent stands until they answer")
    REQUIRED = "required", _("they are asked again; their consent does not count until they answer")


class Validity(models.Model):
    """Abstract model of how long a consent to a version of the form counts: some months, until a day, or for good."""

    valid_months = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(600)]
    )
    valid_until = models.DateField(null=True, blank=True, help_text="The last day on which a consent counts.")

    class Meta:
        abstract = True


#: Versions from before validity count for good, as their holders agreed.
_VALID_FOR_GOOD = {"valid_months": None, "valid_until": None}
#: At most one of the two says how long.
_ONE_VALIDITY = Q(valid_months=None) | Q(valid_until=None)


class StudyChained(Chained):
    """Row of one of a study's hash chains, whose head is kept in :class:`ChainHead`."""

    head_model = ChainHead

    class Meta(Chained.Meta):
        abstract = True


class RoleChange(StudyChained):
    """A role in a study was given to somebody or taken away."""

    class Kind(models.TextChoices):
        GIVEN = "given", _("given")
        TAKEN = "taken", _("taken away")
        HELD = "held", _("held when this record began")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="role_changes")
    user = _actor()
    role = models.CharField(max_length=20, choices=Role)
    kind = models.CharField(max_length=10, choices=Kind)
    changed_by = _actor(null=True, help_text="Empty: whoever administers the installation, at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("change of a role")
        verbose_name_plural = _("changes of roles")
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="role_change_sequence_is_unique"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="role_change_role_is_known"),
            models.CheckConstraint(condition=Q(kind__in=["given", "taken", "held"]), name="role_change_kind_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.kind}: user {self.user_id}"


class ConsentFormProposal(Validity, StudyChained):
    """Version of the consent form that asks holders again. It is published once a second person approves it.

    ``follows`` is the version in force when it was proposed; after a newer one it cannot be published any more.
    """

    added_columns = _VALID_FOR_GOOD

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="consent_form_proposals")
    follows = models.PositiveIntegerField()
    texts = models.JSONField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical JSON of texts.")
    renewal = models.CharField(max_length=10, choices=Renewal)
    proposed_by = _actor()
    proposed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("proposed consent form")
        verbose_name_plural = _("proposed consent forms")
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="consent_form_proposal_sequence_is_unique"),
            models.CheckConstraint(
                condition=Q(renewal__in=[Renewal.ASKED, Renewal.REQUIRED]), name="consent_form_proposal_asks_again"
            ),
            models.CheckConstraint(condition=_ONE_VALIDITY, name="consent_form_proposal_has_one_validity"),
        ]

    def __str__(self) -> str:
        return f"proposal after version {self.follows}"


class ConsentForm(Validity, StudyChained):
    """Published version of a study's consent form. ``texts`` maps a language code to Markdown.

    ``proposal`` and ``proposed_by`` are those of a version that asks holders again; ``published_by`` approved it.
    """

    added_columns = {"renewal": Renewal.NOT_ASKED, "proposal_id": None, "proposed_by_id": None, **_VALID_FOR_GOOD}

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="consent_forms")
    version = models.PositiveIntegerField()
    texts = models.JSONField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical JSON of texts.")
    renewal = models.CharField(max_length=10, choices=Renewal, default=Renewal.NOT_ASKED)
    proposal = models.OneToOneField(
        ConsentFormProposal, on_delete=models.PROTECT, null=True, blank=True, related_name="form"
    )
    proposed_by = _actor(null=True, blank=True)
    published_by = _actor()
    published_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("consent form version")
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["study", "version"], name="consent_form_version_is_unique"),
            models.UniqueConstraint(fields=["study", "sequence"], name="consent_form_sequence_is_unique"),
            models.CheckConstraint(condition=Q(renewal__in=Renewal.values), name="consent_form_renewal_is_known"),
            models.CheckConstraint(condition=_ONE_VALIDITY, name="consent_form_has_one_validity"),
            models.CheckConstraint(
                condition=Q(proposed_by=None) | ~Q(published_by=F("proposed_by")),
                name="consent_form_is_approved_by_a_second_person",
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.version}"


class ConsentFormDraft(models.Model):
    """The next version of a study's form while it is being written. ``texts`` as in :class:`ConsentForm`."""

    study = models.OneToOneField(Study, on_delete=models.CASCADE, related_name="consent_form_draft")
    texts = models.JSONField(default=dict)
    saved_by = _actor()
    saved_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("draft of a consent form")

    def __str__(self) -> str:
        return f"draft for {self.study}"


class EpsilonPolicy(StudyChained):
    """A proposed mapping level → ε. It counts once it is approved by a second person."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="epsilon_policies")
    version = models.PositiveIntegerField()
    high = models.FloatField(_("ε at high protection"), validators=[MinValueValidator(0)])
    average = models.FloatField(_("ε at average protection"), validators=[MinValueValidator(0)])
    low = models.FloatField(_("ε at low protection"), validators=[MinValueValidator(0)])
    reason = models.TextField(_("reason"))
    proposed_by = _actor()
    proposed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("ε policy")
        verbose_name_plural = _("ε policies")
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["study", "version"], name="epsilon_policy_version_is_unique"),
            models.UniqueConstraint(fields=["study", "sequence"], name="epsilon_policy_sequence_is_unique"),
            models.CheckConstraint(
                condition=Q(high__gt=0, average__gt=F("high"), low__gt=F("average")), name="epsilon_policy_is_ordered"
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.version}: ε {self.high:g} / {self.average:g} / {self.low:g}"

    def epsilon(self, level: str) -> float:
        return {Level.HIGH: self.high, Level.AVERAGE: self.average, Level.LOW: self.low}[Level(level)]


class EpsilonPolicyApproval(StudyChained):
    """Approval by a second person. ``proposed_by`` repeats the policy's, so that the database can compare the two."""

    study_lookup = "policy__study_id"

    policy = models.OneToOneField(EpsilonPolicy, on_delete=models.PROTECT, related_name="approval")
    proposed_by = _actor()
    approved_by = _actor()
    approved_at = models.DateTimeField(default=timezone.now, editable=False)
    effective_from = models.DateTimeField(default=timezone.now)

    class Meta(StudyChained.Meta):
        verbose_name = _("ε policy approval")
        constraints = [
            models.CheckConstraint(
                condition=~Q(approved_by=F("proposed_by")), name="epsilon_policy_is_approved_by_a_second_person"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy} approved"

    @property
    def study_id(self) -> int:
        return self.policy.study_id


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
    made_by = _actor()
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


class DataHolder(models.Model):
    """A person who takes part in a study: the unit of privacy."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="holders")
    pseudonym = models.CharField(_("pseudonym"), max_length=200)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="holdings"
    )
    linked_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the account was linked; none where that was not noted."
    )
    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    erased_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When their records were erased; from then on the pseudonym is a keyed commitment to it.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("data holder")
        ordering = ["study", "pseudonym"]
        constraints = [
            models.UniqueConstraint(fields=["study", "pseudonym"], name="holder_pseudonym_is_unique_in_a_study"),
            models.UniqueConstraint(
                fields=["study", "user"], condition=Q(user__isnull=False), name="a_user_is_one_holder_of_a_study"
            ),
        ]

    def __str__(self) -> str:
        return self.pseudonym

    @property
    def known_as(self) -> str:
        """The pseudonym; empty once it was erased."""
        return "" if self.erased_at else self.pseudonym


class Answerer(models.TextChoices):
    """Role of whoever decides for a holder."""

    PERSON = "person", _("the person")
    GUARDIAN = "guardian", _("parent or guardian")
    PROXY = "proxy", _("legal proxy")


class Circumstance(StudyChained):
    """Record of who answers for a holder from then on, or that the holder has died or can no longer decide.

    ``until`` is the first day on which a guardian or proxy no longer answers: then the person does. No birth date is
    kept. ``recorded_by`` is empty where that day came.
    """

    class Kind(models.TextChoices):
        PERSON = "person", _("the person answers")
        GUARDIAN = "guardian", _("a parent or guardian answers")
        PROXY = "proxy", _("a legal proxy answers")
        INCAPABLE = "incapable", _("the person can no longer decide")
        DIED = "died", _("the person has died")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="circumstances")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="circumstances")
    kind = models.CharField(max_length=10, choices=Kind)
    until = models.DateField(null=True, blank=True)
    reason = models.CharField(max_length=500)
    recorded_by = _actor(null=True, blank=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("circumstance of a holder")
        verbose_name_plural = _("circumstances of holders")
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="circumstance_sequence_is_unique"),
            models.CheckConstraint(
                condition=Q(kind="guardian", until__isnull=False)
                | Q(kind="proxy")
                | Q(kind__in=["person", "incapable", "died"], until=None),
                name="circumstance_has_a_day_where_it_needs_one",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} from {self.recorded_at:%Y-%m-%d} on"


class ConsentEvent(StudyChained):
    """Decision about a holder's records, with its time, consent form and ε policy.

    ``renew_by`` is when the form asks for another decision: from then on a consent no longer counts.
    """

    class Kind(models.TextChoices):
        GIVEN = "given", _("consent given")
        CHANGED = "changed", _("consent given again")
        WITHDRAWN = "withdrawn", _("consent withdrawn")
        REFUSED = "refused", _("refused")

    class Channel(models.TextChoices):
        FORM = "form", _("consent form")
        STAFF = "staff", _("recorded by staff")
        PAPER = "paper", _("on paper")

    added_columns = {"evidence": "", "signed_on": None, "answered_by": Answerer.PERSON, "renew_by": None}

    # An index of several columns begins with each of these two: one more of their own would only slow writing down.
    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="consent_events", db_index=False)
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="consent_events", db_index=False)
    kind = models.CharField(max_length=10, choices=Kind)
    level = models.CharField(max_length=10, choices=Level, blank=True)
    form = models.ForeignKey(ConsentForm, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    policy = models.ForeignKey(EpsilonPolicy, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    channel = models.CharField(max_length=10, choices=Channel, default=Channel.FORM)
    evidence = models.CharField(
        max_length=64, blank=True, default="", help_text="SHA-256 of the scan, for what was decided on paper."
    )
    signed_on = models.DateField(null=True, blank=True, help_text="When it was decided on paper.")
    answered_by = models.CharField(max_length=10, choices=Answerer, default=Answerer.PERSON)
    renew_by = models.DateTimeField(null=True, blank=True, editable=False)
    recorded_by = _actor(null=True, blank=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("consent event")
        indexes = [
            # With all that says who takes part and how, so that PostgreSQL need not look into the rows.
            models.Index(
                fields=["holder", "-sequence"],
                include=[
                    "study",
                    "kind",
                    "level",
                    "form",
                    "policy",
                    "recorded_at",
                    "answered_by",
                    "renew_by",
                ],
                name="consent_event_last",
            ),
            models.Index(fields=["renew_by"], condition=Q(renew_by__isnull=False), name="consent_event_renew_by"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="consent_event_sequence_is_unique"),
            models.CheckConstraint(
                condition=(
                    Q(kind__in=["given", "changed"], level__in=Level.values, form__isnull=False, policy__isnull=False)
                    | Q(kind__in=["withdrawn", "refused"], level="")
                ),
                name="consent_event_has_a_level_where_it_grants_one",
            ),
            models.CheckConstraint(
                condition=~Q(channel="paper") | (~Q(evidence="") & Q(signed_on__isnull=False)),
                name="consent_on_paper_has_evidence_and_a_date",
            ),
            models.CheckConstraint(
                condition=Q(answered_by__in=Answerer.values), name="consent_event_says_who_answered"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.level}".strip()

    @property
    def grants(self) -> bool:
        """Whether the holder takes part after this event."""
        return self.kind in (self.Kind.GIVEN, self.Kind.CHANGED)


class LevelAccess(StudyChained):
    """Access of a staff member to one holder's choice, with the reason."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="level_accesses")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    seen_by = _actor()
    seen_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("look at a holder's choice")
        verbose_name_plural = _("looks at holders' choices")
        constraints = [models.UniqueConstraint(fields=["study", "sequence"], name="level_access_sequence_is_unique")]

    def __str__(self) -> str:
        return f"{self.seen_by_id} at {self.seen_at:%Y-%m-%d %H:%M}"


class DecisionCount(models.Model):
    """Numbers of a study's holders by their last decision, up to event ``sequence``; see :mod:`consent.counts`.

    It follows from the consent events, and may be deleted at any time.
    """

    study = models.OneToOneField(Study, on_delete=models.CASCADE, primary_key=True, related_name="+")
    sequence = models.PositiveBigIntegerField()
    counts = models.JSONField(help_text="Kind, level, form and end of the decision, and the number of holders.")

    class Meta:
        verbose_name = _("count of decisions")

    def __str__(self) -> str:
        return f"decisions up to {self.sequence}"


class Invitation(models.Model):
    """Invitation: a code that lets its bearer decide as one holder, until it is revoked or their account is confirmed.

    Only the code's hash is kept. Without ``holder`` it is open: the first who uses it becomes a new holder.
    """

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="invitations")
    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, null=True, related_name="invitations")
    code_hash = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the code, in hexadecimal.")
    created_by = _actor(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True)
    revoked_by = _actor(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("invitation")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["study", "-created_at", "-id"], name="invitation_latest")]
        constraints = [
            models.UniqueConstraint(
                fields=["holder"], condition=Q(revoked_at__isnull=True), name="a_holder_has_one_valid_invitation"
            ),
        ]

    def __str__(self) -> str:
        return str(_("invitation of %(name)s") % {"name": self.holder} if self.holder else _("open invitation"))


class Mail(models.Model):
    """Mail to the person of an account: which kind, about what, when, and its state. Its words are not kept.

    They are written when it is delivered, from ``kind``, ``study`` and ``about``, none of which tells a level.
    """

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")
        DROPPED = "dropped", _("no confirmed address")

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=30)
    study = models.ForeignKey(Study, on_delete=models.CASCADE, null=True, related_name="+")
    about = models.CharField(max_length=40, blank=True, help_text="Key of the row that it is about, if any.")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    fault = models.CharField(
        max_length=100, blank=True, help_text="Class of the last error; its words may name people."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    due_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("mail")
        verbose_name_plural = _("mails")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["due_at"], condition=Q(state="waiting"), name="mail_waiting")]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "sent", "failed", "dropped"]), name="mail_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to user {self.user_id}: {self.state}"


class Letter(models.Model):
    """Letter on paper to a holder whom no mail reaches: of which kind, about what, printed when and by whom.

    Its words and the code in it are not kept. Printing it again is another row.
    """

    class Kind(models.TextChoices):
        NEW_FORM = "new_form", _("new information, decide again")
        RENEWAL = "renewal", _("the consent ends or has ended, decide again")
        ANSWERER = "answerer", _("somebody else answers now")
        RECEIPT = "receipt", _("receipt of a decision on paper")

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="letters")
    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, related_name="letters")
    kind = models.CharField(max_length=10, choices=Kind)
    about = models.CharField(max_length=40, help_text="Key of the row that it is about.")
    made_by = _actor()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("letter")
        ordering = ["-made_at", "-pk"]
        indexes = [models.Index(fields=["study", "kind", "about"], name="letter_about")]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["new_form", "renewal", "answerer", "receipt"]), name="letter_kind_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.holder}"


class WebhookEndpoint(models.Model):
    """Address of a program that is told what happens in a study: which events, and the secret that signs them."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="webhooks")
    url = models.URLField(max_length=500)
    events = models.JSONField(help_text="Names of what it is told of, see consent.webhooks.EVENTS.")
    secret = models.TextField(help_text="Encrypted with a key that follows from the site's secret key.")
    created_by = _actor()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("webhook")
        ordering = ["study", "pk"]

    def __str__(self) -> str:
        return f"webhook {self.pk}"


class WebhookDelivery(models.Model):
    """Message to an endpoint, with the words as they are sent, and how that went."""

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=40)
    body = models.TextField(help_text="JSON; the same at each try.")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Of the last answer.")
    fault = models.CharField(max_length=100, blank=True, help_text="What kept the last answer away.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    due_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("delivery of a webhook")
        verbose_name_plural = _("deliveries of webhooks")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["due_at"], condition=Q(state="waiting"), name="webhook_waiting")]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "sent", "failed"]), name="webhook_delivery_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.endpoint}: {self.state}"


class MailWishes(models.Model):
    """Wishes of an account about its mails."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="mail_wishes")
    language = models.CharField(_("language of mails"), max_length=10, choices=settings.LANGUAGES)
    uses = models.BooleanField(
        _("write to me when a new run may use my records"),
        default=False,
        help_text=_("The mail goes to everybody in the study who wishes it, whether they take part or not."),
    )
    approvals = models.BooleanField(_("write to me when something waits for approval, or is approved"), default=True)
    ends = models.BooleanField(_("write to me when a run of mine has finished or failed"), default=True)
    shares = models.BooleanField(_("write to me when a group has used most of a run's share"), default=True)

    class Meta:
        verbose_name = _("wishes about mails")

    def __str__(self) -> str:
        return f"user {self.user_id}: {self.language}"


class LinkReissue(StudyChained):
    """New link to a holder's decisions in place of earlier ones, with the reason."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="link_reissues")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="link_reissues")
    reason = models.CharField(max_length=500)
    issued_by = _actor()
    issued_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("new link for a holder")
        verbose_name_plural = _("new links for holders")
        constraints = [models.UniqueConstraint(fields=["study", "sequence"], name="link_reissue_sequence_is_unique")]

    def __str__(self) -> str:
        return f"by {self.issued_by_id} at {self.issued_at:%Y-%m-%d %H:%M}"


class Disposal(StudyChained):
    """Act that ended something for good: records or a dataset erased, the study closed, its records at their end.

    Of a holder's records there are two rows: that it was asked for, and that it was done.
    """

    class Kind(models.TextChoices):
        ASKED = "asked", _("erasure of a person's records was asked for")
        ERASED = "erased", _("a person's records were erased")
        DATASET = "dataset", _("dataset removed")
        CLOSED = "closed", _("study closed")
        EXPIRED = "expired", _("all private records erased")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="disposals")
    kind = models.CharField(max_length=10, choices=Kind)
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, null=True, related_name="disposals")
    subject = models.CharField(max_length=100, blank=True, help_text="Name of the dataset.")
    rows = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many rows of private datasets were erased."
    )
    files = models.PositiveIntegerField(null=True, blank=True, help_text="How many scans of letters were erased.")
    reason = models.CharField(max_length=500, blank=True)
    recorded_by = _actor(null=True, help_text="Empty: the holder by their link, the study's rule, or a date.")
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("closing or erasure")
        verbose_name_plural = _("closings and erasures")
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="disposal_sequence_is_unique"),
            models.CheckConstraint(
                condition=Q(kind__in=["asked", "erased"], holder__isnull=False)
                | Q(kind__in=["dataset", "closed", "expired"], holder__isnull=True),
                name="disposal_kind_is_known_and_says_of_whom",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.sequence}"


class Administrator(models.Model):
    """Account that administers the installation: creates studies and accounts of staff.

    It gives no right in any study. Each change is an :class:`AccountChange`.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="administrator")

    class Meta:
        verbose_name = _("administrator of the installation")
        verbose_name_plural = _("administrators of the installation")

    def __str__(self) -> str:
        return str(self.user)


class AccountChange(AppendOnly):
    """Act on an account by an administrator of the installation or at its command line."""

    class Kind(models.TextChoices):
        CREATED = "created", _("account made")
        INVITED = "invited", _("link for a password sent again")
        APPOINTED = "appointed", _("made an administrator")
        DISMISSED = "dismissed", _("no longer an administrator")
        CLOSED = "closed", _("account closed")
        REOPENED = "reopened", _("account opened again")

    user = _actor()
    kind = models.CharField(max_length=10, choices=Kind)
    changed_by = _actor(null=True, help_text="Empty: at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("change of an account")
        verbose_name_plural = _("changes of accounts")
        ordering = ["-changed_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["created", "invited", "appointed", "dismissed", "closed", "reopened"]),
                name="account_change_kind_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: user {self.user_id}"
