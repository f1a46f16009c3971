"""Current state of a holder, described in the same words on every page, receipt and list.

A comparison shows the odds of a holder's promise next to the odds of the promise for an answer given now.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta

from django.conf import settings
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.timezone import localtime

from common.templatetags.components import component_render
from consent.forms import Option, level_option
from consent.models import (
    ConsentEvent,
    ConsentForm,
    ConsentFormProposal,
    DataHolder,
    EpsilonPolicy,
    Level,
    Renewal,
    Study,
)
from consent.people.circumstances import REMINDED, Answering, Lapse, answering_for, is_valid_after, last_day
from consent.selectors import (
    LastPromise,
    consent_current,
    consent_form_in_force,
    forms_waiting,
    lapse_of,
    policy_in_force,
    promise_last,
    promises_possible,
)
from consent.wording.facts import fact_differences, study_of_form
from consent.wording.rendering import DiffLine, line_differences, sentence_differences
from consent.wording.third_person import gettext as _


@dataclass(frozen=True)
class ComparisonColumn:
    """Column of a comparison: a time, and the level and its odds at that time."""

    heading: str
    option: Option


def times_words(right: int) -> str:
    """Return in words the largest number of right guesses in 100."""
    return _("nearly always") if right == 100 else _("at most %(right)d times in 100") % {"right": right}


def odds_words(option: Option) -> str:
    """Return in words the largest number of right guesses in 100 about whether the person took part."""
    return times_words(option.right_guesses)


def record_odds_words(option: Option) -> str:
    """Return in words the largest number of right guesses in 100 about which of two records is the person's."""
    return times_words(option.right_record_guesses)


def promise_of(last: LastPromise) -> Option:
    """Return the holder's current promise, as an `Option`."""
    return level_option(last.level, last.epsilon, last.event.study.delta)


def offer_of(last: LastPromise) -> Option:
    """Return the promise that the same level would give if the holder decided now, as an `Option`."""
    return level_option(last.level, last.offered, last.event.study.delta)


def agreement_of(last: LastPromise) -> Option:
    """Return the promise as it was when the consent was given, as an `Option`."""
    return level_option(last.level, last.agreed, last.event.study.delta)


def columns_since(last: LastPromise) -> list[ComparisonColumn]:
    """Return the promise when the holder decided, today's promise if stronger, and the promise of a new decision."""
    day = date_format(localtime(last.event.recorded_at), "DATE_FORMAT")
    columns = [ComparisonColumn(_("Before: when you decided (%(day)s)") % {"day": day}, agreement_of(last))]
    if last.agreed != last.epsilon != last.offered:
        columns.append(ComparisonColumn(_("Your promise today"), promise_of(last)))
    columns.append(ComparisonColumn(_("Now: if you decide today"), offer_of(last)))
    return columns


def columns_of_answer(last: LastPromise, answer: Option) -> list[ComparisonColumn]:
    """Return the holder's current promise, and the promise that their answer would give them."""
    return [
        ComparisonColumn(_("Before: your promise"), promise_of(last)),
        ComparisonColumn(_("Now: your answer"), answer),
    ]


@dataclass(frozen=True)
class LevelChange:
    """Meaning of a study's level for people who agreed earlier and for people who agree now.

    ``before`` has an option for each ε that people who agreed earlier can have, smallest first.
    """

    level: Level
    before: list[Option]
    now: Option

    @property
    def words(self) -> str:
        """Return an email's line on the change in right guesses about whether someone took part."""
        return self._line(odds_words)

    @property
    def record_words(self) -> str:
        """Return an email's line on the change in right guesses about which of two sets of records is a person's."""
        return self._line(record_odds_words)

    def _line(self, odds: Callable[[Option], str]) -> str:
        words = {"level": self.level.label, "before": ", ".join(map(odds, self.before)), "now": odds(self.now)}
        return _("%(level)s: before %(before)s, now %(now)s") % words


def level_changes(study: Study, policy: EpsilonPolicy | None = None) -> list[LevelChange]:
    """Return levels whose meaning differs for people who agreed earlier. These are public, as only policies matter.

    Args:
        policy: an approved policy, to be compared with all earlier promises. By default, the policy in force is
            compared with the promises that holders can have now.
    """
    now, before = policy or policy_in_force(study), None
    if now is None:
        return []
    if policy is not None:
        before = policy.approval.effective_from - timedelta(microseconds=1)
    earlier = promises_possible(study, before)
    changes = []
    for level in Level:
        epsilon = now.epsilon(level)
        others = [each.epsilon for each in earlier if each.level == level and each.epsilon != epsilon]
        if others:
            options = [level_option(level, other, study.delta) for other in others]
            changes.append(LevelChange(level, options, level_option(level, epsilon, study.delta)))
    return changes


