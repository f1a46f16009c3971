"""Plan of a run: the number of teachers, vote weights and noise. The plan is checked before any training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from accounting.privacy import gdp_mu
from accounting.privacy.papers.curves import Conversion
from common.declarations import MAY_BE_MISSING, Stored
from common.noise import GRID
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.pate.aggregators import Aggregator
from learning.mechanisms.pate.votes import (
    WEIGHT_SCHEMES,
    factors_for_most_labels,
    participation_frequencies,
    require_delta,
    teacher_weights,
    upsampling_factors,
)
from learning.mechanisms.protocol import PlanError

VARIANTS = ("standard", "upsampling", "weighting", "vanishing")
SMALL_GROUPS = ("merge", "leave_out", "copy")
LEFT_OUT = -1
"""Index of a group that takes no part."""


def largest_remainder(holders: Sequence[int], teachers: int) -> NDArray[np.int64]:
    """Return the number of teachers per group, proportional to `holders` and adding up to exactly `teachers`.

    By the method of largest remainders (Hamilton), every group gets its share rounded down, and the remaining teachers
    go one by one to the groups with the largest fractions (in ties, to the earlier group). All arithmetic is on
    integers.

    >>> largest_remainder([50, 30, 21], 10)
    array([5, 3, 2])
    """
    size = np.asarray(holders, dtype=np.int64)
    share, remainder = np.divmod(size * teachers, size.sum())
    left = teachers - int(share.sum())
    share[np.argsort(-remainder, kind="stable")[:left]] += 1
    return share


@dataclass(frozen=True)
class PrivacyGroup:
    """Privacy group in a plan.

    Attributes:
        epsilon: Promise to the group's holders.
        holders: Public or noisy number of holders.
    """

    name: str
    epsilon: float
    holders: int


_PARTICIPANTS = (
    "Number of the group's teachers that take part in each vote: all of them, except in the vanishing variant."
)
_HOST = (
    "Name of the group whose teachers also learn from this group's holders, if the group is too small to have its "
    "own teachers; otherwise empty."
)


@dataclass(frozen=True)
class GroupPlan(Stored):
    """Plan for one group and the groups merged into it.

    The plan's group is named after the strictest of these groups. In upsampling, all teachers learn from its holders,
    and each holder appears ``factor`` times. If the group has a host, its weight is the weight of the host's teachers.
    """

    name: str
    epsilon: Annotated[float, Field(description="Smallest ε promised in the group.")]
    holders: Annotated[int, Field(description="Number of holders, public or noisy.")]
    teachers: int
    weight: float = 1.0
    factor: int = 1
    participants: Annotated[int, MAY_BE_MISSING, Field(description=_PARTICIPANTS)] = 0
    merged: tuple[str, ...] = ()
    host: Annotated[str, MAY_BE_MISSING, Field(description=_HOST)] = ""

    @property
    def sensitivity(self) -> float:
        """Largest change in a vote count that one holder can cause: the total weight of that holder's teachers."""
        return self.weight * self.factor


