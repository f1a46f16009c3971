"""Who takes part, what they were told, what they chose."""

import uuid
from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.languages import first_language, languages_check
from ipate_web.append_only import Chained, Head


class Level(models.TextChoices):
    """How strongly a holder's data is protected: HIGH protection has the smallest ε."""

    HIGH = "HIGH", _("high protection")
    AVERAGE = "AVERAGE", _("average protection")
    LOW = "LOW", _("low protection")


class Role(models.TextChoices):
    """What a person may do in one study; see :mod:`consent.permissions`."""

    OPERATOR = "operator", _("operator")
    COMMITTEE = "committee", _("ethics committee")
    AUDITOR = "auditor", _("auditor")
    RESEARCHER = "researcher", _("researcher")


def _actor(**kwargs: Any) -> models.ForeignKey:
    """Who did it. No database constraint: what is on record outlives the account."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", **kwargs
    )


class LawfulBasis(models.TextChoices):
    """Why the controller may process the records at all."""

    CONSENT = "consent", _("consent (GDPR Article 6(1)(a))")
    EXPLICIT_CONSENT = "explicit_consent", _("explicit consent to sensitive data (GDPR Article 9(2)(a))")
    OTHER = "other", _("consent under another law")


class Study(models.Model):
    """One purpose, one controller, one δ, its holders, data and runs."""

    slug = models.SlugField(_("short name"), unique=True, help_text=_("Used in addresses; cannot be changed later."))
    title = models.CharField(_("title"), max_length=200)
    purpose = models.TextField(_("purpose"), help_text=_("What will be learned, and for whom, in plain words."))
    controller = models.CharField(_("controller"), max_length=200, help_text=_("The organisation that answers for it."))
    contact = models.EmailField(_("contact"), help_text=_("Where holders can ask questions."))
    data_categories = models.TextField(
        _("which data"), blank=True, help_text=_("Which records of a person, in plain words: what, and from when.")
    )
    recipients = models.TextField(
        _("who else sees raw records"),
        blank=True,
        help_text=_("People or bodies beside the controller. Empty: nobody."),
    )
    retention = models.TextField(
        _("how long"), blank=True, help_text=_("How long the records are kept for this, and what happens then.")
    )
    lawful_basis = models.CharField(_("lawful basis"), max_length=20, choices=LawfulBasis, default=LawfulBasis.CONSENT)
    jurisdiction = models.CharField(
        _("jurisdiction"), max_length=100, blank=True, help_text=_("Whose law holds, for example “Germany (EU)”.")
    )
    languages = models.JSONField(
        _("languages"),
        default=first_language,
        validators=[languages_check],
        help_text=_("In which the consent form must be complete before it is published: codes like en, de, fr."),
    )
    delta = models.FloatField(
        "δ",
        default=1e-5,
        validators=[MinValueValidator(1e-12), MaxValueValidator(0.01)],
        help_text=_("The probability of the guarantee not holding; well below 1 / number of holders."),
    )
    retain_votes = models.BooleanField(
        _("keep the teachers' predictions after a run"),
        default=False,
        help_text=_("Allows auditors to recompute every cost; the predictions are secrets."),
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("study")
        verbose_name_plural = _("studies")
        ordering = ["title"]
        constraints = [
            models.CheckConstraint(condition=Q(delta__gt=0, delta__lte=0.01), name="study_delta_is_small_and_positive"),
        ]

    def __str__(self) -> str:
        return self.title


class Membership(models.Model):
    """A user's role in a study."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("membership")
        ordering = ["study", "role", "user"]
        constraints = [
            models.UniqueConstraint(fields=["study", "user", "role"], name="membership_is_given_once"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_role_display()}"


class ChainHead(Head):
    """Where each of a study's hash chains ends, signed: see :mod:`ipate_web.append_only`."""

    # The rows of a chain protect their study; one that has none yet takes the heads along.
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="chain_heads")

    class Meta:
        verbose_name = _("chain head")
        ordering = ["study", "chain"]
        constraints = [models.UniqueConstraint(fields=["study", "chain"], name="a_chain_has_one_head")]

    def __str__(self) -> str:
        return f"{self.chain} {self.sequence}"


class Renewal(models.TextChoices):
    """What a new version of the consent form means for those who consented to an earlier one."""

    NOT_ASKED = "not_asked", _("they are not asked again")
    ASKED = "asked", _("they are asked again; their consent stands until they answer")
    REQUIRED = "required", _("they are asked again; their consent does not count until they answer")


