"""Registry of uses and results: `training` registers functions that report them, because consent cannot import it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils.formats import date_format, number_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from consent.models import DataHolder, Study
from consent.promises.odds import right_guesses_at, right_record_guesses_at


@dataclass(frozen=True)
class Cost:
    """Bounds on the right guesses in 100 about whether a holder took part, before and after a run."""

    before: int
    after: int


@dataclass(frozen=True)
class Use:
    """A use of a holder's data, in plain words.

    Attributes:
        key: key of the run.
        purpose: purpose of the run, in the study's words; may be empty.
        state: progress of the run, in a sentence.
        since: when the run began to use the holder's data.
        cost: upper bounds on the run's cost to the holder.
    """

    key: str
    purpose: str
    state: str
    since: datetime
    cost: Cost | None = None


@dataclass(frozen=True)
class Usage:
    """All uses of a holder's data, with a bound on their total cost.

    Attributes:
        uses: newest first.
        mu_squared: upper bound on the cost of all releases so far to the holder, in the μ² of Gaussian differential
            privacy. The bound is public; the actual cost is secret, even from the holder.
        records: function that returns the holder's own records by dataset.
        is_full: whether the site's ceiling leaves nothing for this study, given the largest possible charges of the
            person's other studies. This depends only on links to accounts and on public numbers.
    """

    uses: list[Use] = field(default_factory=list)
    mu_squared: float = 0.0
    records: Callable[[], dict[str, Any]] = dict
    is_full: bool = False

    @property
    def right_guesses(self) -> int:
        """Largest number of right guesses in 100 about whether the holder took part."""
        return right_guesses_at(math.sqrt(self.mu_squared))

    @property
    def right_record_guesses(self) -> int:
        """Largest number of right guesses in 100 about which of two possible sets of records is the holder's."""
        return right_record_guesses_at(math.sqrt(self.mu_squared))


def right_guesses_together(usages: Iterable[Usage]) -> int:
    """Return the largest number of right guesses in 100 from all releases of a person's studies, adding up their μ²."""
    return right_guesses_at(math.sqrt(sum(usage.mu_squared for usage in usages)))


