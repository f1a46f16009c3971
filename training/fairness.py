"""Accuracy of a student by class beside what is public of the levels, and what may be concluded from that.

Individualized PATE (Boenisch et al., 2023) discusses in sections 6.3 and 7.3 what it means for the accuracy of a class
if its owners choose other levels than the rest. Whether they do is private here: which classes the holders of a level
own is counted by nobody. So both stand beside each other, and nothing is computed across them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.sentences import gettext_noop
from learning.mechanisms.pate import LEFT_OUT
from training.models import Run, StudentModel

READABLE = gettext_noop(
    "What can be read: which classes the student finds less often than others, and whether that may be chance, which "
    "it may where intervals overlap. Where the same student does as badly after learning from true labels, the class "
    "is hard or rare in the public points, and privacy is not the reason."
)
UNREADABLE = gettext_noop(
    "What cannot be read: whether a class is found less often because its owners chose a stricter level. That can be "
    "so: the stricter a level, the less each of its holders' records count. But which classes the holders of a level "
    "own is private and counted by nobody, and no number here depends on it except through what was released with "
    "noise."
)


@dataclass(frozen=True)
class ClassResult:
    """Result of one class on the test data: ``recall`` with its interval; ``reference`` is learned from true labels."""

    name: str
    points: int
    recall: float | None
    interval: tuple[float, float] | None
    reference: float | None


@dataclass(frozen=True)
class LevelShare:
    """Public side of one level: its ε, its head count (noisy, or a public number), its part of all head counts.

    ``used`` is the part of every member's cap that the run has used at most; None in rehearsals.
    """

    level: str
    epsilon: float
    holders: int
    part: float
    used: float | None


@dataclass(frozen=True)
class Fairness:
    """Classes and levels side by side.

    Attributes:
        classes: By recall, the lowest first; those without test points last.
        levels: Strictest first; those that the run left out are not among them.
        is_clear: Whether the intervals of the lowest and the highest recall do not overlap.
        readable: What may be concluded; English, marked for translation.
        unreadable: What may not.
    """

    classes: list[ClassResult]
    levels: list[LevelShare]
    is_clear: bool
    readable: str = READABLE
    unreadable: str = UNREADABLE

    @property
    def lowest(self) -> ClassResult:
        return self.classes[0]

    @property
    def highest(self) -> ClassResult:
        return [each for each in self.classes if each.recall is not None][-1]


def fairness_of(run: Run, student: StudentModel | None) -> Fairness | None:
    """Classes and levels of a run's student; None where no test data tell of at least two classes."""
    if student is None:
        return None
    reference = {each["class"]: each["recall"] for each in (student.reference or {}).get("classes", [])}
    evaluation = student.card.get("evaluation") or {}
    classes = [_class_result(each, reference) for each in evaluation.get("classes", [])]
    known = sorted((each for each in classes if each.recall is not None), key=lambda each: (each.recall, each.name))
    if len(known) < 2:
        return None
    low, high = known[0].interval, known[-1].interval
    return Fairness(
        classes=[*known, *(each for each in classes if each.recall is None)],
        levels=_levels(run),
        is_clear=low is not None and high is not None and low[1] < high[0],
    )


def _class_result(row: Mapping[str, Any], reference: Mapping[str, float | None]) -> ClassResult:
    ends = row.get("interval")
    return ClassResult(
        row["class"], row["points"], row["recall"], (ends[0], ends[1]) if ends else None, reference.get(row["class"])
    )


def _levels(run: Run) -> list[LevelShare]:
    promises = [promise for promise in run.plan.get("promises", []) if promise["group"] != LEFT_OUT]
    together = sum(promise["holders"] for promise in promises)
    return [
        LevelShare(
            level=promise["level"],
            epsilon=promise["epsilon"],
            holders=promise["holders"],
            part=promise["holders"] / together if together else 0.0,
            used=_used(run, promise["group"]),
        )
        for promise in promises
    ]


def _used(run: Run, place: int) -> float | None:
    if run.rehearsal:
        return None
    return (run.spent[place] if run.spent else 0.0) / run.plan["budgets"][place]["cap"]
