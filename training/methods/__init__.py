"""The methods by which a run can learn."""

from typing import cast

from learning.mechanisms.counts.table import CountTable
from training.methods.base import MethodPlan, ModelMethod, Outcome, RunMethod, Stage, Step, TableMethod
from training.methods.counts.method import CountsMethod
from training.methods.lessons import Lesson
from training.methods.neighbours.method import Neighbours
from training.methods.pate.method import Pate
from training.methods.sampled_steps.method import SgdSampled
from training.methods.steps.method import Sgd
from training.models import Run

_MODELS: tuple[ModelMethod, ...] = (Neighbours(), Pate(), Sgd(), SgdSampled())
_TABLES: tuple[TableMethod, ...] = (CountsMethod(),)
IMPLEMENTED: tuple[RunMethod, ...] = (*_MODELS, *_TABLES)
"""All of them; variants of a method that have nothing in common are carried out by one of their own."""
METHODS: dict[str, RunMethod] = {}
"""By name: that of the variants which a proposal gets that names none."""
for _method in IMPLEMENTED:
    METHODS.setdefault(_method.name, _method)


def method_by(name: str, variant: str) -> RunMethod:
    """The method of this name that carries out this variant; that of the usual variants where none does."""
    return next((method for method in IMPLEMENTED if method.name == name and variant in method.variants), METHODS[name])


def method_of(run: Run) -> RunMethod:
    """The method of a run."""
    return method_by(run.method, run.variant)


def lesson_of(run: Run) -> Lesson:
    """What the student of a run learns from, whose outcome is a model."""
    return cast(ModelMethod, method_of(run)).lesson(run)


def table_of(run: Run) -> CountTable:
    """What a run has released, whose outcome is a table."""
    return cast(TableMethod, method_of(run)).table(run)


__all__ = [
    "IMPLEMENTED",
    "METHODS",
    "MethodPlan",
    "Outcome",
    "RunMethod",
    "Stage",
    "Step",
    "lesson_of",
    "method_by",
    "method_of",
    "table_of",
]
