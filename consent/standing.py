"""Standing of a holder at this moment: one answer, in one wording, for every page, receipt and list."""

from dataclasses import dataclass, field
from datetime import date, timedelta

from django.conf import settings
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from consent.circumstances import Answering, Lapse, answering_for, last_day
from consent.differences import Line, line_differences, sentence_differences
from consent.models import ConsentEvent, ConsentForm, DataHolder, Renewal
from consent.selectors import consent_current, lapse_of

#: So long before a consent ends people are reminded, and asked to decide again.
REMINDED = timedelta(days=30)


@dataclass(frozen=True)
class Standing:
    """Last decision about a holder's records, and whether it counts.

    Attributes:
        current: the last decision; None before the first.
        lapse: why a consent does not count; None where it counts, or none was given.
        renewal: newer form that asks everybody again; None where there is none.
        answering: who answers for the holder.
    """

    current: ConsentEvent | None = None
    lapse: Lapse | None = None
    renewal: ConsentForm | None = None
    answering: Answering = field(default_factory=Answering)

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
        """Last day on which the consent counts by the form that was answered; None where it counts for good."""
        return last_day(self.current) if self.current is not None and self.grants else None

    @property
    def asks(self) -> bool:
        """Whether another decision is asked for: by a new form, a lapse, or an end that is near."""
        if self.lapse is not None:
            return self.answering.consents
        ends = self.current.renew_by if self.current is not None and self.counts else None
        return self.renewal is not None or (ends is not None and ends - REMINDED <= timezone.now())

    def __str__(self) -> str:
        """One or two sentences to the holder: what stands, and what to do where something is asked of them."""
        if self.current is None:
            return _("You have not decided yet. Until you do, your records are not used.")
        if self.current.kind == ConsentEvent.Kind.WITHDRAWN:
            return _("You withdrew. Your records are not used any more.")
        if not self.grants:
            return _("You do not take part. Your records are not used.")
        if self.lapse is not None:
            return self._lapsed(self.lapse)
        told = [_("You take part: %(level)s.") % {"level": self.current.get_level_display()}]
        if self.renewal is not None:
            told += [_("There is new information. Please read it and decide again. Until then your decision stands.")]
        if self.last_day is not None:
            day = {"date": date_format(self.last_day, "DATE_FORMAT")}
            told += [_("Your consent counts up to %(date)s, and with that day.") % day]
            if self.asks and self.renewal is None:
                told += [_("Decide again before then if it is to go on.")]
        return " ".join(told)

    def _lapsed(self, lapse: Lapse) -> str:
        assert self.current is not None, "what has lapsed was decided"
        told = {"level": self.current.get_level_display()}
        if lapse == Lapse.DEATH:
            return _("The records are not used any more: it is on record that this person has died.")
        if lapse == Lapse.INCAPACITY:
            return _("Your records are not used now: it is on record that you cannot decide at present.")
        if lapse == Lapse.EXPIRED:
            told["date"] = date_format(self.last_day or timezone.localdate(), "DATE_FORMAT")
            reason = _("Your records are not used now. Your consent (%(level)s) ended with %(date)s.") % told
        elif lapse == Lapse.ANSWERER:
            reason = _("Your records are not used now. The consent was given when somebody else decided.")
        else:
            reason = _("Your records are not used now. You agreed (%(level)s), but there is new information since.")
            reason %= told
        return f"{reason} {_('Read it and decide again.')}"

    def changes(self, language: str) -> list[Line]:
        """Lines in which the form that is to be answered differs from the version agreed to, validity included.

        In ``language``, or in the site's first where one of the two has no such text.
        """
        if self.renewal is None or self.current is None or self.current.form is None:
            return []
        agreed, asked = self.current.form.texts, self.renewal.texts
        spoken = language if language in agreed and language in asked else settings.LANGUAGE_CODE
        changed = [line for line in line_differences(agreed[spoken], asked[spoken]) if line.change != "same"]
        before, now = (
            " ".join(render_to_string("consent/validity.html", {"form": form}).split())
            for form in (self.current.form, self.renewal)
        )
        return [*sentence_differences(before, now), *changed]


def standing(holder: DataHolder) -> Standing:
    """Standing of the holder now."""
    current, answers = consent_current(holder), answering_for(holder)
    if current is None or not current.grants or current.form is None:
        return Standing(current, answering=answers)
    later = list(ConsentForm.objects.filter(study_id=holder.study_id, version__gt=current.form.version))
    asked = any(form.renewal != Renewal.NOT_ASKED for form in later)
    return Standing(current, lapse_of(current), later[0] if asked else None, answers)
