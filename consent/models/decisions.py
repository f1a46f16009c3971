"""Decisions of holders, their drafts and answers to check questions, and staff access to decisions."""

from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.chains import StudyChained
from consent.models.consent_forms import ConsentForm
from consent.models.holders import Answerer, Authority, DataHolder
from consent.models.policies import EpsilonPolicy, Level
from consent.models.recorded import actor
from consent.models.studies import Study


class AnswerDraft(models.Model):
    """Answer that a holder ticked but did not confirm, kept because they wanted to decide later; not a decision."""

    holder = models.OneToOneField(DataHolder, on_delete=models.CASCADE, related_name="+")
    answer = models.JSONField(help_text="Content of the decision form, by field.")
    kept_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "answer to decide on later"
        verbose_name_plural = "answers to decide on later"

    def __str__(self) -> str:
        return f"answer of holder {self.holder_id}"


class CheckAnswers(models.Model):
    """Record of whether a holder's first answer to each check question of one version of the form was right.

    There are two bits per question, in the order of :data:`consent.promises.questions.KEYS`. The bits are cleared after
    they have been counted; ``counted`` is then true, and nothing else is kept about this person.
    """

    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, related_name="+")
    form = models.ForeignKey(ConsentForm, on_delete=models.CASCADE, related_name="+")
    answered = models.PositiveSmallIntegerField(default=0, help_text="Bit mask of the questions answered.")
    right = models.PositiveSmallIntegerField(default=0, help_text="Bit mask of questions first answered correctly.")
    counted = models.BooleanField(default=False)

    class Meta:
        verbose_name = "answers to check questions"
        verbose_name_plural = "answers to check questions"
        constraints = [
            models.UniqueConstraint(fields=["holder", "form"], name="check_answers_of_a_holder_are_one_row"),
            models.CheckConstraint(condition=Q(right__lte=F("answered")), name="check_answers_right_were_answered"),
            models.CheckConstraint(
                condition=Q(counted=False) | Q(answered=0, right=0), name="check_answers_counted_are_cleared"
            ),
        ]

    def __str__(self) -> str:
        return f"answers of holder {self.holder_id}"


class ConsentEvent(StudyChained):
    """Decision about a holder's records, with its time, consent form and ε policy.

    ``policy`` is the policy whose ε was promised; for a kept promise or a decision on paper it may be older than the
    policy in force. ``renew_by`` is the time when the form asks for another decision; from then on, a consent is no
    longer valid. If another person decided for the holder, ``authority`` and ``statement`` are their declarations about
    the right to do so.
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

    is_act = True
    added_columns = {
        "evidence": "",
        "signed_on": None,
        "answered_by": Answerer.PERSON,
        "renew_by": None,
        "epsilon_before": None,
        "authority": "",
        "statement": "",
        "text_read": "",
        "talked": False,
    }

    # Composite indexes begin with each of these two columns; separate indexes would only slow down writing.
    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="consent_events", db_index=False)
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="consent_events", db_index=False)
    kind = models.CharField(max_length=10, choices=Kind)
    level = models.CharField(max_length=10, choices=Level, blank=True)
    form = models.ForeignKey(ConsentForm, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    policy = models.ForeignKey(EpsilonPolicy, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    channel = models.CharField(max_length=10, choices=Channel, default=Channel.FORM)
    evidence = models.CharField(
        max_length=64, blank=True, default="", help_text="SHA-256 of the scan, for a decision on paper."
    )
    signed_on = models.DateField(null=True, blank=True, help_text="Date of the signature, for a decision on paper.")
    answered_by = models.CharField(max_length=10, choices=Answerer, default=Answerer.PERSON)
    renew_by = models.DateTimeField(null=True, blank=True, editable=False)
    epsilon_before = models.FloatField(
        null=True,
        blank=True,
        editable=False,
        help_text="ε of the previous promise, if the person explicitly accepted this weaker one.",
    )
    authority = models.CharField(max_length=20, choices=Authority, blank=True, default="")
    statement = models.TextField(
        blank=True, default="", help_text="Declaration by the person who decided for the holder, as worded on screen."
    )
    text_read = models.CharField(
        max_length=35, blank=True, default="", help_text="Language code of the text read, as in the form's texts."
    )
    talked = models.BooleanField(
        default=False, help_text="Whether they said that they had talked to someone about the decision first."
    )
    recorded_by = actor(null=True, blank=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("consent event")
        verbose_name_plural = _("consent events")
        indexes = [
            # The index includes all columns that determine participation, so that PostgreSQL need not read the rows.
            models.Index(
                fields=["holder", "-sequence"],
                include=["study", "kind", "level", "form", "policy", "recorded_at", "answered_by", "renew_by"],
                name="consent_event_last",
            ),
            models.Index(fields=["renew_by"], condition=Q(renew_by__isnull=False), name="consent_event_renew_by"),
        ]
        constraints = [
            *StudyChained.Meta.constraints,
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
                condition=Q(epsilon_before=None) | Q(kind__in=["given", "changed"], epsilon_before__gt=0),
                name="consent_event_gives_up_a_promise_with_another",
            ),
            models.CheckConstraint(
                condition=Q(answered_by__in=Answerer.values), name="consent_event_says_who_answered"
            ),
            models.CheckConstraint(
                condition=Q(authority="", statement="")
                | (Q(authority__in=Authority.values, answered_by__in=["guardian", "proxy"]) & ~Q(statement="")),
                name="consent_event_authority_is_declared_in_words",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.level}".strip()

    @property
    def grants(self) -> bool:
        """Whether the holder takes part after this event."""
        return self.kind in (self.Kind.GIVEN, self.Kind.CHANGED)


class DecisionCount(models.Model):
    """Counts of a study's holders by last decision, from events up to ``sequence``; see :mod:`consent.people.counts`.

    The row can be recomputed from the consent events and may be deleted at any time.
    """

    study = models.OneToOneField(Study, on_delete=models.CASCADE, primary_key=True, related_name="+")
    sequence = models.PositiveBigIntegerField()
    counts = models.JSONField(help_text="Number of holders by kind, level, form and end date of their decision.")

    class Meta:
        verbose_name = _("decision count")
        verbose_name_plural = _("decision counts")

    def __str__(self) -> str:
        return f"decisions up to {self.sequence}"


class LevelAccess(StudyChained):
    """Access of a staff member to one holder's choice, with the reason."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="level_accesses")
    holder = models.ForeignKey(DataHolder, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500)
    seen_by = actor()
    seen_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("look-up of a data holder's choice")
        verbose_name_plural = _("look-ups of data holders' choices")

    def __str__(self) -> str:
        return f"{self.seen_by_id} at {self.seen_at:%Y-%m-%d %H:%M}"
