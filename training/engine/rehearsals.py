"""Rehearsals: runs on data that are nobody's secret, with the papers' data-dependent accounting. Nothing is promised.

A rehearsal study asks no holders. A run of it says itself which part of the owners stands at which level and ε; who,
follows from the run's seed. Its vote is one computation without a ledger, see
:func:`learning.mechanisms.pate.simulate_vote`.
"""

from typing import Any, get_args

import numpy as np
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from accounting.privacy import Conversion, Method
from consent.models import Level
from learning.mechanisms.pate.apportionment import largest_remainder
from training.engine.records import owners_of
from training.models import Run

#: What a rehearsal takes where it says nothing else.
DEFAULTS: dict[str, Any] = {
    "levels": {
        "HIGH": {"share": 0.34, "epsilon": 1.0},
        "AVERAGE": {"share": 0.43, "epsilon": 2.0},
        "LOW": {"share": 0.23, "epsilon": 3.0},
    },
    "method": "exact",
    "conversion": "improved",
}


def rehearsed_check(rehearsed: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a rehearsal with defaults filled in. Raises ValidationError, saying what is wrong."""
    known = {**DEFAULTS, **rehearsed}
    if unknown := known.keys() - DEFAULTS.keys():
        raise ValidationError(_("Unknown parameters: %(names)s.") % {"names": ", ".join(sorted(unknown))})
    if known["method"] not in get_args(Method):
        raise ValidationError(_("Costs are counted by one of: %(names)s.") % {"names": ", ".join(get_args(Method))})
    if known["conversion"] not in get_args(Conversion):
        raise ValidationError(_("The conversion is one of: %(names)s.") % {"names": ", ".join(get_args(Conversion))})
    levels = known["levels"]
    if not isinstance(levels, dict) or not levels or levels.keys() - set(Level.values):
        raise ValidationError(_("Give share and ε of the levels HIGH, AVERAGE and LOW, or of some of them."))
    for level in levels.values():
        numbers = [level.get(name) if isinstance(level, dict) else None for name in ("share", "epsilon")]
        if not all(isinstance(number, int | float) and 0 < number < np.inf for number in numbers):
            raise ValidationError(_("Share and ε of each level are numbers above 0."))
    return known


def rehearsed_levels(run: Run, owners: int) -> list[tuple[str, float, int]]:
    """Level, ε and number of owners of each level in a rehearsal, smallest ε first."""
    levels = rehearsed_check(run.rehearsed)["levels"]
    shares = [round(1e6 * level["share"]) for level in levels.values()]
    counts = largest_remainder(shares, owners).tolist()
    rows = [(name, float(level["epsilon"]), count) for (name, level), count in zip(levels.items(), counts, strict=True)]
    return sorted(rows, key=lambda row: row[1])


def rehearsal_holders(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(H,) ids of all owners in rising order, and the ε that each has in this rehearsal, drawn by its seed."""
    owners = owners_of(run.private_dataset)
    levels = rehearsed_levels(run, len(owners))
    epsilons = np.repeat([epsilon for _, epsilon, _ in levels], [count for *_, count in levels])
    return owners, np.random.default_rng(run.seed).permutation(epsilons)
