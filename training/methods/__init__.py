"""The methods by which a run can learn."""

from typing import cast

from training.methods.base import MethodOutcome, ModelMethod, RunMethod, Stage, Step, Table, TableMethod
from training.methods.counts import CountsMethod
from training.methods.joint import joint_method
from training.methods.lessons import Lesson
from training.methods.neighbours import Neighbours
from training.methods.pate import Pate
from training.methods.planning import MethodPlan
from training.methods.sampled_steps import SgdSampled
from training.methods.steps import Sgd
from training.methods.synthesis import DeniabilityMethod, SynthesisMethod
from training.models import Run

_MODELS: tuple[ModelMethod, ...] = (Neighbours(), Pate(), Sgd(), SgdSampled())
_TABLES: tuple[TableMethod, ...] = (CountsMethod(), SynthesisMethod(), DeniabilityMethod())
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
    """The method of a run; over sites as its hub, or one of the sites, carries it out."""
    method = method_by(run.method, run.variant)
    return method if run.alliance is None else joint_method(method, is_hub=run.alliance.is_hub)  # type: ignore[arg-type]


def lesson_of(run: Run) -> Lesson:
    """What the student of a run learns from, whose outcome is a model."""
    return cast(ModelMethod, method_of(run)).lesson(run)


def table_of(run: Run) -> Table:
    """What a run has released, whose outcome is a table."""
    return cast(TableMethod, method_of(run)).table(run)


__all__ = [
    "IMPLEMENTED",
    "METHODS",
    "MethodOutcome",
    "MethodPlan",
    "RunMethod",
    "Stage",
    "Step",
    "Table",
    "lesson_of",
    "method_by",
    "method_of",
    "table_of",
]
