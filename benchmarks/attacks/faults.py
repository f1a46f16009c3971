"""Defects to plant. Each one must make an audit fail, because otherwise the audit would be unable to detect it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from accounting.privacy import IndividualAccounts, label_charge
from common.noise import SystemNoise
from learning.mechanisms.counts.tables import CountsQuestion
from learning.mechanisms.pate.aggregators import noisy_max
from learning.mechanisms.protocol import People, Records
from learning.sites import protocol
from learning.sites.documents import QuestionDocument, Roster
from learning.sites.lattice import Lattice


@contextmanager
def noise_halved() -> Iterator[None]:
    """Halve the standard deviation of all noise from the system's generator."""
    gaussian, laplace = SystemNoise.rounded_normal, SystemNoise.laplace
    with (
        patch.object(SystemNoise, "rounded_normal", lambda self, scale, shape: gaussian(self, scale / 2, shape)),
        patch.object(SystemNoise, "laplace", lambda self, scale, shape: laplace(self, scale / 2, shape)),
    ):
        yield


@contextmanager
def charge_dropped() -> Iterator[None]:
    """Let accounts check whether a contribution fits, but not charge for it."""
    whole = IndividualAccounts._charge_row

    def forgetful(self: IndividualAccounts, spent: Any, *rest: Any) -> Any:
        return whole(self, (spent[0].copy(), spent[1].copy()), *rest)

    with patch.object(IndividualAccounts, "_charge_row", forgetful):
        yield


@contextmanager
def weight_squared() -> Iterator[None]:
    """Charge w² instead of 2w² for a teacher's vote that moves."""

    def halved(weight: float, sigma: float, teachers: int = 1) -> float:
        return label_charge(weight, sigma, teachers) / 2

    with patch.object(noisy_max, "label_charge", halved):
        yield


@contextmanager
def colluders_counted() -> Iterator[None]:
    """Let sites add only as much noise as is enough if none of them discloses its noise to the hub."""
    right = protocol.lattice_of

    def thinner(roster: Roster, question: QuestionDocument) -> Lattice:
        lattice, count = right(roster, question), len(question.participants)
        return replace(lattice, spread=lattice.spread * math.sqrt((count - roster.alliance.colluding) / count))

    with patch.object(protocol, "lattice_of", thinner):
        yield


@contextmanager
def records_added_up() -> Iterator[None]:
    """Count people with several records once per record, but charge them only once."""
    right = CountsQuestion.contributions

    def added(self: CountsQuestion, people: People, records: Records) -> tuple[Any, Any]:
        sums, charges = right(self, people, records)
        return sums * len(records.owner) // max(len(people.caps), 1), charges

    with patch.object(CountsQuestion, "contributions", added):
        yield


FAULTS: dict[str, Callable[[], Any]] = {
    "noise-halved": noise_halved,
    "charge-dropped": charge_dropped,
    "weight-squared": weight_squared,
    "colluders-counted": colluders_counted,
    "records-added-up": records_added_up,
}