@dataclass(frozen=True)
class Plan:
    """Checked plan of a run.

    Attributes:
        groups: Groups, strictest first; if each teacher belongs to one group, teachers are numbered in this order.
        aggregator: Aggregator, whose noise and threshold are scaled to the number of votes.
        teachers: Total number of teachers.
        left_out: Names of the groups that take no part.
        notes: Human-readable warnings and descriptions of choices.

    Holders of groups that were merged share teachers, so all of them are charged with the merged group's sensitivity.

    >>> from learning.mechanisms.pate import GNMax
    >>> plan = make_plan([PrivacyGroup("HIGH", 1.0, 30), PrivacyGroup("LOW", 2.0, 10)], variant="weighting", teachers=4,
    ...                  aggregator=GNMax(sigma=1.0), delta=1e-5)
    >>> plan.index_of("LOW"), plan.members(1), plan.teacher_weights().round(3), plan.votes
    (1, array([False, False, False,  True]), array([0.8, 0.8, 0.8, 1.6]), 4)
    """

    variant: str
    groups: tuple[GroupPlan, ...]
    aggregator: Aggregator
    teachers: int
    left_out: tuple[str, ...] = ()
    notes: tuple[Sentence, ...] = ()

    def index_of(self, name: str) -> int:
        """Return the index in `groups` of the group that includes the group `name` after merging, or `LEFT_OUT`.

        Raises KeyError if the plan does not contain it.
        """
        for index, group in enumerate(self.groups):
            if name == group.name or name in group.merged:
                return index
        if name in self.left_out:
            return LEFT_OUT
        raise KeyError(name)

    @property
    def votes(self) -> int:
        """Total weight of a unanimous vote."""
        if self.variant == "vanishing":
            return sum(group.participants for group in self.groups)
        return self.teachers

    def members(self, index: int) -> NDArray[np.bool_]:
        """Return a mask `(teachers,)` of the teachers that may learn from holders of group `index`."""
        if self._is_mixed:
            return np.ones(self.teachers, dtype=np.bool_)
        if self.groups[index].host:
            index = self.index_of(self.groups[index].host)
        return np.repeat(np.arange(len(self.groups)), self._teachers_per_group) == index

    def teacher_weights(self) -> NDArray[np.float64]:
        """Return the weight of each teacher's vote, `(teachers,)`."""
        if self._is_mixed:
            return np.ones(self.teachers)
        return np.repeat([group.weight for group in self.groups], self._teachers_per_group)

    def family(self, index: int) -> list[int]:
        """Return the indices of group ``index`` and of all groups that share teachers with it."""
        if self._is_mixed:
            return [index]
        name = self.groups[index].host or self.groups[index].name
        return [place for place, group in enumerate(self.groups) if name in (group.name, group.host)]

    @property
    def _is_mixed(self) -> bool:
        return self.variant in ("standard", "upsampling")

    @property
    def _teachers_per_group(self) -> list[int]:
        return [group.teachers for group in self.groups]


