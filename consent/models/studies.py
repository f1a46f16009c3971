"""Studies: purpose, controller, δ, and the promises to their holders."""

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.languages import first_language, languages_check
from consent.models.recorded import Recorded

#: Maximum length of the example of harm, in characters. People read it on a phone while choosing.
HARM_LENGTH = 240


class LawfulBasis(models.TextChoices):
    """Lawful basis on which the controller processes the records (GDPR Articles 6 and 9)."""

    CONSENT = "consent", _("consent (GDPR Article 6(1)(a))")
    EXPLICIT_CONSENT = "explicit_consent", _("explicit consent to sensitive data (GDPR Article 9(2)(a))")
    OTHER = "other", _("consent under another law")


class Afterwards(models.TextChoices):
    """Effect on a consent if the person dies or can no longer decide."""

    ENDS = "ends", _("consent ends: the records will not be used for anything new")
    STANDS = "stands", _("consent remains valid")


class AfterWithdrawal(models.TextChoices):
    """Effect of a withdrawal on the person's stored records."""

    ERASED = "erased", _("the records are erased")
    ASKED = "asked", _("the person decides whether the records are erased")


class Study(Recorded):
    """One purpose, one controller, one δ, its holders, data and runs."""

    open_fields = (
        *("slug", "title", "purpose", "controller", "controller_address", "data_protection_officer"),
        *("without_officer", "supervisory_authority", "contact", "contact_name", "contact_telephone", "contact_hours"),
        *("data_categories", "data_source", "recipients", "without_recipients", "retention"),
        *("retention_until", "after_withdrawal", "lawful_basis", "jurisdiction", "after_death", "after_incapacity"),
        *(
            "alliance",
            "harm",
            "quorum",
            "mail_opening",
            "languages",
            "translations",
            "delta",
            "rehearsal",
            "retain_votes",
            "budget_warning",
        ),
        *("closed_at", "expired_at", "created_at"),
    )

    slug = models.SlugField(
        _("short name"), unique=True, help_text=_("Short name for web addresses. It cannot be changed later.")
    )
    title = models.CharField(_("title"), max_length=200)
    purpose = models.TextField(_("purpose"), help_text=_("In plain words: what will be learned, and for whom."))
    controller = models.CharField(
        _("controller"), max_length=200, help_text=_("The organisation responsible for the study.")
    )
    controller_address = models.TextField(
        _("controller's address"), blank=True, help_text=_("Postal address, as on a letter.")
    )
    data_protection_officer = models.TextField(
        _("data protection officer"),
        blank=True,
        help_text=_("Name or office, and contact details."),
    )
    without_officer = models.BooleanField(
        _("no data protection officer is required"),
        default=False,
        help_text=_("Only if the law does not require one (GDPR Article 37). Data holders can see this."),
    )
    supervisory_authority = models.TextField(
        _("supervisory authority"), blank=True, help_text=_("Where people can lodge a complaint: name and address.")
    )
    contact = models.EmailField(_("contact"), help_text=_("Where data holders can ask questions."))
    contact_name = models.CharField(
        _("contact person"),
        max_length=200,
        blank=True,
        help_text=_("A person who answers questions, such as a doctor people know."),
    )
    contact_telephone = models.CharField(
        _("phone"),
        max_length=50,
        blank=True,
        validators=[RegexValidator(r"^[+0-9][-+0-9 ()/.]*$", _("Only digits, spaces and + ( ) / - ."))],
        help_text=_("Where data holders can ask questions, with the country code: +49 30 1234567."),
    )
    contact_hours = models.CharField(
        _("phone hours"),
        max_length=200,
        blank=True,
        help_text=_("When the phone is answered, such as Monday to Friday, 9 to 12."),
    )
    data_categories = models.TextField(
        _("which data"),
        blank=True,
        help_text=_("In plain words: which of a person's records are used, and from what date on."),
    )
    data_source = models.TextField(
        _("source of the data"),
        blank=True,
        help_text=_("Where the records come from, such as “your treatment at our clinic”."),
    )
    recipients = models.TextField(
        _("who else sees raw records"),
        blank=True,
        help_text=_(
            "People or organisations other than the controller, including processors. For each one outside the "
            "European Union, say where it is and what protects the records there."
        ),
    )
    without_recipients = models.BooleanField(
        _("no one else sees raw records"), default=False, help_text=_("No processors, and no one else.")
    )
    retention = models.TextField(
        _("how long records are kept"),
        blank=True,
        help_text=_("How long the records are kept for this study, and what happens to them afterwards."),
    )
    retention_until = models.DateField(
        _("last day the records are kept"),
        null=True,
        blank=True,
        help_text=_(
            "On the following day, the study closes and its private records are erased. Leave empty for no end date."
        ),
    )
    after_withdrawal = models.CharField(
        _("stored records after a withdrawal"),
        max_length=10,
        choices=AfterWithdrawal,
        default=AfterWithdrawal.ASKED,
        help_text=_("Data holders read this before they decide, and the site applies it automatically."),
    )
    lawful_basis = models.CharField(_("lawful basis"), max_length=20, choices=LawfulBasis, default=LawfulBasis.CONSENT)
    jurisdiction = models.CharField(
        _("jurisdiction"), max_length=100, blank=True, help_text=_("Which law applies, for example “Germany (EU)”.")
    )
    after_death = models.CharField(
        _("if a person has died"),
        max_length=10,
        choices=Afterwards,
        default=Afterwards.ENDS,
        help_text=_("Data holders read this before they decide."),
    )
    after_incapacity = models.CharField(
        _("if a person can no longer decide"),
        max_length=10,
        choices=Afterwards,
        default=Afterwards.ENDS,
        help_text=_("Data holders read this before they decide. If the consent ends, we ask the legal proxy again."),
    )
    alliance = models.JSONField(
        _("learning together"),
        default=dict,
        blank=True,
        editable=False,
        help_text="The alliance whose sites add up their sums: name, hub, sites, and digest of the signed document.",
    )
    harm = models.TextField(
        _("example of harm"),
        blank=True,
        max_length=HARM_LENGTH,
        help_text=_(
            "One concrete example of what could happen to a person, in plain words. For instance: an insurer who "
            "knows everything else about you wants to know whether you were ill. People read this when they choose a "
            "level."
        ),
    )
    quorum = models.PositiveSmallIntegerField(
        _("required approvals"),
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(9)],
        help_text=_("How many people besides the proposer have to approve an ε policy or a consent form."),
    )
    mail_opening = models.TextField(
        _("email introduction"),
        blank=True,
        max_length=500,
        help_text=_(
            "The beginning of emails to people in this study, for example a greeting and the sender's name. Other "
            "people may see the email, so do not mention anyone's decision."
        ),
    )
    languages = models.JSONField(
        _("languages"),
        default=first_language,
        validators=[languages_check],
        help_text=_(
            "Languages in which the consent form must be complete before it is published: codes such as en, de, fr."
        ),
    )
    translations = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="Translations of the study's texts: language code → field → text; see consent.wording.facts.",
    )
    delta = models.FloatField(
        "δ",
        default=1e-5,
        validators=[MinValueValidator(1e-9), MaxValueValidator(0.01)],
        help_text=_(
            "The δ for which every ε is stated. Choose a value well below 1 divided by the number of data holders."
        ),
    )
    rehearsal = models.BooleanField(
        _("rehearsal"),
        default=False,
        help_text=_(
            "A rehearsal uses data that is not secret: it asks no one for consent and makes no promises. Use it for "
            "comparisons and tuning. This cannot be changed later."
        ),
    )
    retain_votes = models.BooleanField(
        _("keep the teachers' predictions after a run"),
        default=False,
        help_text=_("Lets auditors recompute every cost from the stored predictions, which stay secret."),
    )
    budget_warning = models.FloatField(
        _("warn when a group's budget is low"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text=_(
            "A fraction of the budget, such as 0.1. When a privacy group has less than this left, operators get an "
            "email and the pages show a warning. Leave this empty for no warning."
        ),
    )
    closed_at = models.DateTimeField(null=True, blank=True, editable=False)
    expired_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Time at which the closed study's private records were erased."
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
            models.CheckConstraint(condition=Q(quorum__gte=1, quorum__lte=9), name="study_quorum_is_one_to_nine"),
        ]

    def __str__(self) -> str:
        return self.title

    def clean(self) -> None:
        """Refuse contradictory statements. Raises ValidationError."""
        if self.recipients and self.without_recipients:
            raise ValidationError(
                {"without_recipients": _("Say either who sees raw records or that no one does, but not both.")}
            )
        if self.data_protection_officer and self.without_officer:
            raise ValidationError(
                {"without_officer": _("Either name the officer or say that none is required, but not both.")}
            )

    @property
    def telephone_link(self) -> str:
        """Link that dials the contact's telephone number."""
        return "tel:" + "".join(sign for sign in self.contact_telephone if sign in "+0123456789")

    @property
    def is_closed(self) -> bool:
        """Whether the study has stopped asking people and learning from records."""
        return self.closed_at is not None


def study_lock(study_id: int) -> Study:
    """Lock a study, so that its consent events, approvals and charges happen one after the other.

    Call this first in a transaction. PostgreSQL locks the study's row; on SQLite the immediate transaction (see the
    settings) already locks the whole database.
    """
    return Study.objects.select_for_update().get(pk=study_id)
