"""Defects to be planted: each must make an audit fail, or the audit could not find a defect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from accounting.privacy import IndividualAccounts, label_charge
from common.noise import SystemNoise
from learning.mechanisms.pate.aggregators import gnmax


@contextmanager
def noise_halved() -> Iterator[None]:
    """All noise of the system's generator has half of the standard deviation that it should have."""
    gaussian, laplace = SystemNoise.rounded_normal, SystemNoise.laplace
    with (
        patch.object(SystemNoise, "rounded_normal", lambda self, scale, shape: gaussian(self, scale / 2, shape)),
        patch.object(SystemNoise, "laplace", lambda self, scale, shape: laplace(self, scale / 2, shape)),
    ):
        yield


@contextmanager
def charge_dropped() -> Iterator[None]:
    """Accounts look whether a contribution fits, and forget it."""
    whole = IndividualAccounts._charge_row

    def forgetful(self: IndividualAccounts, spent: Any, *rest: Any) -> Any:
        return whole(self, (spent[0].copy(), spent[1].copy()), *rest)

    with patch.object(IndividualAccounts, "_charge_row", forgetful):
        yield


@contextmanager
def weight_squared() -> Iterator[None]:
    """A teacher's vote that moves is charged w² in place of 2w²."""

    def halved(weight: float, sigma: float, teachers: int = 1) -> float:
        return label_charge(weight, sigma, teachers) / 2

    with patch.object(gnmax, "label_charge", halved):
        yield


FAULTS: dict[str, Callable[[], Any]] = {
    "noise-halved": noise_halved,
    "charge-dropped": charge_dropped,
    "weight-squared": weight_squared,
}
