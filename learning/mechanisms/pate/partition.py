"""Partition of the holders over the teachers."""

import hashlib
import random
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learning.mechanisms.pate.draws import balanced_draws
from learning.mechanisms.pate.plan import LEFT_OUT, Plan

#: Into how many parts an assignment is cut, however many holders there are: its progress tells nothing of their number.
_PARTS = 10


def assign(
    plan: Plan, group_of_holder: ArrayLike, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign every holder to as many different teachers as their group has duplicates, mostly one.

    All records of a holder follow the holder, so that their influence on a vote is that of these teachers. The sizes of
    the teachers that share a group differ by at most one holder.

    plan: the run's plan.  group_of_holder: `(holders,)`, each holder's index in `plan.groups` as `plan.index_of` gives
    it; `LEFT_OUT` for a holder that takes no part.  rng: only decides the partition; the privacy of nobody rests on it.

    Returns two arrays `(assignments,)`: the position of a holder, and the teacher that learns from them. Raises
    ValueError if the holders are not those that were planned for.

    >>> from learning.mechanisms.pate import GNMax, Group, make_plan
    >>> plan = make_plan([Group("HIGH", 1.0, 2), Group("LOW", 2.0, 4)], variant="weighting", teachers=3,
    ...                  aggregator=GNMax(sigma=1.0), delta=1e-5)
    >>> holder, teacher = assign(plan, [0, 0, 1, 1, 1, 1], np.random.default_rng(0))
    >>> sorted(zip(holder.tolist(), teacher.tolist()))[:2]  # both HIGH holders with the one HIGH teacher
    [(0, 0), (1, 0)]
    >>> np.bincount(teacher)
    array([2, 2, 2])
    """
    groups = np.asarray(group_of_holder)
    _require_planned(plan, groups)
    if plan.variant == "upsampling":
        return _assign_duplicates(plan, groups, rng)
    holders, teachers = [], []
    for index, group in enumerate(plan.groups):
        members = np.repeat(rng.permutation(np.flatnonzero(groups == index)), group.factor)
        own = np.flatnonzero(plan.members(index))
        holders.append(members)
        teachers.append(own[np.arange(len(members)) % len(own)])  # copies of one holder are in different teachers
    return np.concatenate(holders), np.concatenate(teachers)


def _assign_duplicates(
    plan: Plan, groups: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    holders = rng.permutation(np.flatnonzero(groups != LEFT_OUT))
    factors = np.array([group.factor for group in plan.groups])[groups[holders]]
    return np.repeat(holders, factors), np.concatenate(list(balanced_draws(factors, plan.teachers, rng)))


def _require_planned(plan: Plan, groups: NDArray[np.int64]) -> None:
    if groups.ndim != 1 or not np.issubdtype(groups.dtype, np.integer):
        raise ValueError(f"group_of_holder must be a list of integers, not {groups.dtype} of {groups.shape}.")
    if groups.size and (groups.min() < LEFT_OUT or groups.max() >= len(plan.groups)):
        raise ValueError(
            f"group_of_holder runs from {groups.min()} to {groups.max()}, but the plan has {len(plan.groups)} groups: "
            "use plan.index_of."
        )
    planned = [group.holders for group in plan.groups]
    counts = np.bincount(groups[groups != LEFT_OUT], minlength=len(planned)).tolist()
    if counts != planned:
        raise ValueError(f"The plan is for {planned} holders per group, not {counts}: make the plan anew.")


def assign_keyed(
    plan: Plan,
    holders: ArrayLike,
    group_of_holder: ArrayLike,
    key: bytes,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign every holder to teachers by a keyed hash of the holder alone: who else takes part changes nothing.

    That is what the guarantee asks of a real run (condition 3): adding or removing a holder moves nobody else. The
    sizes of teachers differ by chance, and one may be empty: it casts no vote.

    plan: the run's plan.  holders: `(holders,)` ids.  group_of_holder: `(holders,)` indices in `plan.groups`, or
    `LEFT_OUT`.  key: secret and random, at most 64 bytes, one for the run.  progress: told how many parts of the
    work are done, and of how many: the same calls however many holders there are.

    Returns as :func:`assign` does: positions in `holders`, and teachers.

    >>> from learning.mechanisms.pate import GNMax, Group, make_plan
    >>> plan = make_plan([Group("HIGH", 1.0, 4)], variant="standard", teachers=3, aggregator=GNMax(sigma=1.0),
    ...                  delta=1e-5)
    >>> assign_keyed(plan, [7, 8, 9, 10], [0, 0, 0, 0], b"key")[1].tolist() == [
    ...     assign_keyed(plan, [holder], [0], b"key")[1][0] for holder in (7, 8, 9, 10)]
    True
    """
    own = [np.flatnonzero(plan.members(index)).tolist() for index in range(len(plan.groups))]
    positions, teachers = [], []
    ids = np.asarray(holders)
    groups = np.asarray(group_of_holder)
    for part in range(_PARTS):
        progress(part, _PARTS)
        for position in range(len(ids) * part // _PARTS, len(ids) * (part + 1) // _PARTS):
            holder, group = int(ids[position]), int(groups[position])
            if group == LEFT_OUT:
                continue
            digest = hashlib.blake2b(holder.to_bytes(8, "big"), key=key, digest_size=32).digest()
            drawn = random.Random(digest).sample(own[group], plan.groups[group].factor)  # noqa: S311, keyed by the digest
            positions += [position] * len(drawn)
            teachers += drawn
    return np.array(positions, dtype=np.int64), np.array(teachers, dtype=np.int64)


def teacher_seed(key: bytes, teacher: int) -> int:
    """The seed of a teacher's random stream: its own, whoever its members are."""
    return int.from_bytes(hashlib.blake2b(teacher.to_bytes(8, "big"), key=key, person=b"seed", digest_size=4).digest())