@dataclass(frozen=True)
class HolderStatus:
    """Last decision about a holder's records, and whether it is valid.

    Attributes:
        current: the last decision; None before the first.
        lapse: why a consent is not valid; None if it is valid or if none was given.
        renewal: newer form that everyone has to answer; None if there is none.
        answering: who answers for the holder.
        promise: promise of the last consent, if one was given.
        is_renewed: whether the form in force or the meaning of a level differs from what the person agreed to.
        is_closed: whether the study is closed, so that no decision is requested.
        ends_with_form: whether a new consent given today would end no later than this one, because the form in force is
            valid until a fixed day. If this consent is no longer valid, a new one would not be valid either.
    """

    current: ConsentEvent | None = None
    lapse: Lapse | None = None
    renewal: ConsentForm | None = None
    answering: Answering = field(default_factory=Answering)
    promise: LastPromise | None = None
    is_renewed: bool = False
    is_closed: bool = False
    ends_with_form: bool = False

    @property
    def columns(self) -> list[ComparisonColumn]:
        """Return the protection before and now, if the person agreed to something other than the current offer."""
        return columns_since(self.promise) if self.promise is not None and self.is_renewed else []

    @property
    def grants(self) -> bool:
        """Whether the last decision was to take part."""
        return self.current is not None and self.current.grants

    @property
    def counts(self) -> bool:
        """Whether the holder takes part now, so that their records may be used."""
        return self.grants and self.lapse is None

    @property
    def last_day(self) -> date | None:
        """Last day on which the consent is valid according to the answered form; None if it does not expire."""
        return last_day(self.current) if self.current is not None and self.grants else None

    @property
    def needs_decision(self) -> bool:
        """Whether another decision is requested, because of a new form, a lapse, or an approaching end."""
        if self.is_closed:
            return False
        if self.lapse is not None:
            return self.answering.consents and not self.ends_with_form
        ends = self.current.renew_by if self.current is not None and self.counts else None
        is_near = ends is not None and ends - REMINDED <= timezone.now()
        return self.renewal is not None or (is_near and not self.ends_with_form)

    def __str__(self) -> str:
        return " ".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """Sentences for the holder: the current state first, then anything they need to do."""
        if self.current is None and self.is_closed:
            return [_("You have not decided. Your records are not used.")]
        if self.current is None:
            return [_("You have not decided yet. Until you do, your records will not be used.")]
        if self.current.kind == ConsentEvent.Kind.WITHDRAWN:
            return [_("You withdrew. Your records are no longer used.")]
        if not self.grants:
            return [_("You do not take part. Your records are not used.")]
        if self.lapse is not None:
            return self._lapsed(self.lapse)
        sentences = [_("You take part: %(level)s.") % {"level": self.current.get_level_display()}, *self._promised()]
        if self.renewal is not None:
            sentences += [
                _("There is new information. Please read it and decide again. Until then your decision remains valid.")
            ]
        if self.last_day is not None:
            day = {"date": date_format(self.last_day, "DATE_FORMAT")}
            sentences += [_("Your consent is valid until the end of %(date)s.") % day]
            if self.needs_decision and self.renewal is None:
                sentences += [_("Decide again before then if you want to continue.")]
        return sentences

    @property
    def status(self) -> str:
        """The sentences without the promise, for pages that show the promise in a separate table."""
        promise_sentences = self._promised()
        return " ".join(sentence for sentence in self.sentences if sentence not in promise_sentences)

    def _lapsed(self, lapse: Lapse) -> list[str]:
        assert self.current is not None, "only a decision can lapse"
        values = {"level": self.current.get_level_display()}
        if lapse == Lapse.DEATH:
            return [_("The records are no longer used, because we have recorded that this person has died.")]
        if lapse == Lapse.INCAPACITY:
            return [
                _(
                    "Your records are not used at present, because we have noted that you are unable to make "
                    "this decision yourself."
                )
            ]
        if lapse == Lapse.EXPIRED:
            values["date"] = date_format(self.last_day or timezone.localdate(), "DATE_FORMAT")
            reason = _("Your records are not used at present. Your consent (%(level)s) ended on %(date)s.") % values
        elif lapse == Lapse.ANSWERER:
            reason = _(
                "Your records are not used at present. The consent was given by someone who no longer decides for you."
            )
        else:
            reason = _(
                "Your records are not used at present. You agreed (%(level)s), but there has been new information "
                "since then."
            )
            reason %= values
        if self.is_closed:
            return [reason, *self._promised()]
        if self.ends_with_form:
            return [reason, _("You can decide again when there is new information."), *self._promised()]
        return [reason, _("Read the new information and decide again."), *self._promised()]

    def _promised(self) -> list[str]:
        """Return sentences on the promise to the holder and, if it differs, on the current meaning of their level."""
        last = self.promise
        if last is None or last.agreed == last.epsilon == last.offered:
            return []
        values = {
            "before": odds_words(agreement_of(last)),
            "promise": odds_words(promise_of(last)),
            "now": odds_words(offer_of(last)),
        }
        if last.agreed > last.epsilon:
            sentences = [
                _(
                    "Your protection is stronger than when you decided: a guess can now be right %(promise)s. "
                    "Before, it could be right %(before)s."
                )
            ]
        else:
            sentences = [_("We promised you that a guess can be right %(promise)s.")]
        if last.can_be_kept and not self.is_closed:
            stands = _(
                "This promise remains valid. For people who choose this level now, a guess can be right %(now)s."
            )
            sentences += [
                stands
                if self.counts
                else _("At this level, a guess can now be right %(now)s. You can keep what you were promised.")
            ]
        return [sentence % values for sentence in sentences]

    def changes(self, language: str) -> list[DiffLine]:
        """Return the lines that differ between the form to answer and the version that the holder agreed to.

        Facts come first, then any change in how long the consent is valid, then the text in ``language``, or in the
        site's first language if either version lacks a text in ``language``.
        """
        if self.renewal is None or self.current is None or self.current.form is None:
            return []
        agreement_of, proposed = self.current.form.texts, self.renewal.texts
        spoken = language if language in agreement_of and language in proposed else settings.LANGUAGE_CODE
        changed = [line for line in line_differences(agreement_of[spoken], proposed[spoken]) if line.change != "same"]
        before, now = (
            " ".join(component_render("validity", form=form).split()) for form in (self.current.form, self.renewal)
        )
        differences = fact_differences(
            *(study_of_form(form, self.current.study) for form in (self.current.form, self.renewal))
        )
        return [*differences, *sentence_differences(before, now), *changed]


