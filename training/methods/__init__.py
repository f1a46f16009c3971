"""Learning methods of runs."""

from typing import cast

from training.methods.base import MethodOutcome, ModelMethod, ResultTable, RunMethod, RunStage, Step, TableMethod
from training.methods.counts import CountsMethod
from training.methods.joint import joint_method
from training.methods.neighbours import Neighbours
from training.methods.pate import Pate
from training.methods.planning import MethodPlan
from training.methods.sampled_steps import SgdSampled
from training.methods.steps import Sgd
from training.methods.student_training import StudentData
from training.methods.synthesis import DeniabilityMethod, SynthesisMethod
from training.models import Run

_MODELS: tuple[ModelMethod, ...] = (Neighbours(), Pate(), Sgd(), SgdSampled())
_TABLES: tuple[TableMethod, ...] = (CountsMethod(), SynthesisMethod(), DeniabilityMethod())
IMPLEMENTED: tuple[RunMethod, ...] = (*_MODELS, *_TABLES)
"""All methods. A variant that has nothing in common with the others of its method is a separate class."""
METHODS: dict[str, RunMethod] = {}
"""Methods by name. If a name has several classes, this is the one for proposals without a variant."""
for _method in IMPLEMENTED:
    METHODS.setdefault(_method.name, _method)


def method_by(name: str, variant: str) -> RunMethod:
    """Return the method with this name and variant, or else the default method with this name."""
    return next((method for method in IMPLEMENTED if method.name == name and variant in method.variants), METHODS[name])


def method_of(run: Run) -> RunMethod:
    """Return a run's method. For a joint run, it is wrapped with the steps of the hub or site."""
    method = method_by(run.method, run.variant)
    return method if run.alliance is None else joint_method(method, is_hub=run.alliance.is_hub)  # type: ignore[arg-type]


def student_data_of(run: Run) -> StudentData:
    """Return the data for training the student of a run that produces a model."""
    return cast(ModelMethod, method_of(run)).student_data(run)


def table_of(run: Run) -> ResultTable:
    """Return the released table of a run that produces one."""
    return cast(TableMethod, method_of(run)).table(run)
