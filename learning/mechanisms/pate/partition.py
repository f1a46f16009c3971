"""Assignment of holders to teachers and, in the vanishing variant, of teachers to votes.

In the vanishing variant, teachers of stricter groups take part in fewer votes.

**Why a holder pays only for their teacher's votes.** The set of teachers that take part in a vote is drawn only from
public numbers (group sizes, budgets, coins), never from predictions. These sets can therefore be treated as fixed, as
if they had been published beforehand. Given the sets, a vote without the holder's teacher is the same on neighbouring
data, so it costs the holder nothing. Any other vote costs what the aggregator charges for a vote among its
participants. By the composition of RDP, each *teacher* has its own sum, which is the cost to its holders. Since this is
true for any sets, they need not be kept secret.

A privacy group has a single account, not one per teacher. At each order, the account's curve is the largest of its
teachers' sums. `participation_costs` splits this curve into the costs of single queries.

In a real study, charges follow Gaussian differential privacy, independent of the votes: each teacher is charged for the
queries in which it took part, according to the public seed (`public_participation`). Every teacher then has a separate
account in the ledger (`learning.mechanisms.pate.ballots`).

**Not claimed.** First, that a group that takes part in a share f of the votes pays f times the cost of all votes: the
teacher in the most expensive votes pays more, and the guarantee must cover its holders too. Second, amplification by
sampling: the sets would have to stay secret, and no bound has been proved for GNMax on sampled votes under
data-dependent costs. Charging a group for votes that its teachers missed is sound, but wasteful.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learning.mechanisms.pate.aggregators import QueryCosts
from learning.mechanisms.pate.plan import LEFT_OUT, Plan

#: Number of parts of an assignment. It is fixed, so that progress does not reveal the number of holders.
_PARTS = 10


def balanced_draws(sizes: Iterable[int], items: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield, for each size, that number of different items: those drawn least often so far, with ties broken randomly.

    At any time, the numbers of draws of two items differ by at most one. No size may exceed `items`.

    >>> draws = list(balanced_draws([2, 2, 2], 3, np.random.default_rng(0)))
    >>> np.bincount(np.concatenate(draws))
    array([2, 2, 2])
    """
    drawn = np.zeros(items)
    for size in sizes:
        # tie-breaks below 1 never change the order of different counts
        chosen = np.argsort(drawn + rng.random(items))[:size]
        drawn[chosen] += 1.0
        yield chosen


