"""Protection before and now, side by side in odds: what a holder was promised, and what an answer given now means."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.utils.formats import date_format
from django.utils.timezone import localtime

from consent.forms import Option, level_option
from consent.models import EpsilonPolicy, Level, Study
from consent.selectors import LastPromise, policy_in_force, promises_possible
from consent.wording.third_person import gettext as _


@dataclass(frozen=True)
class Column:
    """Column of a comparison: when, and the level with its odds."""

    heading: str
    option: Option


def times_words(right: int) -> str:
    """Largest number of right guesses in 100, in words."""
    return _("nearly always") if right == 100 else _("at most %(right)d times in 100") % {"right": right}


def odds_words(option: Option) -> str:
    """Largest number of right guesses whether the person took part, in words."""
    return times_words(option.right_guesses)


def record_odds_words(option: Option) -> str:
    """Largest number of right guesses which of two possible records is the person's, in words."""
    return times_words(option.right_record_guesses)


def promise_of(last: LastPromise) -> Option:
    """The promise that a holder has, as an answer."""
    return level_option(last.level, last.epsilon, last.event.study.delta)


def offer_of(last: LastPromise) -> Option:
    """The answer with the same level, given now."""
    return level_option(last.level, last.offered, last.event.study.delta)


def agreement_of(last: LastPromise) -> Option:
    """The promise as it was when the consent was given, as an answer."""
    return level_option(last.level, last.agreed, last.event.study.delta)


def columns_since(last: LastPromise) -> list[Column]:
    """Promise at the holder's decision, today's if a policy has made it stronger, and that of a decision made now."""
    day = date_format(localtime(last.event.recorded_at), "DATE_FORMAT")
    columns = [Column(_("Before: when you decided (%(day)s)") % {"day": day}, agreement_of(last))]
    if last.agreed != last.epsilon != last.offered:
        columns.append(Column(_("Your promise today"), promise_of(last)))
    columns.append(Column(_("Now: if you decide today"), offer_of(last)))
    return columns


def columns_of_answer(last: LastPromise, answer: Option) -> list[Column]:
    """Promise that the holder has, and that of their answer."""
    return [Column(_("Before: your promise"), promise_of(last)), Column(_("Now: your answer"), answer)]


@dataclass(frozen=True)
class LevelChange:
    """Level of a study for people who agreed earlier, smallest ε first, and for people who agree now."""

    level: Level
    before: list[Option]
    now: Option

    @property
    def words(self) -> str:
        """The change as a line of a mail: right guesses whether someone took part."""
        return self._line(odds_words)

    @property
    def record_words(self) -> str:
        """The change as a line of a mail: right guesses about which of two possible sets of records is a person's."""
        return self._line(record_odds_words)

    def _line(self, odds: Callable[[Option], str]) -> str:
        words = {"level": self.level.label, "before": ", ".join(map(odds, self.before)), "now": odds(self.now)}
        return _("%(level)s: before %(before)s, now %(now)s") % words


def level_changes(study: Study, policy: EpsilonPolicy | None = None) -> list[LevelChange]:
    """Levels that mean something else for people who agreed earlier. Public, because only policies determine them.

    Args:
        study: the study.
        policy: an approved policy, which is compared with all promises from before it. By default the one in force,
            which is compared with the promises that holders can have now.
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
