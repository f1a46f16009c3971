"""Answers that all variants of private gradient steps have in common."""

from abc import ABC, abstractmethod
from typing import ClassVar

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from common.sentences import Sentence
from training.engine.asking import Asking
from training.methods.base import Tile, Wrong
from training.models import Run


class GradientSteps(ABC):
    """A method whose rounds are steps, and which releases no labels.

    See :class:`training.methods.base.RunMethod`.
    """

    name = Run.Method.SGD.value
    batch_label = gettext_noop("Steps in a chunk")
    curves_told = ""
    releases_labels = False
    asking: ClassVar[Asking]

    def check(self, run: Run, wrong: Wrong) -> None:
        if run.wanted_labels is not None:
            wrong("wanted_labels", _("Nobody is asked for labels where the model learns by gradient steps."))
        self.check_choices(run, wrong)

    @abstractmethod
    def check_choices(self, run: Run, wrong: Wrong) -> None:
        """Note what is wrong with the variant's own fields of a proposal."""

    def facts(self, run: Run) -> list[tuple[str, list[Sentence]]]:
        return []

    def counted(self, run: Run) -> Sentence:
        return Sentence(
            gettext_noop("The most that anybody of a level can have been charged, in Gaussian differential privacy.")
        )

    def tiles(self, run: Run) -> list[Tile]:
        of_all = Sentence(gettext_noop("of %(steps)s"), steps=self.size(run))
        return [(gettext_noop("Gradient steps taken"), run.position, of_all)]

    def may_go_on(self, run: Run) -> bool:
        return self.asking.may_go_on(run)

    def round_sizes(self, run: Run) -> list[int]:
        return [each["plan"]["steps"] for each in run.plan.get("rounds", [])]

    def size(self, run: Run) -> int:
        return sum(self.round_sizes(run))

    def stages(self, run: Run) -> list[tuple[str, float]]:
        return [(Run.Status.LEARNING, run.position / max(self.size(run), 1))]

    def leads(self, run: Run) -> list[list[float]]:
        return []
