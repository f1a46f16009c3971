"""Studies: purpose, controller, δ, and what is promised to their holders."""

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.languages import first_language, languages_check
from consent.models.recorded import Recorded

#: Most characters of the example of harm: it stands where people choose, on a phone.
HARM_LENGTH = 240


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
        help_text=_("Name or office, and how to reach it."),
    )
    without_officer = models.BooleanField(
        _("no data protection officer is required"),
        default=False,
        help_text=_("Only where the law asks for none (GDPR Article 37). Holders are told so."),
    )
    supervisory_authority = models.TextField(
        _("supervisory authority"),
        blank=True,
        help_text=_("With which people can lodge a complaint: name and address."),
    )
    contact = models.EmailField(_("contact"), help_text=_("Where holders can ask questions."))
    contact_name = models.CharField(
        _("person to ask"),
        max_length=200,
        blank=True,
        help_text=_("Who answers questions: such as a physician whom the people know."),
    )
    contact_telephone = models.CharField(
        _("telephone"),
        max_length=50,
        blank=True,
        validators=[RegexValidator(r"^[+0-9][-+0-9 ()/.]*$", _("Digits, spaces and + ( ) / - . alone."))],
        help_text=_("Where holders can ask questions, with the code of the country: +49 30 1234567."),
    )
    contact_hours = models.CharField(
        _("hours of the telephone"),
        max_length=200,
        blank=True,
        help_text=_("When somebody answers, such as: Monday to Friday, 9 to 12."),
    )
    data_categories = models.TextField(
        _("which data"), blank=True, help_text=_("Which records of a person, in plain words: what, and from when.")
    )
    data_source = models.TextField(
        _("source of the data"),
        blank=True,
        help_text=_("Where the records come from, such as: your treatment at our clinic."),
    )
    recipients = models.TextField(
        _("who else sees raw records"),
        blank=True,
        help_text=_(
            "People or bodies beside the controller, processors included. If one is outside the European Union, say "
            "where, and what protects the records there."
        ),
    )
    without_recipients = models.BooleanField(
        _("nobody else sees raw records"), default=False, help_text=_("Neither processors nor anybody else.")
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
    alliance = models.JSONField(
        _("learning together"),
        default=dict,
        blank=True,
        editable=False,
        help_text="With whom sums are added up: name, hub, sites, and the digest of what they have signed.",
    )
    harm = models.TextField(
        _("example of harm"),
        blank=True,
        max_length=HARM_LENGTH,
        help_text=_(
            "One concrete case of what could happen to somebody, in plain words, for example: an insurer who knows "
            "everything else about you wants to know whether you were ill. People read it where they choose."
        ),
    )
    quorum = models.PositiveSmallIntegerField(
        _("approvals needed"),
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(9)],
        help_text=_("How many people, beside the one who proposes, have to approve an ε policy or a consent form."),
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
        help_text="Texts of the study in other languages: code → field → text; see consent.wording.facts.",
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
    budget_warning = models.FloatField(
        _("warn when a group has little left"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text=_(
            "The part of its budget, such as 0.1: operators get a mail, and the pages warn, when a privacy group has "
            "less than this left. Empty: no warning."
        ),
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
            models.CheckConstraint(condition=Q(quorum__gte=1, quorum__lte=9), name="study_quorum_is_one_to_nine"),
        ]

    def __str__(self) -> str:
        return self.title

    def clean(self) -> None:
        """Refuse a statement together with its contrary. Raises ValidationError."""
        if self.recipients and self.without_recipients:
            raise ValidationError({"without_recipients": _("Say who sees raw records, or that nobody does. Not both.")})
        if self.data_protection_officer and self.without_officer:
            raise ValidationError({"without_officer": _("Name the officer, or say that none is required. Not both.")})

    @property
    def telephone_link(self) -> str:
        """Address of a link that dials the contact's telephone."""
        return "tel:" + "".join(sign for sign in self.contact_telephone if sign in "+0123456789")

    @property
    def is_closed(self) -> bool:
        """Whether nothing is asked and nothing is learned any more."""
        return self.closed_at is not None


def study_lock(study_id: int) -> Study:
    """Lock a study: consent events, approvals and charges of one study happen one after the other.

    Call it first in a transaction. On PostgreSQL it is the study's row lock; on SQLite the immediate transaction
    (see the settings) already holds the whole database.
    """
    return Study.objects.select_for_update().get(pk=study_id)
