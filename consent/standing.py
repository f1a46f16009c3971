"""Standing of a holder at this moment: one answer, in one wording, for every page, receipt and list."""

from dataclasses import dataclass

from django.conf import settings
from django.utils.translation import gettext as _

from consent.differences import Line, line_differences
from consent.models import ConsentEvent, ConsentForm, DataHolder, Renewal
from consent.selectors import consent_current


@dataclass(frozen=True)
class RenewalAsked:
    """Request to a holder who agreed to an earlier version to read ``form`` and decide again.

    ``counts``: whether their earlier consent counts until they answer.
    """

    form: ConsentForm
    counts: bool


@dataclass(frozen=True)
class Standing:
    """Last decision of a holder, and the open request to decide again; None where there is none."""

    current: ConsentEvent | None
    renewal: RenewalAsked | None

    @property
    def grants(self) -> bool:
        """Whether the last decision was to take part."""
        return self.current is not None and self.current.grants

    @property
    def counts(self) -> bool:
        """Whether the holder takes part now, so that their records may be used."""
        return self.grants and (self.renewal is None or self.renewal.counts)

    def __str__(self) -> str:
        """One or two sentences to the holder: what stands, and what to do where something is asked of them."""
        if self.current is None:
            return _("You have not decided yet. Until you do, your records are not used.")
        if self.current.kind == ConsentEvent.Kind.WITHDRAWN:
            return _("You withdrew. Your records are not used any more.")
        if not self.current.grants:
            return _("You do not take part. Your records are not used.")
        level = {"level": self.current.get_level_display()}
        if not self.counts:
            told = _("Your records are not used now. You agreed (%(level)s), but there is new information since.")
            return " ".join((told % level, _("Read it and decide again.")))
        takes_part = _("You take part: %(level)s.") % level
        if self.renewal is not None:
            asked = _("There is new information. Please read it and decide again. Until then your decision stands.")
            return " ".join((takes_part, asked))
        return takes_part

    def changes(self, language: str) -> list[Line]:
        """Lines in which the form that is to be answered differs from the version that the holder agreed to.

        In ``language``, or in the site's first where one of the two has no such text.
        """
        if self.renewal is None or self.current is None or self.current.form is None:
            return []
        agreed, asked = self.current.form.texts, self.renewal.form.texts
        spoken = language if language in agreed and language in asked else settings.LANGUAGE_CODE
        return [line for line in line_differences(agreed[spoken], asked[spoken]) if line.change != "same"]


def standing(holder: DataHolder) -> Standing:
    """Standing of the holder now."""
    current = consent_current(holder)
    if current is None or not current.grants or current.form is None:
        return Standing(current, None)
    later = list(ConsentForm.objects.filter(study_id=holder.study_id, version__gt=current.form.version))
    decisions = {form.renewal for form in later} - {Renewal.NOT_ASKED}
    asked = RenewalAsked(form=later[0], counts=Renewal.REQUIRED not in decisions) if decisions else None
    return Standing(current, asked)