@dataclass(frozen=True)
class Announced:
    """Small correction that is announced but not in force yet, with the lines that differ."""

    proposal: ConsentFormProposal
    lines: list[DiffLine]


def next_correction(study: Study, language: str) -> Announced | None:
    """Return the next small correction that comes into force unless the committee objects, or None."""
    proposal = min(
        (each for each in forms_waiting(study) if each.is_correction),
        key=lambda each: (each.objection_until, each.sequence),
        default=None,
    )
    latest = consent_form_in_force(study)
    if proposal is None or latest is None or study.is_closed:
        return None
    spoken = language if language in latest.texts else settings.LANGUAGE_CODE
    lines = line_differences(latest.texts[spoken], proposal.texts[spoken])
    return Announced(proposal, [line for line in lines if line.change != "same"])


def holder_status(holder: DataHolder) -> HolderStatus:
    """Return the current status of the holder. A closed study never requests a decision."""
    current, answers, closed = consent_current(holder), answering_for(holder), holder.study.is_closed
    last, in_force = promise_last(holder), consent_form_in_force(holder.study) if holder.pk else None
    renewed = (not closed and last is not None) and (
        (in_force is not None and last.event.form_id != in_force.pk) or not last.agreed == last.epsilon == last.offered
    )
    if current is None or not current.grants or current.form is None:
        return HolderStatus(current, answering=answers, promise=last, is_renewed=renewed, is_closed=closed)
    later = list(ConsentForm.objects.filter(study_id=holder.study_id, version__gt=current.form.version))
    renews = not closed and any(form.renewal != Renewal.NOT_ASKED for form in later)
    lapse = lapse_of(current)
    outlasted = timezone.now() if lapse is not None else current.renew_by
    ends = outlasted is not None and not is_valid_after(in_force, outlasted)
    return HolderStatus(current, lapse, later[0] if renews else None, answers, last, renewed, closed, ends)