def assign(
    plan: Plan, group_of_holder: ArrayLike, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign every holder to as many different teachers as the plan prescribes for their group (usually one).

    All records of a holder go to the same teachers, so the holder influences only these teachers' votes. The sizes of
    teachers of the same group differ by at most one holder.

    Args:
        plan: The run's plan.
        group_of_holder: `(holders,)` index of each holder's group in `plan.groups`, from `plan.index_of`; `LEFT_OUT`
            for a holder who takes no part.
        rng: Generator used only to assign holders; privacy does not depend on it.

    Returns:
        Two arrays `(assignments,)`: positions of holders, and the teachers that learn from them.

    Raises:
        ValueError: The holders differ from those in the plan.

    >>> from learning.mechanisms.pate import GNMax, PrivacyGroup, make_plan
    >>> plan = make_plan([PrivacyGroup("HIGH", 1.0, 2), PrivacyGroup("LOW", 2.0, 4)], variant="weighting", teachers=3,
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
        teachers.append(own[np.arange(len(members)) % len(own)])  # each copy of a holder goes to a different teacher
    return np.concatenate(holders), np.concatenate(teachers)


def assign_keyed(
    plan: Plan,
    holders: ArrayLike,
    group_of_holder: ArrayLike,
    key: bytes,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign every holder to teachers by a keyed hash of the holder's id, regardless of who else takes part.

    A real run's guarantee requires this (docs/gaussian-accounts.md, condition 3): if a holder is added or removed, no
    other holder moves to another teacher. The sizes of teachers differ by chance; an empty teacher does not vote.

    Args:
        plan: The run's plan.
        holders: `(holders,)` ids.
        group_of_holder: `(holders,)` indices in `plan.groups`, or `LEFT_OUT`.
        key: Secret and random, at most 64 bytes, one per run.
        progress: Called with the number of parts done and the total number of parts; the calls are the same for any
            number of holders.

    Returns:
        The same as :func:`assign`: positions in `holders`, and teachers.

    >>> from learning.mechanisms.pate import GNMax, PrivacyGroup, make_plan
    >>> plan = make_plan([PrivacyGroup("HIGH", 1.0, 4)], variant="standard", teachers=3, aggregator=GNMax(sigma=1.0),
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
    """Return the seed of a teacher's random stream, which does not depend on its members."""
    return int.from_bytes(hashlib.blake2b(teacher.to_bytes(8, "big"), key=key, person=b"seed", digest_size=4).digest())


def draw_participation(plan: Plan, queries: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw a mask `(teachers, queries)` of the teachers that take part in each vote.

    For each vote, every group draws its planned number of participants from the teachers that have taken part least
    often so far, breaking ties randomly. The size of the vote is therefore constant, and the numbers of votes of two
    teachers in a group never differ by more than one. In variants other than "vanishing", every teacher takes part in
    every vote.

    Call this once for all queries of a run, and keep the result or the seed of ``rng``. The generator must not depend
    on predictions.

    >>> from learning.mechanisms.pate import GNMax, PrivacyGroup, make_plan
    >>> plan = make_plan([PrivacyGroup("HIGH", 1.0, 40), PrivacyGroup("LOW", 2.0, 40)], variant="vanishing", teachers=8,
    ...                  aggregator=GNMax(sigma=1.0), delta=1e-5)
    >>> draw_participation(plan, 8, np.random.default_rng(0)).sum(axis=1)
    array([2, 2, 2, 2, 8, 8, 8, 8])
    """
    present = np.ones((plan.teachers, queries), dtype=np.bool_)
    if plan.variant != "vanishing":
        return present
    for index, group in enumerate(plan.groups):
        own = np.flatnonzero(plan.members(index))
        present[own] = False
        for query, drawn in enumerate(balanced_draws([group.participants] * queries, group.teachers, rng)):
            present[own[drawn], query] = True
    return present


def public_participation(plan: Plan, queries: int, seed: str) -> NDArray[np.bool_]:
    """Return a mask `(teachers, queries)` of the teachers that take part in each query of a real vote.

    This is `draw_participation` with only a public seed. Anyone with the plan and the seed can repeat the draw with any
    version of NumPy, because NumPy's raw random bits never change. A member is charged for exactly the queries in which
    their teacher takes part, including queries on which the teacher does not vote because a member has left.

    Args:
        seed: Any public string that is fixed before anyone looks at the records.

    >>> from learning.mechanisms.pate import GNMax, PrivacyGroup, make_plan
    >>> plan = make_plan([PrivacyGroup("HIGH", 1.0, 40), PrivacyGroup("LOW", 2.0, 40)], variant="vanishing", teachers=8,
    ...                  aggregator=GNMax(sigma=1.0), delta=1e-5)
    >>> public_participation(plan, 8, "run 1").sum(axis=1), public_participation(plan, 8, "run 1").sum(axis=0)
    (array([2, 2, 2, 2, 8, 8, 8, 8]), array([5, 5, 5, 5, 5, 5, 5, 5]))
    """
    present = np.zeros((plan.teachers, queries), dtype=np.bool_)
    for index, group in enumerate(plan.groups):
        own = np.flatnonzero(plan.members(index))
        key = hashlib.sha256(f"{seed}, group {index}".encode()).digest()
        ties = np.random.PCG64(int.from_bytes(key)).random_raw(queries * len(own)).reshape(queries, len(own))
        drawn = np.zeros(len(own), dtype=np.int64)
        for query in range(queries):
            chosen = np.lexsort((ties[query], drawn))[: group.participants]
            drawn[chosen] += 1
            present[own[chosen], query] = True
    return present


def participation_costs(costs: QueryCosts, participation: ArrayLike, answered: ArrayLike) -> QueryCosts:
    """Return the cost that each query adds to a group's account if only some of its teachers take part.

    The account is max_t Σ check + max_t Σ label over the group's teachers t, at each order. The sums are over the
    queries in which t took part; the sum of labels includes only answered queries. The cost of a query is what it adds
    to the account; its `label` assumes that it is answered. A query's cost therefore does not depend on its own noise,
    and the costs paid add up to the account.

    Args:
        costs: Cost of one vote to a participant, `(queries, R)`.
        participation: `(teachers, queries)`, the group's rows.
        answered: `(queries,)`, True if a query was answered.

    >>> costs = QueryCosts(check=np.full((3, 1), 0.1), label=np.full((3, 1), 1.0))
    >>> added = participation_costs(costs, [[True, False, True], [False, True, False]], [True, True, True])
    >>> added.check.ravel(), added.label.ravel()  # the third query is the first teacher's second
    (array([0.1, 0. , 0.1]), array([1., 0., 1.]))
    """
    present, answers = _require_participation(costs, participation, answered)
    every_answer = np.ones_like(answers)
    return QueryCosts(
        check=_increments(costs.check, present, every_answer), label=_increments(costs.label, present, answers)
    )


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
        raise ValueError(f"The plan is for {planned} holders per group, not {counts}: recompute the plan.")


def _increments(costs: NDArray[np.float64], present: NDArray[np.bool_], paid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the amounts `(queries, R)` that queries add to the teachers' largest sum of costs.

    Sums include only ``paid`` queries.
    """
    sums = np.zeros((len(present), costs.shape[1]))
    added = np.empty_like(costs)
    for query, cost in enumerate(costs):
        raised = sums + present[:, query, None] * cost
        added[query] = raised.max(axis=0) - sums.max(axis=0)
        if paid[query]:
            sums = raised
    return added


def _require_participation(
    costs: QueryCosts, participation: ArrayLike, answered: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    present, answers = np.asarray(participation, dtype=np.bool_), np.asarray(answered, dtype=np.bool_)
    queries = len(costs.check)
    if present.ndim != 2 or present.shape[1] != queries or len(present) == 0 or answers.shape != (queries,):
        raise ValueError(
            f"For {queries} queries, participation must have the shape (teachers, {queries}), not {present.shape}, and "
            f"answered ({queries},), not {answers.shape}: pass the group's rows of draw_participation for this batch."
        )
    return present, answers
