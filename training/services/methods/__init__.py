"""The methods by which a run can learn."""

from training.models import Run
from training.services.methods.base import MethodPlan, RunMethod, Step, Wrong
from training.services.methods.neighbours import Neighbours
from training.services.methods.pate import Pate
from training.services.methods.sgd import Sgd

_IMPLEMENTED: tuple[RunMethod, ...] = (Neighbours(), Pate(), Sgd())
METHODS = {method.name: method for method in _IMPLEMENTED}


def method_of(run: Run) -> RunMethod:
    """The method of a run."""
    return METHODS[run.method]


__all__ = ["METHODS", "MethodPlan", "RunMethod", "Step", "Wrong", "method_of"]
