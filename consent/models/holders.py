"""Data holders, and the people who answer for them."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.recorded import Recorded, actor
from consent.models.studies import Study


class DataHolder(Recorded):
    """A person who takes part in a study: the unit of privacy."""

    sealed_fields = ("user", "linked_at")
    # Erasing the records replaces the pseudonym by a commitment, because no digest of the pseudonym may remain.
    working_fields = ("pseudonym", "public_id", "erased_at", "created_at")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="holders")
    pseudonym = models.CharField(_("pseudonym"), max_length=200)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="holdings"
    )
    linked_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the account was linked; empty if this was not recorded."
    )
    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    erased_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Time at which the records were erased. The pseudonym is then replaced by a keyed commitment to it.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("data holder")
        verbose_name_plural = _("data holders")
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
        """The pseudonym, or an empty string after it was erased."""
        return "" if self.erased_at else self.pseudonym


class Answerer(models.TextChoices):
    """Role in which a person decides for a holder."""

    PERSON = "person", _("the person")
    GUARDIAN = "guardian", _("parent or guardian")
    PROXY = "proxy", _("legal proxy")


class Authority(models.TextChoices):
    """Right to decide for another person, as declared by the person who decides."""

    PARENTS = "parents", _("parental responsibility: only I have it, or we share it and agree")
    GUARDIANSHIP = "guardianship", _("guardianship, by decision of a court or authority")
    COURT = "court", _("legal representation, by decision of a court")
    POWER = "power", _("power of attorney from the person")
    OTHER = "other", _("another legal right")


#: Rights that a person can declare in each answering role.
AUTHORITIES = {
    Answerer.GUARDIAN: (Authority.PARENTS, Authority.GUARDIANSHIP, Authority.OTHER),
    Answerer.PROXY: (Authority.COURT, Authority.POWER, Authority.OTHER),
}


class Circumstance(StudyChained):
    """Record of who answers for a holder from now on, or that the holder has died or can no longer make decisions.

    ``until`` is the first day on which the holder answers instead of a guardian or proxy. No birth date is kept.
    ``recorded_by`` is empty if the row was created automatically on that day.
    """

    is_act = True
    added_columns = {"replayed_at": None}

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
    recorded_by = actor(null=True, blank=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)
    replayed_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Time at which it was recorded again because it was missing from a restored database.",
    )

    class Meta(StudyChained.Meta):
        verbose_name = _("entry about who answers for a data holder")
        verbose_name_plural = _("entries about who answers for data holders")
        constraints = [
            *StudyChained.Meta.constraints,
            models.CheckConstraint(
                condition=Q(kind="guardian", until__isnull=False)
                | Q(kind="proxy")
                | Q(kind__in=["person", "incapable", "died"], until=None),
                name="circumstance_has_a_day_where_it_needs_one",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} from {self.recorded_at:%Y-%m-%d} on"