@dataclass(frozen=True)
class Result:
    """Published model or table of a study. Everything here is public.

    Attributes:
        key: key of the run.
        title: title of the run.
        purpose: purpose of the run, in the study's words; may be empty.
        classes: the classes that the model distinguishes.
        outcome: kind of outcome that the model learned: "classes", "numbers", "times" or "labels".
        published_at: when a model of the run, or its table, was first published.
        cells: number of counts in a table; 0 for anything else.
        rows: number of synthetic rows; 0 for anything else.
        changed_at: when another version replaced the first; None if none did.
        right: right answers in 100 on the test records; None if it was not tested.
        points: number of test records.
        commonest: right answers in 100 from always giving the most common answer.
        balanced: right answers in 100 if all answers were equally common; None if answers are not balanced.
        chance: the same for a model that always gives one answer.
        worth: quality for outcomes other than classes: R² for numbers, concordance for times, mean area under the curve
            for labels.
        stage: intended use of the model, in words.
        in_use_since: when it was put into production; None if it never was.
        downloaders: number of people and programs that downloaded it or asked it for predictions.
        predictions: number of records for which this site was asked for a prediction.
        withdrawn_at: when it was withdrawn; None if it is still published.
        reason: why it was withdrawn.
    """

    key: str
    title: str
    purpose: str
    classes: list[str]
    published_at: datetime
    outcome: str = "classes"
    cells: int = 0
    rows: int = 0
    changed_at: datetime | None = None
    right: int | None = None
    points: int = 0
    commonest: int | None = None
    balanced: int | None = None
    chance: int | None = None
    worth: float | None = None
    stage: str = ""
    in_use_since: datetime | None = None
    downloaders: int = 0
    predictions: int = 0
    withdrawn_at: datetime | None = None
    reason: str = ""

    @property
    def predicts(self) -> str:
        """Return a sentence that describes the model's predictions or the table's content."""
        if self.cells:
            return _("The table contains %(number)s counts of people, with random noise added to each.") % {
                "number": number_format(self.cells, force_grouping=True)
            }
        if self.rows:
            return _("The table contains %(number)s made-up people, based on counts with random noise.") % {
                "number": number_format(self.rows, force_grouping=True)
            }
        match self.outcome:
            case "numbers":
                return _(
                    "For a new record, the model estimates a number and a range that probably contains the true number."
                )
            case "times":
                return _(
                    "For a new record, the model estimates how likely it is that an event will not have happened by "
                    "a given time."
                )
            case "labels":
                return _(
                    "The model answers several yes/no questions about a new record and gives the probability of a "
                    "yes for each."
                )
        if len(self.classes) > _MOST_CLASSES:
            return _("The model says which of %(number)d answers fits a new record best.") % {
                "number": len(self.classes)
            }
        return _("The model says which of these fits a new record best: %(answers)s.") % {
            "answers": ", ".join(self.classes)
        }

    @property
    def quality(self) -> str:
        """Return a sentence on the quality of the model or table."""
        if self.cells:
            return _("Each count comes with a range that contains the true number in about 95 of 100 cases.")
        if self.rows:
            return _("No row is a real person's record. As a whole, the table resembles the people in the study.")
        if self.worth is not None:
            return self._worth
        if self.right is None or self.commonest is None:
            return _("No one has tested how often the model is right.")
        points = number_format(self.points, force_grouping=True)
        values = {"right": self.right, "commonest": self.commonest, "points": points}
        text = (
            _(
                "The model is right in about %(right)d of 100 cases, measured on %(points)s test records. Always "
                "giving the most common answer would be right in %(commonest)d of 100."
            )
            % values
        )
        if self.balanced is None:
            return text
        balanced = _(
            "The model was made to find rare answers more often. If all answers were equally common, it would be "
            "right in about %(balanced)d of 100 cases. Always giving the same answer would be right in %(chance)d of "
            "100."
        ) % {"balanced": self.balanced, "chance": self.chance}
        return f"{text} {balanced}"

    @property
    def _worth(self) -> str:
        """Return a sentence on the quality of a model whose outcome is not classes."""
        worth = self.worth or 0.0
        values = {"points": number_format(self.points, force_grouping=True), "number": round(100 * max(worth, 0.0))}
        match self.outcome:
            case "numbers":
                text = _(
                    "Measured on %(points)s test records, the model explains about %(number)d %% of the differences "
                    "between the numbers. Always giving the average would explain 0 %%."
                )
            case "times":
                text = _(
                    "Measured on %(points)s test records: given two people, the model correctly predicts who "
                    "experiences the event first in about %(number)d of 100 cases. Guessing would be right in 50."
                )
            case _:
                text = _(
                    "Measured on %(points)s test records: given two records with different answers, the model "
                    "correctly identifies the one whose answer is yes in about %(number)d of 100 cases. Guessing "
                    "would be right in 50."
                )
        return text % values

    @property
    def use(self) -> list[str]:
        """Return sentences on the known use of the model or table."""
        if self.cells or self.rows:
            return [self._taken]
        if self.in_use_since is not None:
            sentences = [_("The model has been in use since %(day)s.") % {"day": _day(self.in_use_since)}]
        else:
            sentences = [_("The study has not put the model into use (stage: %(stage)s).") % {"stage": self.stage}]
        if self.downloaders:
            sentences.append(
                ngettext(
                    "%(number)d person or program has downloaded the model or asked it for predictions.",
                    "%(number)d people and programs have downloaded the model or asked it for predictions.",
                    self.downloaders,
                )
                % {"number": self.downloaders}
            )
        else:
            sentences.append(_("No one has downloaded the model or asked it for predictions yet."))
        if self.predictions:
            sentences.append(
                ngettext(
                    "This site has used the model to make a prediction for %(number)s record.",
                    "This site has used the model to make predictions for %(number)s records.",
                    self.predictions,
                )
                % {"number": number_format(self.predictions, force_grouping=True)}
            )
        return sentences

    @property
    def _taken(self) -> str:
        """Return a sentence with the number of people and programs that have downloaded the table."""
        if not self.downloaders:
            return _("No one has downloaded the table yet.")
        return ngettext(
            "%(number)d person or program has downloaded the table.",
            "%(number)d people and programs have downloaded the table.",
            self.downloaders,
        ) % {"number": self.downloaders}

    @property
    def moment(self) -> str:
        """Return one or two sentences on the time of publication and any later change or withdrawal."""
        sentences = [_("Published on %(day)s.") % {"day": _day(self.published_at)}]
        if self.changed_at is not None:
            sentences.append(_("It was replaced by another version on %(day)s.") % {"day": _day(self.changed_at)})
        if self.withdrawn_at is not None:
            day = {"day": _day(self.withdrawn_at), "reason": self.reason}
            sentences.append(_("It was withdrawn on %(day)s and is no longer available: %(reason)s") % day)
        return " ".join(sentences)

    @property
    def sentences(self) -> list[str]:
        """All public sentences about the result, for emails and letters; if it was withdrawn, only that fact."""
        sentences = [f"{self.title}." if not self.purpose else f"{self.title}: {self.purpose}", self.moment]
        return sentences if self.withdrawn_at is not None else [*sentences, self.predicts, self.quality, *self.use]


#: Largest number of answers that are listed by name.
_MOST_CLASSES = 6


def _day(moment: datetime) -> str:
    return date_format(localtime(moment), "DATE_FORMAT")


@dataclass(frozen=True)
class Entry:
    """Entry of a holder's timeline: a run that used their records, a publication of a run, or both."""

    use: Use | None
    result: Result | None

    @property
    def moment(self) -> datetime:
        """Time for sorting the entry: the first use of the records, or the publication."""
        if self.use:
            return self.use.since
        assert self.result is not None, "an entry describes a use or a result"
        return self.result.published_at

    @property
    def purpose(self) -> str:
        """Return the run's purpose in the study's words; empty if there is none."""
        run = self.result or self.use
        return run.purpose if run else ""

    @property
    def cost(self) -> Cost | None:
        """Return upper bounds on the run's cost to the holder; None if it did not use their records."""
        return self.use.cost if self.use else None


def timeline(uses: Iterable[Use], results: Iterable[Result]) -> list[Entry]:
    """Return uses and published results of a study in one list, newest first. A run's use and result are one entry."""
    published = {result.key: result for result in results}
    entries = [Entry(use, published.pop(use.key, None)) for use in uses]
    entries += [Entry(None, result) for result in published.values()]
    return sorted(entries, key=lambda entry: entry.moment, reverse=True)


_usage: list[Callable[[DataHolder], Usage]] = []
_results: list[Callable[[Study], list[Result]]] = []


def providers_register(usage: Callable[[DataHolder], Usage], results: Callable[[Study], list[Result]]) -> None:
    """Register the providers of usage and of results. Called once, at start-up."""
    _usage[:], _results[:] = [usage], [results]


def usage_of(holder: DataHolder) -> Usage:
    """Return the usage of a holder's data so far; empty if no provider is registered."""
    return _usage[0](holder) if _usage else Usage()


def results_of(study: Study) -> list[Result]:
    """Return the published models and tables of a study, newest first; empty if no provider is registered."""
    return _results[0](study) if _results else []
