"""What an account was opened with, as hashes: an account can be edited in the database, its seals cannot."""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC
from typing import Any

import numpy as np

from accounting.curves import STORED

#: The seal of what is not one group's.
ACCOUNT = "account"


def account_seals(account: Any, groups: Iterable[tuple[Any, np.ndarray]]) -> dict[str, str]:
    """SHA-256 of all that an account must say as long as it is kept, part by part.

    ``account`` has the fields of :class:`accounting.models.RunAccount`; ``groups`` are its groups, with the fields of
    :class:`accounting.models.PrivacyGroup`, and the ids of their holders, (H,) each. What a run spends is not sealed
    here but in the ledger's entries.
    """
    seals = {
        ACCOUNT: _sealed(
            str(account.run),
            account.study_id,
            float(account.delta),
            account.method,
            account.conversion,
            account.is_reservation,
            account.opened_at.astimezone(UTC).isoformat(timespec="microseconds"),
            _curve(account.orders),
        )
    }
    for group, holders in groups:
        seals[group_part(group)] = _sealed(
            group.index,
            group.name,
            group.level,
            float(group.epsilon),
            group.holders,
            None if group.allowance is None else float(group.allowance),
            _curve(group.past_rdp),
            _curve(group.reserved_rdp),
            hashlib.sha256(np.sort(holders).astype(">i8").tobytes()).hexdigest(),
        )
    return seals


def group_part(group: Any) -> str:
    """Under which name a group's seal is kept."""
    return f"group {group.pk}"


def _curve(numbers: list[float] | None) -> str | None:
    return None if numbers is None else np.asarray(numbers, dtype=STORED).tobytes().hex()


def _sealed(*content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
