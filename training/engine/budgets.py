"""Promises on which a plan is based, and the largest charge of a run for each of them. All of this is public.

A rehearsal study asks no holders and promises nothing. Each of its runs defines the ε of each level and the share of
owners at that level, and the run's seed assigns the owners. Its vote is one computation without a ledger, with the
papers' data-dependent accounting (:func:`learning.mechanisms.pate.simulate_vote`).
"""

import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from accounting.group_budgets import head_counts
from accounting.privacy import Conversion, Method
from accounting.shares import share_free
from common.sentences import Sentence, gettext_noop
from consent.models import Level
from consent.selectors import policy_in_force
from learning.mechanisms.pate.plan import largest_remainder
from learning.mechanisms.protocol import PlanError
from training.engine.records import owners_of
from training.models import AllianceSite, JointRun, Run

#: Part of a run's share that its plan leaves unused, to allow for rounding of sums.
RESERVE = 1e-9

#: Maximum of δ times the number of people in the head counts; see "How large δ may be" in docs/gaussian-accounts.md.
MOST_DELTA = 1.0


@dataclass(frozen=True)
class PlannedPromise:
    """Holders of one promise; ``group`` is the index of their group in the plan, -1 if they are excluded.

    ``holders`` is a public or noisy number.
    """

    name: str
    level: str
    epsilon: float
    holders: int
    group: int


@dataclass(frozen=True)
class Budget:
    """Largest charge of a run to anyone in a group or with a promise, in μ²: its share of the smallest ``cap``."""

    cap: float
    allowed: float


def planned_promises(run: Run) -> list[PlannedPromise]:
    """Return all promises with their public or noisy numbers of holders, each as a separate group, smallest ε first.

    Raises PlanError if policy, head counts or shares are missing, or δ is too large for this number of people.
    """
    if run.rehearsal:
        rows = _rehearsed(run)
    elif run.alliance is not None and run.alliance.is_hub:
        rows = _at_sites(run)
    else:
        rows = _counted(run)
    return [
        PlannedPromise(name, level, epsilon, holders, place)
        for place, (name, level, epsilon, holders) in enumerate(rows)
    ]


def _counted(run: Run) -> list[tuple[str, str, float, int]]:
    """Return each promise's name, level, ε and number of holders, from the study's head counts."""
    if policy_in_force(run.study) is None:
        raise PlanError(
            gettext_noop("The study has no approved ε policy. Ask its ethics committee to propose and approve one.")
        )
    counts = head_counts(run.study)
    if not counts:
        raise PlanError(
            gettext_noop(
                "The study has no head counts yet, and the numbers of teachers and their weights depend on them. "
                "Take head counts with noise, or enter numbers that are already public."
            )
        )
    if share_free(run.study) <= 0:
        raise PlanError(
            gettext_noop(
                "Every holder's cap is fully used or reserved for other runs. Wait until a run ends, or cancel one."
            )
        )
    people = sum(count.count for count in counts)
    if run.study.delta * people > MOST_DELTA:
        raise PlanError(
            Sentence(
                gettext_noop(
                    "According to the head counts, about %(people)d people take part, so δ may be at most "
                    "%(most).2g. This study's δ is %(delta).2g and cannot be changed, because people were promised "
                    "this value. Ask them again in a new study with a smaller δ."
                ),
                people=people,
                most=MOST_DELTA / people,
                delta=run.study.delta,
            )
        )
    names: dict[str, int] = {}
    promises = []
    for count in counts:
        alike = names[count.level] = names.get(count.level, 0) + 1
        name = f"{count.level} {alike}" if alike > 1 else count.level
        promises.append((name, count.level, count.epsilon, count.count))
    return promises


def sites_of(run: Run) -> int:
    """Return the number of sites that a run asks; 1 for a run in one study."""
    if run.alliance is None:
        return 1
    joint = JointRun.objects.filter(run=run.pk).first()
    return len(joint.sites) if joint else sum(site.takes_part for site in run.alliance.sites.all())


