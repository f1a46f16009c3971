"""Students of outcomes other than classes: they learn how likely each category is, and say what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from learning.exact_arithmetic import Floats
from learning.learners.learner import Model, Records
from learning.outcomes import Outcome, Target

if TYPE_CHECKING:
    from learning.exports.graph import Graph


class CategoriesModel(Model):
    """A model of the categories of a target, which says what the target's own models say.

    Its file is that of the model; what the target is, the run knows.
    """

    def __init__(self, model: Model, target: Target) -> None:
        super().__init__(len(target.columns), model.shape)
        self.model, self.target, self.chosen = model, target, model.chosen

    def to_bytes(self) -> bytes:
        return self.model.to_bytes()

    def to_graph(self, graph: Graph, records: str) -> str:
        return self.target.shares_to_graph(graph, self.model.to_graph(graph, records))

    def inner_modules(self) -> tuple[Any, ...]:
        return self.model.inner_modules()

    def _probabilities(self, x: Records) -> Floats:
        return self.target.from_shares(self.model.predict_proba(x))


def said(model: Model, outcome: Outcome) -> Model:
    """A student's model as it is published: of classes itself."""
    return CategoriesModel(model, outcome) if isinstance(outcome, Target) else model
