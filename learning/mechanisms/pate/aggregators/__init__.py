"""The aggregators, by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from learning.mechanisms.pate.aggregators.base import (
    REJECTED,
    Aggregator,
    AggregatorField,
    QueryCosts,
    Release,
    VoteCharge,
)
from learning.mechanisms.pate.aggregators.confident import ConfidentGNMax
from learning.mechanisms.pate.aggregators.counts import NoisyCounts
from learning.mechanisms.pate.aggregators.gnmax import GNMax
from learning.mechanisms.pate.aggregators.interactive import InteractiveGNMax
from learning.mechanisms.pate.aggregators.lnmax import LNMax
from learning.mechanisms.pate.aggregators.residual import ResidualGNMax

AGGREGATORS: Mapping[str, type[Aggregator]] = MappingProxyType(
    {
        aggregator.name: aggregator
        for aggregator in (ConfidentGNMax, NoisyCounts, GNMax, LNMax, InteractiveGNMax, ResidualGNMax)
    }
)
"""All aggregators, in the order in which pages list them; the first is the one that a form begins with."""


def aggregator_from_parameters(parameters: Mapping[str, Any]) -> Aggregator:
    """The aggregator that `Aggregator.parameters` described.

    Raises ValueError if the name is unknown, or a parameter is missing, unknown or out of range.

    >>> aggregator_from_parameters({"name": "gnmax", "sigma": 40.0})
    GNMax(sigma=40.0)
    """
    name = parameters.get("name")
    if not isinstance(name, str) or name not in AGGREGATORS:
        raise ValueError(f"There is no aggregator {name!r}: name one of {', '.join(AGGREGATORS)}.")
    settings = {key: value for key, value in parameters.items() if key != "name"}
    needed = {field.name for field in AGGREGATORS[name].fields()}
    if settings.keys() != needed:
        raise ValueError(
            f"{name} takes the parameters {', '.join(sorted(needed))}, not {', '.join(sorted(settings)) or 'none'}: "
            "give exactly those."
        )
    return AGGREGATORS[name](**settings)


__all__ = [
    "AGGREGATORS",
    "REJECTED",
    "Aggregator",
    "AggregatorField",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "NoisyCounts",
    "QueryCosts",
    "Release",
    "ResidualGNMax",
    "VoteCharge",
    "aggregator_from_parameters",
]
