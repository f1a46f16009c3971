"""Answers that all variants of private gradient steps have in common."""

from abc import abstractmethod

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from common.sentences import Sentence
from learning.mechanisms.counts.question import CountsQuestion
from learning.mechanisms.steps.choices import StepChoices
from learning.mechanisms.synthesis.planner import is_counted
from learning.outcomes import KINDS
from training.methods.base import Tile, Wrong
from training.methods.counted import rounds_of_counts
from training.methods.engine import EngineMethod
from training.models import Run


def student_refused(chosen: StepChoices, wrong: Wrong) -> None:
    """Note that no student is published of labels that have more combinations than it learns."""
    if chosen.publish == "student":
        wrong(
            "choices.publish",
            _("That is too many labels for a student to learn. Publish the model from the training steps instead."),
        )


def student_without_points_refused(chosen: StepChoices, wrong: Wrong) -> None:
    """Note that without public points no student is published."""
    if chosen.publish == "student":
        wrong("choices.publish", _("A student learns on public points. Name a public dataset, or publish the model."))


class GradientSteps(EngineMethod):
    """A method whose rounds are steps, and which releases no labels.

    See :class:`training.methods.base.RunMethod`.
    """

    name = Run.Method.SGD.value
    batch_label = gettext_noop("Steps in a chunk")
    releases_labels = False
    learns: tuple[str, ...] = KINDS

    def check(self, run: Run, wrong: Wrong) -> None:
        if run.wanted_labels is not None:
            wrong("wanted_labels", _("Nobody is asked for labels where the model learns by gradient steps."))
        self.check_choices(run, wrong)

    @abstractmethod
    def check_choices(self, run: Run, wrong: Wrong) -> None:
        """Note what is wrong with the variant's own fields of a proposal."""

    def tiles(self, run: Run) -> list[Tile]:
        counts = rounds_of_counts(run)
        of_all = Sentence(gettext_noop("of %(steps)s"), steps=self.size(run) - counts)
        return [(gettext_noop("Gradient steps taken"), max(run.position - counts, 0), of_all)]

    def round_sizes(self, run: Run) -> list[int]:
        rounds = run.plan.get("rounds", [])
        return [CountsQuestion.size if is_counted(each) else each["plan"]["steps"] for each in rounds]

    def size(self, run: Run) -> int:
        return sum(self.round_sizes(run))