class ConsentForm(Chained):
    """A published version of what holders of a study are told. ``texts`` maps a language code to Markdown."""

    added_columns = {"renewal": Renewal.NOT_ASKED}

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="consent_forms")
    version = models.PositiveIntegerField()
    texts = models.JSONField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical JSON of texts.")
    renewal = models.CharField(max_length=10, choices=Renewal, default=Renewal.NOT_ASKED)
    published_by = _actor()
    published_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(Chained.Meta):
        verbose_name = _("consent form version")
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["study", "version"], name="consent_form_version_is_unique"),
            models.UniqueConstraint(fields=["study", "sequence"], name="consent_form_sequence_is_unique"),
            models.CheckConstraint(condition=Q(renewal__in=Renewal.values), name="consent_form_renewal_is_known"),
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


class EpsilonPolicy(Chained):
    """A proposed mapping level → ε. It counts once it is approved by a second person."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="epsilon_policies")
    version = models.PositiveIntegerField()
    high = models.FloatField(_("ε at high protection"), validators=[MinValueValidator(0)])
    average = models.FloatField(_("ε at average protection"), validators=[MinValueValidator(0)])
    low = models.FloatField(_("ε at low protection"), validators=[MinValueValidator(0)])
    reason = models.TextField(_("reason"))
    proposed_by = _actor()
    proposed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(Chained.Meta):
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


class EpsilonPolicyApproval(Chained):
    """The second person's yes. ``proposed_by`` repeats the policy's, so that the database can tell the two apart."""

    study_lookup = "policy__study_id"

    policy = models.OneToOneField(EpsilonPolicy, on_delete=models.PROTECT, related_name="approval")
    proposed_by = _actor()
    approved_by = _actor()
    approved_at = models.DateTimeField(default=timezone.now, editable=False)
    effective_from = models.DateTimeField(default=timezone.now)

    class Meta(Chained.Meta):
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


class DataHolder(models.Model):
    """A person who takes part in a study: the unit of privacy."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="holders")
    pseudonym = models.CharField(_("pseudonym"), max_length=200)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="holdings"
    )
    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
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


class ConsentEvent(Chained):
    """What a holder decided, when, on which form and under which ε policy."""

    class Kind(models.TextChoices):
        GIVEN = "given", _("consent given")
        CHANGED = "changed", _("level changed")
        WITHDRAWN = "withdrawn", _("consent withdrawn")
        REFUSED = "refused", _("refused")

    class Channel(models.TextChoices):
        FORM = "form", _("consent form")
        STAFF = "staff", _("recorded by staff")
        PAPER = "paper", _("on paper")

    added_columns = {"evidence": "", "signed_on": None}

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
    recorded_by = _actor(null=True, blank=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(Chained.Meta):
        verbose_name = _("consent event")
        indexes = [
            # With all that says who takes part and how, so that PostgreSQL need not look into the rows.
            models.Index(
                fields=["holder", "-sequence"],
                include=["study", "kind", "level", "form", "policy", "recorded_at"],
                name="consent_event_last",
            )
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
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.level}".strip()

    @property
    def grants(self) -> bool:
        """Does the holder take part after this event?"""
        return self.kind in (self.Kind.GIVEN, self.Kind.CHANGED)


class LevelAccess(Chained):
    """Somebody of the staff has looked at what one holder chose, and said why."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="level_accesses")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    seen_by = _actor()
    seen_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(Chained.Meta):
        verbose_name = _("look at a holder's choice")
        verbose_name_plural = _("looks at holders' choices")
        constraints = [models.UniqueConstraint(fields=["study", "sequence"], name="level_access_sequence_is_unique")]

    def __str__(self) -> str:
        return f"{self.seen_by_id} at {self.seen_at:%Y-%m-%d %H:%M}"


class Invitation(models.Model):
    """A code that lets its bearer decide as one holder, until it is revoked or an account takes its place.

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


class WrongCode(models.Model):
    """A code that opened nothing, and a keyed hash of where it came from: whoever guesses is made to wait."""

    source = models.CharField(max_length=64)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["source", "at"], name="wrong_code_by_source")]

    def __str__(self) -> str:
        return f"a wrong code at {self.at:%H:%M}"
