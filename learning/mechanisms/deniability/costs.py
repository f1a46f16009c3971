"""Choices of rows by plausible deniability, and the plan: the cost of each row, and of all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from accounting.privacy.papers.deniability import composed_epsilon, row_cost
from common.declarations import Stored
from common.sentences import Sentence, gettext_noop
from learning.mechanisms.choices import Choices, Fault, choice

COUNTS = (1, 10, 100, 1_000, 10_000)
"""Numbers of released rows for which a plan states the joint cost."""


@dataclass(frozen=True)
class Deniability(Choices):
    """See :class:`learning.mechanisms.choices.Choices`. The defaults are the paper's, except the number of rows."""

    released: int = choice(
        int,
        1000,
        gettext_noop("Rows to release"),
        gettext_noop("Each row has a cost of its own. The plan shows the total."),
        minimum=1,
        maximum=100_000,
    )
    plausible: int = choice(
        int,
        50,
        gettext_noop("Plausible seeds (k)"),
        gettext_noop("A row is released only if about this many records could equally well have been its seed."),
        minimum=2,
        maximum=100_000,
    )
    gamma: float = choice(
        float,
        4.0,
        gettext_noop("How similar plausible seeds are (γ)"),
        gettext_noop("Their probabilities of producing the row lie between the same two powers of γ."),
        minimum=1.01,
        maximum=1000.0,
    )
    epsilon0: float = choice(
        float,
        1.0,
        gettext_noop("ε₀ of the test"),
        gettext_noop("The number of plausible seeds is compared with k plus Laplace noise of scale 1/ε₀."),
        minimum=0.01,
        maximum=100.0,
    )
    fewest: int | None = choice(
        int,
        None,
        gettext_noop("Redrawn columns, at least (ω)"),
        gettext_noop("The others are copied from the seed. The classes count as a column."),
        minimum=0,
        maximum=1000,
        unset=gettext_noop("all but two"),
    )
    most: int | None = choice(
        int,
        None,
        gettext_noop("Redrawn columns, at most (ω)"),
        gettext_noop("For each row, the number is drawn between the two."),
        minimum=0,
        maximum=1000,
        unset=gettext_noop("all of them"),
    )
    values: int = choice(
        int,
        20,
        gettext_noop("Values of a column of numbers"),
        gettext_noop("Bins of equal width over the range declared in the schema."),
        minimum=2,
        maximum=100,
    )
    network: float = choice(
        float,
        1.0,
        gettext_noop("ε of the network"),
        gettext_noop(
            "For the quarter of the records that determines its structure, and for the quarter that "
            "determines its parameters."
        ),
        minimum=0.01,
        maximum=100.0,
    )

    def faults(self) -> Iterator[Fault]:
        if self.fewest is not None and self.most is not None and self.fewest > self.most:
            yield "fewest", "At least more columns than at most: exchange the two."


@dataclass(frozen=True)
class RowsCost(Stored):
    """Cost of several released rows together, at the study's δ."""

    rows: int
    epsilon: float


@dataclass(frozen=True)
class DeniabilityPlan(Stored):
    """Plan of a release.

    Attributes:
        rows: number of rows to release.
        k, gamma, epsilon0: of the test.
        fewest, most: numbers of columns that are drawn again.
        network: ε of the structure, and of the parameters, for separate records.
        epsilon, delta, t: cost of one row to a seed, by Theorem 1.
        costs: of several rows, the planned number last.
    """

    rows: int
    k: int
    gamma: float
    epsilon0: float
    fewest: int
    most: int
    network: float
    epsilon: float
    delta: float
    t: int
    costs: tuple[RowsCost, ...]

    @property
    def omegas(self) -> range:
        """Possible numbers of redrawn columns; one is drawn for each row."""
        return range(self.fewest, self.most + 1)

    @property
    def spent(self) -> float:
        """The largest ε that the run costs anybody: of a seed, or of a record of the network."""
        return max(self.costs[-1].epsilon, self.network)


def plan_deniability(chosen: Deniability, *, columns: int, records: int, delta: float) -> DeniabilityPlan:
    """Plan the cost of rows whose seeds are one half of the records.

    Args:
        chosen: The choices.
        columns: Their number, including the classes.
        records: Their number.
        delta: Of the study; a tenth of it is for the δ of all rows.

    Raises:
        ValueError: ω exceeds the number of columns, k the number of seeds, or k or ε₀ is too small for δ.

    >>> plan = plan_deniability(Deniability(), columns=11, records=30_000, delta=1e-5)
    >>> list(plan.omegas), plan.t, round(plan.epsilon, 2), round(plan.costs[-1].epsilon)
    ([9, 10, 11], 29, 1.13, 704)
    """
    most = columns if chosen.most is None else chosen.most
    fewest = min(max(columns - 2, 0), most) if chosen.fewest is None else chosen.fewest
    if not fewest <= most <= columns:
        raise ValueError(f"From {fewest} to {most} columns are to be drawn anew, and there are {columns}.")
    if chosen.plausible > records // 2:
        raise ValueError(
            f"Half of {records} records are seeds, and {chosen.plausible} of them are to be plausible: no row could be "
            "released. Take a smaller k, or more records."
        )
    of_row = delta / (10 * chosen.released)
    epsilon, t = row_cost(chosen.plausible, chosen.gamma, chosen.epsilon0, of_row)
    counts = [*(number for number in COUNTS if number < chosen.released), chosen.released]
    costs = tuple(RowsCost(number, composed_epsilon(epsilon, of_row, number, delta)) for number in counts)
    return DeniabilityPlan(
        chosen.released,
        chosen.plausible,
        chosen.gamma,
        chosen.epsilon0,
        fewest,
        most,
        chosen.network,
        epsilon,
        of_row,
        t,
        costs,
    )


def plan_notes(plan: DeniabilityPlan, promised: float) -> tuple[Sentence, ...]:
    """Return notes for the people who plan such rows; ``promised`` is the largest ε of the rehearsal."""
    if plan.spent <= promised:
        return ()
    return (
        Sentence(
            gettext_noop(
                "Together, the %(rows)d rows cost ε = %(spent).1f, but the largest promise in this rehearsal is "
                "%(promised)g, so nobody could be promised this. Rows from noisy counts cost the same no matter how "
                "many are drawn."
            ),
            rows=plan.rows,
            spent=plan.spent,
            promised=promised,
        ),
    )
