"""Aggregators by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from learning.mechanisms.pate.aggregators.aggregator import (
    REJECTED,
    Aggregator,
    AggregatorParameter,
    LabelRelease,
    QueryCosts,
)
from learning.mechanisms.pate.aggregators.confident import ConfidentGNMax, InteractiveGNMax
from learning.mechanisms.pate.aggregators.noisy_max import GNMax, LNMax, NoisyCounts, ResidualGNMax

AGGREGATORS: Mapping[str, type[Aggregator]] = MappingProxyType(
    {
        aggregator.name: aggregator
        for aggregator in (ConfidentGNMax, NoisyCounts, GNMax, LNMax, InteractiveGNMax, ResidualGNMax)
    }
)
"""All aggregators in the order shown on pages; the first is the default of forms."""


def aggregator_from_parameters(parameters: Mapping[str, Any]) -> Aggregator:
    """Return the aggregator from the result of `Aggregator.parameters`.

    Raises ValueError if the name is unknown, or a parameter is missing, unknown or out of range.

    >>> aggregator_from_parameters({"name": "gnmax", "sigma": 40.0})
    GNMax(sigma=40.0)
    """
    name = parameters.get("name")
    if not isinstance(name, str) or name not in AGGREGATORS:
        raise ValueError(f"There is no aggregator {name!r}: choose one of {', '.join(AGGREGATORS)}.")
    settings = {key: value for key, value in parameters.items() if key != "name"}
    needed = {field.name for field in AGGREGATORS[name].fields()}
    if settings.keys() != needed:
        raise ValueError(
            f"{name} takes the parameters {', '.join(sorted(needed))}, not {', '.join(sorted(settings)) or 'none'}: "
            "give exactly those."
        )
    return AGGREGATORS[name](**settings)
