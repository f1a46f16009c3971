"""Gradients of every holder, as the engine asks them."""

from django.utils.translation import gettext_noop

from accounting.models import Release
from learning.mechanisms.steps.question import StepsQuestion
from training.engine.questions import Questions
from training.methods.steps.opening import round_open
from training.methods.steps.rounds import question_load
from training.models import Round, Run


class Gradients(Questions):
    """See :class:`training.engine.questions.Questions`."""

    #: A step takes less time than a task; only where there are very many people does another worker help.
    shard = 200_000
    release_kind = Release.Kind.STEPS.value
    died = gettext_noop(
        "Workers died again and again over the gradients of the same holders; most likely their memory did not "
        "suffice. Propose the run anew with a representation of fewer numbers, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def question(self, opened_round: Round) -> StepsQuestion:
        return question_load(opened_round)

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.STEPS
