"""The methods by which a run can learn."""

from training.methods.base import MethodPlan, RunMethod, Step, Wrong
from training.methods.neighbours.method import Neighbours
from training.methods.pate.method import Pate
from training.methods.sampled_steps.method import SgdSampled
from training.methods.steps.method import Sgd
from training.models import Run

IMPLEMENTED: tuple[RunMethod, ...] = (Neighbours(), Pate(), Sgd(), SgdSampled())
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


__all__ = ["IMPLEMENTED", "METHODS", "MethodPlan", "RunMethod", "Step", "Wrong", "method_by", "method_of"]
