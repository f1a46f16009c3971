"""Registry of uses: training, which consent must not import, reports here what a holder's data was used for."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from consent.models import DataHolder
from consent.odds import right_guesses_at


@dataclass(frozen=True)
class Use:
    """One use of a holder's data in plain words; ``since`` is when it began to count for the holder."""

    purpose: str
    state: str
    since: datetime


@dataclass(frozen=True)
class Usage:
    """All uses of a holder's data, newest first, with their total bound.

    Attributes:
        uses: newest first.
        mu_squared: the most that everything released so far can have cost the holder, in the μ² of Gaussian
            differential privacy. A public bound: what it did cost is a secret, from the holder, too.
        records: function that returns the holder's own records by dataset.
        is_full: whether the site's ceiling leaves nothing to this study, after all that the person's others can have
            released. It follows from links and public numbers.
    """

    uses: list[Use] = field(default_factory=list)
    mu_squared: float = 0.0
    records: Callable[[], dict[str, Any]] = dict
    is_full: bool = False

    @property
    def right_guesses(self) -> int:
        """Largest number of right guesses in 100 about whether the holder took part."""
        return right_guesses_at(math.sqrt(self.mu_squared))


def right_guesses_together(usages: Iterable[Usage]) -> int:
    """Largest number of right guesses in 100 by all that several studies of one person released: their μ² add up."""
    return right_guesses_at(math.sqrt(sum(usage.mu_squared for usage in usages)))


Provider = Callable[[DataHolder], Usage]
_providers: list[Provider] = []


def provider_register(provider: Provider) -> None:
    """Register the provider of usage, once, at start-up."""
    _providers[:] = [provider]


def usage_of(holder: DataHolder) -> Usage:
    """Usage of a holder's data so far; empty without a provider."""
    return _providers[0](holder) if _providers else Usage()
