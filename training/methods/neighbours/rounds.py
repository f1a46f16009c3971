"""Questions of rounds of votes, as they are kept."""

from functools import lru_cache

from common.artifacts import arrays_load
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.mechanisms.neighbours.question import VotesQuestion
from training.models import Round


def question_load(opened_round: Round) -> VotesQuestion:
    """Question of a round."""
    return _question(opened_round.pk, opened_round.artifact)


# Files of rounds never change under one name.
@lru_cache(maxsize=2)
def _question(round_id: int, artifact: str) -> VotesQuestion:
    opened_round = Round.objects.select_related("run__public_dataset").get(pk=round_id)
    return VotesQuestion.from_arrays(
        arrays_load(artifact),
        sigma=opened_round.sigma,
        radius_share=opened_round.radius_share,
        kernel=NeighbourChoices.from_json(opened_round.run.choices).kernel,
        outcome=opened_round.run.learns,
        index=opened_round.index,
        promises=len(opened_round.run.plan["budgets"]),
    )