def make_plan(
    groups: Sequence[PrivacyGroup],
    *,
    variant: str,
    teachers: int,
    aggregator: Aggregator,
    delta: float,
    classes: int | None = None,
    weight_scheme: str = "proportional",
    conversion: Conversion = "improved",
    small_groups: str = "merge",
    precision: int = 1,
    exponent: float = 2.0,
) -> Plan:
    """Plan a run.

    "standard": PATE in its original form; all holders form one group with the smallest ε. "weighting": each teacher
    learns from holders of one group and votes with the group's weight (`teacher_weights`). The number of teachers per
    group is proportional to its holders, with exactly `teachers` in total. "upsampling": holders are duplicated
    (`upsampling_factors`) and distributed over mixed teachers, whose number, σ, σ_T and T grow by N'/N, the ratio of
    duplicates to holders. "vanishing": teachers as in weighting, each of weight 1. A share of each group's teachers
    takes part in each vote (`participation_frequencies`), and σ, σ_T and T shrink with the number of participants.

    With the scheme "gdp", weights are proportional to μ instead of ε, and participation is proportional to μ². Charges
    grow with the square of the weight, so all groups have then used the same share of their caps at any time.
    Duplicates, which are integers, are chosen so that accounts can pay for the most labels (`factors_for_most_labels`).

    In weighting and vanishing, a group is too small if it has no teacher, or fewer holders than half of a teacher's
    average. Such a group is merged into the next stricter group (`small_groups="merge"`), left out ("leave_out") or, in
    weighting, its holders are each copied into several teachers of a stricter group ("copy"). Copying is the hybrid in
    section 7.2 of the thesis, which upsamples small groups and weights the others. The host is the stricter group whose
    teachers' weight w gives the copies the largest total weight k·w that the small group's promise allows, where k =
    ⌊own weight / w⌋. If the strictest group is too small, it gets one small teacher: merging it with another group
    would either weaken its promise, or restrict the other group just for its sake.

    Args:
        groups: Privacy groups in any order.
        teachers: Requested number, before upsampling.
        aggregator: Aggregator with the parameters for that many votes.
        classes: Number of classes; if given, T is checked against it.
        delta, conversion: How the study derives ε from RDP, for the scheme "calibrated".

    Raises:
        PlanError: The run cannot be carried out.

    >>> from learning.mechanisms.pate import ConfidentGNMax
    >>> plan = make_plan(
    ...     [PrivacyGroup("HIGH", 1.0, 340), PrivacyGroup("AVERAGE", 2.0, 430), PrivacyGroup("LOW", 3.0, 3)],
    ...     variant="weighting", teachers=59, delta=1e-5,
    ...     aggregator=ConfidentGNMax(sigma=10.0, sigma_threshold=20.0, threshold=40.0),
    ... )
    >>> [(group.name, group.teachers, group.merged) for group in plan.groups]
    [('HIGH', 26, ()), ('AVERAGE', 33, ('LOW',))]
    >>> plan.notes
    ('Group LOW has too few holders for a teacher (3; usually about 13), so it is merged into AVERAGE.',)
    """
    _require_choice("variant", variant, VARIANTS)
    _require_choice("weight_scheme", weight_scheme, WEIGHT_SCHEMES)
    _require_choice("small_groups", small_groups, SMALL_GROUPS)
    present = _require_groups(groups)
    _require_teachers(teachers, present)
    try:
        require_delta(delta)
        if variant == "standard":
            plan = _plan_standard(present, teachers, aggregator)
        elif variant == "upsampling":
            plan = _plan_upsampling(present, teachers, aggregator, _factors(present, weight_scheme, delta, precision))
        else:
            if small_groups == "copy" and variant != "weighting":
                raise PlanError(
                    gettext_noop(
                        "Only the weighting variant can copy small groups into other teachers. Choose that "
                        "variant, or do not copy."
                    )
                )
            plan, copied = _plan_teachers_of_one_group(present, teachers, aggregator, variant, small_groups)
            if variant == "weighting":
                plan = _with_weights(plan, copied, weight_scheme, delta, conversion)
            else:
                plan = _with_participation(plan, exponent, weight_scheme, delta)
    except PlanError:
        raise
    except ValueError as error:
        raise PlanError(str(error)) from error
    empty = tuple(group.name for group in groups if group.holders == 0)
    nobody = (Sentence(gettext_noop("Group %(group)s has no holders."), group=name) for name in empty)
    warnings = plan.aggregator.warnings(plan.votes, classes)
    return replace(plan, left_out=empty + plan.left_out, notes=(*nobody, *plan.notes, *warnings))


def _plan_standard(groups: list[PrivacyGroup], teachers: int, aggregator: Aggregator) -> Plan:
    everyone = _group_plan(groups, teachers)
    notes: tuple[Sentence, ...] = ()
    if everyone.merged:
        note = gettext_noop("All groups use the smallest ε, which is %(epsilon)g for %(group)s.")
        notes = (Sentence(note, epsilon=everyone.epsilon, group=everyone.name),)
    return Plan("standard", (everyone,), aggregator, teachers, notes=notes)


def _factors(groups: Sequence[PrivacyGroup], scheme: str, delta: float, precision: int) -> NDArray[np.int64]:
    epsilons = [group.epsilon for group in groups]
    if scheme == "gdp":
        return factors_for_most_labels(gdp_mu(epsilons, delta), [group.holders for group in groups])
    return upsampling_factors(epsilons, precision)


