"""Gradients of every holder, as the engine asks them; counts before them where there are no public points."""

from django.utils.translation import gettext_noop

from accounting.models import Release
from learning.mechanisms.counts.question import CountsQuestion
from learning.mechanisms.steps.question import StepsQuestion
from training.engine.questions import Questions
from training.methods.steps.opening import round_open
from training.methods.steps.rounds import is_counts, question_load
from training.methods.synthesis.rounds import MarginalCells
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

    def __init__(self) -> None:
        self._counts = MarginalCells()

    def kind_of(self, opened_round: Round) -> str:
        return self._counts.release_kind if is_counts(opened_round) else self.release_kind

    def shard_of(self, opened_round: Round) -> int:
        return self._counts.shard if is_counts(opened_round) else self.shard

    def round_open(self, run: Run) -> Round:
        return self._counts.round_open(run) if is_counts(Round(run=run, index=run.rounds.count())) else round_open(run)

    def question(self, opened_round: Round) -> StepsQuestion | CountsQuestion:
        return self._counts.question(opened_round) if is_counts(opened_round) else question_load(opened_round)

    def stop_reason(self, run: Run) -> str:
        return Run.StopReason.STEPS
