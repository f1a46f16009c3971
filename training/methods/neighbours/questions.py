"""Votes of every holder on public points, as the engine asks them."""

from django.utils.translation import gettext_noop

from accounting.models import Release
from learning.mechanisms.neighbours.question import VotesQuestion
from training.engine.questions import Questions
from training.methods.neighbours.opening import round_open
from training.methods.neighbours.rounds import question_load
from training.models import Round, Run


class Votes(Questions):
    """See :class:`training.engine.questions.Questions`."""

    shard = 10_000
    release_kind = Release.Kind.COUNTS.value
    died = gettext_noop(
        "Workers died again and again while they asked the same holders; most likely their memory did not suffice. "
        "Propose the run anew with smaller batches, or give the workers more memory."
    )

    def round_open(self, run: Run) -> Round:
        return round_open(run)

    def question(self, opened_round: Round) -> VotesQuestion:
        return question_load(opened_round)

    def stop_reason(self, run: Run) -> str:
        wants_fewer_labels = run.wanted_labels is not None and run.position < run.public_points.rows
        return Run.StopReason.ENOUGH if wants_fewer_labels else Run.StopReason.USED_UP
