"""Questions of rounds of votes, as they are kept."""

from functools import lru_cache

from common.artifacts import arrays_load
from learning.mechanisms.neighbours.choices import NeighbourChoices
from learning.mechanisms.neighbours.question import VotesQuestion
from training.models import Round


def question_load(asked: Round) -> VotesQuestion:
    """Question of a round."""
    return _question(asked.pk, asked.artifact)


# Files of rounds never change under one name.
@lru_cache(maxsize=2)
def _question(round_id: int, artifact: str) -> VotesQuestion:
    asked = Round.objects.select_related("run__public_dataset").get(pk=round_id)
    return VotesQuestion.from_arrays(
        arrays_load(artifact),
        sigma=asked.sigma,
        radius_share=asked.radius_share,
        kernel=NeighbourChoices.from_json(asked.run.choices).kernel,
        n_classes=len(asked.run.classes),
        index=asked.index,
        promises=len(asked.run.plan["budgets"]),
    )