def _at_sites(run: Run) -> list[tuple[str, str, float, int]]:
    """Return the values of `_counted` for the people of all participating sites, from their released head counts."""
    found: dict[tuple[float, str], int] = {}
    for site in _sites_of(run):
        if not site.head_counts:
            text = gettext_noop(
                "%(site)s has not released any head counts yet. Ask its operators to take or enter them."
            )
            raise PlanError(Sentence(text, site=site.name))
        for count in site.head_counts:
            promise = (float(count["epsilon"]), str(count["level"]))
            found[promise] = found.get(promise, 0) + int(count["count"])
    names: dict[str, int] = {}
    promises = []
    for (epsilon, level), number in sorted(found.items()):
        alike = names[level] = names.get(level, 0) + 1
        promises.append((f"{level} {alike}" if alike > 1 else level, level, epsilon, number))
    return promises


def _sites_of(run: Run) -> list[AllianceSite]:
    """Return the sites that take part in a joint run."""
    assert run.alliance is not None, "of a run across sites"
    joint = JointRun.objects.filter(run=run.pk).first()
    sites = (site for site in run.alliance.sites.all() if site.takes_part)
    return [site for site in sites if joint is None or site.name in joint.sites]


def head_count_sigma(run: Run) -> float:
    """Return the largest standard deviation of the noise in any promise's number of people, 0 if all are exact.

    In a joint run this refers to the sum of the sites' head counts.
    """
    if run.rehearsal:
        return 0.0
    if run.alliance is None:
        return max((count.sigma or 0.0 for count in head_counts(run.study)), default=0.0)
    variances: dict[tuple[float, str], float] = {}
    for site in _sites_of(run) if run.alliance.is_hub else ():  # a site uses its hub's plan
        for count in site.head_counts:
            promise = (float(count["epsilon"]), str(count["level"]))
            variances[promise] = variances.get(promise, 0.0) + float(count.get("sigma", 0.0)) ** 2
    return math.sqrt(max(variances.values(), default=0.0))


def _rehearsed(run: Run) -> list[tuple[str, str, float, int]]:
    owners = len(owners_of(run.private_dataset))
    levels = rehearsed_levels(run, owners)
    return [(level, level, epsilon, count) for level, epsilon, count in levels]


def budgets_from_json(document: dict[str, Any]) -> list[Budget]:
    """Return the budgets of a plan stored with a run."""
    return [Budget(budget["cap"], budget["allowed"]) for budget in document["budgets"]]


# --- Rehearsals -------------------------------------------------------------------------------------------------------


#: Default parameters of a rehearsal.
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
    """Return the parameters of a rehearsal with defaults filled in. Raises ValidationError if they are invalid."""
    known = {**DEFAULTS, **rehearsed}
    if unknown := known.keys() - DEFAULTS.keys():
        raise ValidationError(_("Unknown parameters: %(names)s.") % {"names": ", ".join(sorted(unknown))})
    if known["method"] not in get_args(Method):
        raise ValidationError(_("The cost method must be one of: %(names)s.") % {"names": ", ".join(get_args(Method))})
    if known["conversion"] not in get_args(Conversion):
        raise ValidationError(
            _("The conversion must be one of: %(names)s.") % {"names": ", ".join(get_args(Conversion))}
        )
    levels = known["levels"]
    if not isinstance(levels, dict) or not levels or levels.keys() - set(Level.values):
        raise ValidationError(_("Enter a share and an ε for at least one of the levels HIGH, AVERAGE and LOW."))
    for level in levels.values():
        numbers = [level.get(name) if isinstance(level, dict) else None for name in ("share", "epsilon")]
        if not all(isinstance(number, int | float) and 0 < number < np.inf for number in numbers):
            raise ValidationError(_("The share and the ε of each level must be numbers above 0."))
    return known


def rehearsed_levels(run: Run, owners: int) -> list[tuple[str, float, int]]:
    """Return each level's name, ε and number of owners in a rehearsal, smallest ε first."""
    levels = rehearsed_check(run.rehearsed)["levels"]
    shares = [round(1e6 * level["share"]) for level in levels.values()]
    counts = largest_remainder(shares, owners).tolist()
    rows = [(name, float(level["epsilon"]), count) for (name, level), count in zip(levels.items(), counts, strict=True)]
    return sorted(rows, key=lambda row: row[1])


def rehearsal_holders(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids (H,) of all owners in ascending order, and the ε drawn for each with the rehearsal's seed."""
    owners = owners_of(run.private_dataset)
    levels = rehearsed_levels(run, len(owners))
    epsilons = np.repeat([epsilon for _, epsilon, _ in levels], [count for *_, count in levels])
    return owners, np.random.default_rng(run.seed).permutation(epsilons)
