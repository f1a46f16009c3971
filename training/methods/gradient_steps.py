"""Answers that all variants of private gradient steps have in common."""

from abc import abstractmethod

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from common.sentences import Sentence
from training.methods.asked import AskedMethod
from training.methods.base import Tile, Wrong
from training.models import Run


class GradientSteps(AskedMethod):
    """A method whose rounds are steps, and which releases no labels.

    See :class:`training.methods.base.RunMethod`.
    """

    name = Run.Method.SGD.value
    batch_label = gettext_noop("Steps in a chunk")
    releases_labels = False

    def check(self, run: Run, wrong: Wrong) -> None:
        if run.wanted_labels is not None:
            wrong("wanted_labels", _("Nobody is asked for labels where the model learns by gradient steps."))
        self.check_choices(run, wrong)

    @abstractmethod
    def check_choices(self, run: Run, wrong: Wrong) -> None:
        """Note what is wrong with the variant's own fields of a proposal."""

    def tiles(self, run: Run) -> list[Tile]:
        of_all = Sentence(gettext_noop("of %(steps)s"), steps=self.size(run))
        return [(gettext_noop("Gradient steps taken"), run.position, of_all)]

    def round_sizes(self, run: Run) -> list[int]:
        return [each["plan"]["steps"] for each in run.plan.get("rounds", [])]

    def size(self, run: Run) -> int:
        return sum(self.round_sizes(run))
