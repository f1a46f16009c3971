"""The aggregators, by name."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from training.pate.aggregators.base import REJECTED, Aggregator, QueryCosts, Release
from training.pate.aggregators.confident import ConfidentGNMax
from training.pate.aggregators.gnmax import GNMax
from training.pate.aggregators.interactive import InteractiveGNMax
from training.pate.aggregators.lnmax import LNMax

AGGREGATORS: Mapping[str, type[Aggregator]] = MappingProxyType(
    {aggregator.name: aggregator for aggregator in (LNMax, GNMax, ConfidentGNMax, InteractiveGNMax)}
)


def aggregator_from_parameters(parameters: Mapping[str, Any]) -> Aggregator:
    """The aggregator that `Aggregator.parameters` described.

    Raises ValueError if the name is unknown, or a parameter is missing, unknown or out of range.

    >>> aggregator_from_parameters({"name": "gnmax", "sigma": 40.0})
    GNMax(sigma=40.0)
    """
    name = parameters.get("name")
    if not isinstance(name, str) or name not in AGGREGATORS:
        raise ValueError(f"There is no aggregator {name!r}: name one of {', '.join(AGGREGATORS)}.")
    given = {key: value for key, value in parameters.items() if key != "name"}
    needed = {field.name for field in dataclasses.fields(AGGREGATORS[name])}
    if given.keys() != needed:
        raise ValueError(
            f"{name} takes the parameters {', '.join(sorted(needed))}, not {', '.join(sorted(given)) or 'none'}: "
            "give exactly those."
        )
    return AGGREGATORS[name](**given)


__all__ = [
    "AGGREGATORS",
    "REJECTED",
    "Aggregator",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "QueryCosts",
    "Release",
    "aggregator_from_parameters",
]