def _plan_upsampling(
    groups: list[PrivacyGroup], teachers: int, aggregator: Aggregator, factors: NDArray[np.int64]
) -> Plan:
    holders = np.array([group.holders for group in groups])
    growth = float(holders @ factors / holders.sum())
    grown = round(teachers * growth)
    if factors.max() > grown:
        problem = gettext_noop(
            "Upsampling would need %(copies)d copies of a holder, but there are only %(teachers)d teachers. Use more "
            "teachers or round the budgets more coarsely."
        )
        raise PlanError(Sentence(problem, copies=int(factors.max()), teachers=grown))
    return Plan(
        variant="upsampling",
        groups=tuple(
            replace(_group_plan([group], grown), factor=int(factor))
            for group, factor in zip(groups, factors, strict=True)
        ),
        aggregator=aggregator.scaled(growth),
        teachers=grown,
    )


def _plan_teachers_of_one_group(
    groups: list[PrivacyGroup], teachers: int, aggregator: Aggregator, variant: str, small_groups: str
) -> tuple[Plan, list[PrivacyGroup]]:
    """Distribute teachers in proportion to holders, merging or leaving out groups that are too small.

    Returns:
        The plan, and the groups whose holders have yet to be copied into other groups' teachers.
    """
    parts, copied = [[group] for group in groups], list[PrivacyGroup]()
    left_out: list[str] = []
    notes: list[Sentence] = []
    while True:
        holders = [sum(group.holders for group in part) for part in parts]
        counts = largest_remainder(holders, teachers).tolist()
        if small_groups != "leave_out" and counts[0] == 0:
            counts = [1, *largest_remainder(holders[1:], teachers - 1).tolist()]
        small = [i for i, n in enumerate(holders) if counts[i] == 0 or 2 * n * teachers < sum(holders)]
        unhelped = 0 if small_groups != "leave_out" and 0 in small else None
        small = [i for i in small if i != unhelped]
        usual = round(sum(holders) / teachers)
        if not small:
            break
        i = min(small, key=lambda i: holders[i])
        words = {"group": parts[i][0].name, "holders": holders[i], "usual": usual}
        if small_groups == "merge":
            merged = gettext_noop(
                "Group %(group)s has too few holders for a teacher (%(holders)d; usually about %(usual)d), so it is "
                "merged into %(other)s."
            )
            notes.append(Sentence(merged, **words, other=parts[i - 1][0].name))
            parts[i - 1] += parts.pop(i)
        elif small_groups == "copy":
            copied += parts.pop(i)
        else:
            alone = gettext_noop(
                "Group %(group)s has too few holders for a teacher (%(holders)d; usually about %(usual)d), so it is "
                "left out."
            )
            notes.append(Sentence(alone, **words))
            left_out += [group.name for group in parts.pop(i)]
    if unhelped is not None:
        small_teacher = gettext_noop(
            "Group %(group)s has few holders for a teacher (%(holders)d; usually about %(usual)d) and no stricter "
            "group to merge into, so its only teacher learns from few records."
        )
        notes.append(Sentence(small_teacher, group=parts[unhelped][0].name, holders=holders[unhelped], usual=usual))
    plan = Plan(
        variant=variant,
        groups=tuple(_group_plan(part, count) for part, count in zip(parts, counts, strict=True)),
        aggregator=aggregator,
        teachers=teachers,
        left_out=tuple(left_out),
        notes=tuple(notes),
    )
    return plan, copied


def _with_weights(
    plan: Plan, copied: Sequence[PrivacyGroup], scheme: str, delta: float, conversion: Conversion
) -> Plan:
    """Set the weights of all teachers, and copy holders of groups without teachers into other groups' teachers."""
    everyone = [*plan.groups, *(_group_plan([group], 0) for group in copied)]
    weights = teacher_weights(
        [group.epsilon for group in everyone], [group.teachers for group in everyone], scheme, delta, conversion
    )
    # Rounded to the grid on which noise is drawn, so that counts also lie on the grid.
    gridded = np.rint(weights / GRID) * GRID
    hosts = [replace(each, weight=float(weight)) for each, weight in zip(plan.groups, gridded, strict=False)]
    exact = {each.name: float(weight) for each, weight in zip(everyone, weights, strict=True)}
    guests = [_with_copied_holders(each, exact, hosts) for each in everyone[len(hosts) :]]
    notes = [
        Sentence(
            gettext_noop(
                "Group %(group)s has too few holders for a teacher (%(holders)d), so %(copies)d teachers of "
                "%(other)s learn from each of these holders."
            ),
            group=guest.name,
            holders=guest.holders,
            copies=guest.factor,
            other=guest.host,
        )
        for guest in guests
    ]
    groups = tuple(sorted([*hosts, *guests], key=lambda group: group.epsilon))
    return replace(plan, groups=groups, notes=(*plan.notes, *notes))


