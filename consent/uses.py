"""What a holder's data has been used for: consent cannot look into runs, so whoever keeps them says so here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from consent.models import DataHolder
from consent.odds import right_guesses_in_100


@dataclass(frozen=True)
class Use:
    """One use in plain words; ``since`` is when it began to count for the holder."""

    title: str
    purpose: str
    state: str
    since: datetime


@dataclass(frozen=True)
class Usage:
    """All uses, newest first, and what they come to.

    ``epsilon`` bounds what everything released so far tells about the holder. It depends on no data: what did is a
    secret (rule 6 of the design). ``records`` are the holder's own, by dataset.
    """

    uses: list[Use] = field(default_factory=list)
    epsilon: float = 0.0
    records: Callable[[], dict[str, Any]] = dict

    @property
    def right_guesses(self) -> int:
        return right_guesses_in_100(self.epsilon)


Provider = Callable[[DataHolder], Usage]
_providers: list[Provider] = []


def provider_register(provider: Provider) -> None:
    """Whoever uses holders' data says so, once, when the site starts."""
    _providers[:] = [provider]


def usage_of(holder: DataHolder) -> Usage:
    """What ``holder``'s data has been used for so far."""
    return _providers[0](holder) if _providers else Usage()