def _with_copied_holders(guest: GroupPlan, exact: Mapping[str, float], hosts: Sequence[GroupPlan]) -> GroupPlan:
    """Copy a group's holders into as many teachers of a stricter group as the group's own weight allows.

    The charge grows with the square of these teachers' total weight, as for a single teacher of that weight.

    Args:
        exact: Weight of each group before rounding to the grid. Rounded weights would give wrong ratios, such as
            2.99998 instead of 3.
    """

    def copies(host: GroupPlan) -> int:
        return max(1, min(int(exact[guest.name] / exact[host.name] * (1 + 1e-9)), host.teachers))

    stricter = [host for host in hosts if host.epsilon <= guest.epsilon]
    host = max(stricter, key=lambda each: (copies(each) * each.weight, -copies(each)))
    return replace(guest, weight=host.weight, factor=copies(host), host=host.name)


def _with_participation(plan: Plan, exponent: float, scheme: str, delta: float) -> Plan:
    budgets = np.array([group.epsilon for group in plan.groups])
    if scheme == "gdp":
        budgets, exponent = gdp_mu(budgets, delta), 2.0
    frequencies = participation_frequencies(budgets, exponent)
    groups = tuple(
        replace(group, participants=max(1, round(group.teachers * frequency)))
        for group, frequency in zip(plan.groups, frequencies, strict=True)
    )
    share = sum(group.participants for group in groups) / plan.teachers
    return replace(plan, groups=groups, aggregator=plan.aggregator.scaled(share))


def _group_plan(part: list[PrivacyGroup], teachers: int) -> GroupPlan:
    """Merge several groups, sorted strictest first, into a group with the smallest of their budgets."""
    strictest, *others = part
    return GroupPlan(
        name=strictest.name,
        epsilon=min(group.epsilon for group in part),
        holders=sum(group.holders for group in part),
        teachers=teachers,
        participants=teachers,
        merged=tuple(group.name for group in others),
    )


def _require_groups(groups: Sequence[PrivacyGroup]) -> list[PrivacyGroup]:
    """Return the groups that have holders, strictest first."""
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise PlanError(f"Two groups have the same name ({', '.join(names)}): give each its own.")
    present = [group for group in groups if group.holders > 0]
    if not present:
        raise PlanError(gettext_noop("No holder has consented yet. Wait for consents before you plan a run."))
    for group in present:
        if not math.isfinite(group.epsilon) or group.epsilon <= 0:
            raise PlanError(
                f"The budget of group {group.name} must be a finite ε above 0, not {group.epsilon}: set an ε policy."
            )
    return sorted(present, key=lambda group: group.epsilon)


def _require_teachers(teachers: int, groups: list[PrivacyGroup]) -> None:
    if teachers < 1:
        raise PlanError(f"A run needs at least 1 teacher, not {teachers}: request more.")
    holders = sum(group.holders for group in groups)
    if holders < teachers:
        problem = gettext_noop(
            "%(holders)d holders are too few for %(teachers)d teachers. Use at most %(holders)d teachers."
        )
        raise PlanError(Sentence(problem, holders=holders, teachers=teachers))


def _require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise PlanError(f"There is no {name} {value!r}: choose one of {', '.join(choices)}.")
