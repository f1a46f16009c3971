"""Choices and plan of a run in which every holder votes: the points asked in each round, and the noise.

A public rule makes any choice that is left open. The plan of a run is based on public points, caps and noisy head
counts. The second round is planned again after the first has been released (`next_round`). The noisy counts then show
how many people take part and how many of the voters near a point agree, which determines how little noise the accounts
allow. The plan may depend on these counts because they are releases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.sentences import Sentence, gettext_noop
from learning.libraries import one_thread
from learning.mechanisms.choices import ROUNDS, Fault, HolderChoices, choice, representation_choice
from learning.mechanisms.neighbours.forecast import (
    PURITY,
    RoundForecast,
    expected_voters,
    forecast,
    propose,
    released_accuracy,
)
from learning.mechanisms.neighbours.surrogates import Sample
from learning.mechanisms.neighbours.votes import KERNELS
from learning.mechanisms.protocol import PlannedLevel

LARGEST_SIGMA = 16_384.0
"""Largest standard deviation of the noise in a count. It is 2³⁰ times the unit in which votes are counted."""

_BY_FORECAST = gettext_noop("If you leave this empty, the forecast sets the value.")
_UNSET = gettext_noop("chosen by the forecast")
_SEVERAL = {"rounds": (None, *(rounds for rounds in ROUNDS if rounds > 1))}
_KERNEL_LABELS = {
    "uniform": gettext_noop("in full within the radius"),
    "epanechnikov": gettext_noop("less with increasing distance (Epanechnikov)"),
}

MOST_FIRST = 600
"""Default maximum number of points in the first of two rounds; see `first_queries`."""

_LEAST_FIRST = 6  # minimum number of queries per class in the first of two rounds
_ONE_ROUND = 0.97  # share of queries at which the right class must lead for a single round to be enough
_LEAST_AGREEMENT, _MOST_AGREEMENT = 0.51, 0.98
_UNEVEN = 1.5  # factor for disagreement, because the same holders are charged each time the student repeats an error


@dataclass(frozen=True)
class NeighbourChoices(HolderChoices):
    """Choices about the votes. See :class:`learning.mechanisms.choices.Choices`."""

    representation: str = representation_choice(
        gettext_noop("The space in which distances between neighbours are measured, fitted only on the public points.")
    )
    rounds: int | None = choice(
        1,
        gettext_noop("Rounds"),
        gettext_noop("From the second round on, votes correct the current student's predictions."),
        minimum=1,
        maximum=len(ROUNDS),
        values=ROUNDS,
        optional=True,
        unset=_UNSET,
    )
    first_queries: int | None = choice(
        None,
        gettext_noop("Points in the first round"),
        gettext_noop("Leave empty to use one fifteenth of all queried points, up to 600."),
        minimum=1,
        maximum=10**9,
        unset=gettext_noop("one fifteenth of all queried points, up to 600"),
        only_if=_SEVERAL,
    )
    embedded: bool = choice(
        False,
        gettext_noop("Compare points by the student's inner layer in the second round"),
        gettext_noop("This applies only if the first round's student has an inner layer, as neural networks do."),
        only_if=_SEVERAL,
    )
    sigma: float | None = choice(
        None,
        gettext_noop("Noise in each count (σ)"),
        _BY_FORECAST,
        minimum=1e-3,
        maximum=LARGEST_SIGMA,
        unset=_UNSET,
    )
    radius_share: float | None = choice(
        None,
        gettext_noop("Radius, as the percentage of public points within it"),
        _BY_FORECAST,
        minimum=1e-9,
        maximum=1.0,
        unset=_UNSET,
        percent=True,
    )
    kernel: str = choice(
        "uniform", gettext_noop("Record weight"), values={name: _KERNEL_LABELS[name] for name in KERNELS}
    )
    records: float = choice(
        1.0,
        gettext_noop("Records per holder"),
        gettext_noop("A public number for the forecast. It is not counted from the data."),
        minimum=1.0,
        maximum=1e4,
    )

    def faults(self) -> Iterator[Fault]:
        yield from super().faults()
        if self.first_queries is not None and self.rounds == 1:
            yield "first_queries", "first_queries needs several rounds: a single round asks about all points."
        if self.embedded and self.rounds == 1:
            yield "embedded", "embedded needs several rounds: in a single round there is no student yet."


def split_share(share: float, rounds: int) -> list[float]:
    """Return the share of each round: equal parts that are fixed before any release and add up to at most `share`.

    >>> split_share(0.5, 2)
    [0.25, 0.25]
    """
    if rounds < 1 or not 0 < share <= 1:
        raise ValueError(f"A share in (0, 1] is split over at least one round, not {share} over {rounds}.")
    return [share / rounds] * rounds


def spread_queries(public: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return the points to ask first: those nearest to the centres of `count` clusters of the public points.

    Args:
        public: `(P, d)` coordinates.
        count: Number of points, from 1 to P.

    Returns:
        `(count,)` different positions in ascending order, always the same for the same points.
    """
    from sklearn.cluster import MiniBatchKMeans

    points = np.asarray(public, np.float32)
    if not 1 <= count <= len(points):
        raise ValueError(f"{count} of {len(points)} public points cannot be chosen: request fewer or add points.")
    if count == len(points):
        return np.arange(count)
    with one_thread():
        clusters = MiniBatchKMeans(count, random_state=0, n_init=1, batch_size=4096, reassignment_ratio=0.0).fit(points)
    distances = ((points - clusters.cluster_centers_[clusters.labels_]) ** 2).sum(axis=1)
    order = np.lexsort((distances, clusters.labels_))
    firsts = order[np.unique(clusters.labels_[order], return_index=True)[1]]
    # an empty cluster has no nearest point; the point farthest from its own centre is used instead
    rest = np.setdiff1d(np.argsort(-distances, kind="stable"), firsts, assume_unique=True)
    return np.sort(np.concatenate([firsts, rest[: count - len(firsts)]]))


def doubtful_queries(probabilities: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return the points at which the student's two most likely classes are closest, closest first (ties by position).

    Args:
        probabilities: `(P, C)` from the previous round's student, which learned only from releases.

    >>> doubtful_queries([[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]], 2)
    array([1, 2])
    """
    ordered = np.sort(np.asarray(probabilities, np.float64), axis=1)
    lead = ordered[:, -1] - (ordered[:, -2] if ordered.shape[1] > 1 else 0.0)
    return np.argsort(lead, kind="stable")[:count]


def expected_agreement(counts: ArrayLike, expected: ArrayLike) -> float:
    """Return the ratio of participating voters to forecast voters, estimated from a round of plain votes.

    Residual counts do not show how many voters agree with the guess. Public points predict a query's number of voters
    up to a common factor, which depends on participation and the distribution of records. The sum of all noisy counts
    of an earlier round estimates this factor far better than any single count.

    Args:
        counts: `(Q, C)` released counts of that round.
        expected: `(Q,)` numbers of voters forecast for these queries.

    Returns:
        The factor, at least 0. Multiply the next round's forecast by it to get `voters` for `read_counts`.

    >>> expected_agreement([[60, 30], [100, 10]], [100.0, 100.0])
    1.0
    """
    return max(0.0, float(np.sum(counts)) / max(float(np.sum(expected)), 1e-9))


@dataclass(frozen=True, eq=False)
class PlannedRound:
    """Planned round, with its queries and parameters.

    Attributes:
        queries: Positions among the public points.
        residual: Whether votes are cast against the predictions of the previous round's student.
        share: Share of every cap for this and all earlier rounds together.
        agreement: For residual votes, the expected share of voters who agree with the prediction.
    """

    queries: NDArray[np.int64]
    sigma: float
    radius_share: float
    share: float
    forecast: RoundForecast
    agreement: float | None = None

    @property
    def residual(self) -> bool:
        return self.agreement is not None

    @property
    def as_earlier_round(self) -> EarlierRound:
        """The round as an `EarlierRound`, for use after its release."""
        used = {level.name: level.spent for level in self.forecast.levels}
        return EarlierRound(self.queries, self.sigma, self.radius_share, self.share, used)


@dataclass(frozen=True, eq=False)
class EarlierRound:
    """A round of plain votes that has been released.

    Attributes:
        queries: Positions among the public points.
        sigma, radius_share, share: As in `PlannedRound`.
        used: Forecast share of the cap used by the round, by level.
    """

    queries: NDArray[np.int64]
    sigma: float
    radius_share: float
    share: float
    used: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class RoundsPlan:
    """Planned rounds in order; ``chosen`` is the reason for the number of rounds, if the planner chose it."""

    rounds: tuple[PlannedRound, ...]
    chosen: Sentence | None = None


def first_queries(points: int, n_classes: int) -> int:
    """Return the size of the first of two rounds: 1/15 of the points, at most 600, at least 6 per class, at most half.

    >>> first_queries(9000, 10), first_queries(300, 10), first_queries(50, 10)
    (600, 60, 25)
    """
    return min(max(1, points // 2), max(min(points // 15, MOST_FIRST), _LEAST_FIRST * n_classes))


def plan_rounds(
    public: ArrayLike,
    levels: Sequence[PlannedLevel],
    *,
    share: float,
    n_classes: int,
    rounds: int | None = None,
    wanted: int | None = None,
    first: int | None = None,
    sample: Sample | None = None,
    sigma: float | None = None,
    radius_share: float | None = None,
) -> RoundsPlan:
    """Return the proposed rounds for a requested number of labels, with their forecasts.

    A single round asks about one point for each requested label. With two rounds, the first asks about a few points
    spread over the public points, and the second about all others by residual votes. Each round gets half of the
    share; in the second round, holders may also use what they did not spend in the first.

    Args:
        public: `(P, d)` coordinates of the first round.
        levels: Levels with noisy or public head counts.
        share: Share of every cap that the run may use.
        n_classes: Number of classes, at least 2.
        rounds: 1 or 2; if None, one round if the right class is expected to lead in 97 % of its queries, otherwise
            two.
        wanted: Number of labels; None for all public points.
        first: Number of points in the first of two rounds; None for `first_queries`.
        sample: Labelled public points, in the same coordinates; None to assume a purity.
        sigma, radius_share: Manual choices, which replace the proposal.

    Raises:
        ValueError: A number is out of range.
    """
    points = np.asarray(public)
    count = len(points) if wanted is None else wanted
    if not 1 <= count <= len(points):
        raise ValueError(
            f"{count} labels were requested, but there are {len(points)} public points: request 1 or more."
        )
    if rounds not in (None, 1, 2):
        raise ValueError(f"A run has 1 or 2 rounds, not {rounds}.")
    chosen, by_hand = spread_queries(points, count), (sigma, radius_share)
    beginning = min(count, first_queries(count, n_classes) if first is None else first)
    alternative = None
    if rounds != 2:
        single = _proposed(points, chosen, levels, share, n_classes, sample, by_hand)
        enough = beginning == count or single.forecast.clear >= _ONE_ROUND
        alternative = _chosen(single.forecast, enough) if rounds is None else None
        if rounds == 1 or enough:
            return RoundsPlan((single,), alternative)
    opening = chosen[spread_queries(points[chosen], beginning)]
    shares = np.cumsum(split_share(share, 2)).tolist()
    planned = [_proposed(points, opening, levels, shares[0], n_classes, sample, by_hand)]
    if len(rest := np.setdiff1d(chosen, opening)):
        agreement = sum(PURITY) / 2 if sample is None else planned[0].forecast.clear
        used, charged = _with_used(levels, planned[0].forecast), _charged_as(agreement)
        planned.append(_proposed(points, rest, used, shares[1], n_classes, sample, by_hand, charged))
    return RoundsPlan(tuple(planned), alternative)


def next_round(
    earlier: EarlierRound,
    former_points: ArrayLike,
    counts: ArrayLike,
    public: ArrayLike,
    probabilities: ArrayLike,
    levels: Sequence[PlannedLevel],
    *,
    share: float,
    n_classes: int,
    queries: ArrayLike | None = None,
    sample: Sample | None = None,
    sigma: float | None = None,
    radius_share: float | None = None,
) -> tuple[PlannedRound, NDArray[np.float64]]:
    """Plan the residual round from a released round's noisy counts; also return the `voters` for `read_counts`.

    Args:
        earlier: The released round of plain votes.
        former_points: `(P, d)` public points in the coordinates of that round.
        counts: `(Q, C)` released counts of that round.
        public: `(P, d)` public points in the coordinates of the next round.
        probabilities: `(P, C)` from the student that learned from that round. Votes are cast against its most likely
            classes. The points where the student is most uncertain are asked first, while accounts are still full.
            Predictions are most often wrong at these points, so that is where most holders disagree and contribute.
        levels: Levels with noisy or public head counts, as planned.
        share: Share of every cap that both rounds may use together.
        n_classes, sample: See `plan_rounds`; the sample is in the coordinates of the next round.
        queries: Positions of the points to ask; None for all that have not been asked.
        sigma, radius_share: Manual choices, which replace the proposal.

    Returns:
        The round, and `(Q,)` `voters` for `read_counts`. These are the voters at its queries, estimated from the
        forecast and the turnout of the previous round, plus the number of voters that the prediction itself is worth.
        If the right class leads by L voters in counts with noise σ, a prediction that is right with odds o is worth
        (σ²/L)·ln o voters (Bayes' rule). This is negligible if many people vote, and exceeds any noise if hardly anyone
        does.
    """
    points, certainty = np.asarray(public), np.asarray(probabilities)
    others = np.setdiff1d(np.arange(len(points)), earlier.queries) if queries is None else np.asarray(queries)
    others = others[doubtful_queries(certainty[others], len(others))]
    expected = expected_voters(
        np.asarray(former_points)[earlier.queries],
        former_points,
        levels,
        radius_share=earlier.radius_share,
        sigma=earlier.sigma,
        share=earlier.share,
    )
    taking_part = expected_agreement(counts, expected)
    used = [
        replace(level, holders=level.holders * taking_part, used=earlier.used.get(level.name, 0.0)) for level in levels
    ]
    agreement, right = (max(PURITY[0], bound) for bound in released_accuracy(counts, earlier.sigma))
    by_hand = (sigma, radius_share)
    planned = _proposed(points, others, used, share, n_classes, sample, by_hand, _charged_as(agreement))
    voters = expected_voters(
        points[others],
        points,
        used,
        radius_share=planned.radius_share,
        sigma=planned.sigma,
        share=share,
        agreement=planned.agreement,
    )
    return planned, voters + _equivalent_voters((agreement + right) / 2, agreement, voters, planned.sigma, n_classes)


def _chosen(single: RoundForecast, enough: bool) -> Sentence:
    """Return the reason for choosing one round or two."""
    if enough:
        text = gettext_noop(
            "The plan chose one round: if all points are queried in one round, the correct class is expected to get "
            "the most votes for %(clear)d of 100 points."
        )
    else:
        text = gettext_noop(
            "The plan chose two rounds: if all points were queried in one round, the correct class would be expected "
            "to get the most votes for no more than %(clear)d of 100 points."
        )
    return Sentence(text, clear=round(100 * single.clear))


def _charged_as(agreement: float) -> float:
    return float(np.clip(1.0 - _UNEVEN * (1.0 - agreement), 0.0, _MOST_AGREEMENT))


def _equivalent_voters(
    right: float, agreement: float, voters: NDArray[np.float64], sigma: float, n_classes: int
) -> NDArray[np.float64]:
    """Return the number of voters with as much evidence as a prediction with accuracy `right`."""
    right, agreement = (min(max(one, _LEAST_AGREEMENT), _MOST_AGREEMENT) for one in (right, agreement))
    odds = right * (n_classes - 1) / (1.0 - right)
    lead = agreement - (1.0 - agreement) / (n_classes - 1)
    return sigma**2 * np.log(odds) / (np.maximum(voters, 1.0) * lead)


def _proposed(
    points: NDArray[np.integer],
    queries: NDArray[np.int64],
    levels: Sequence[PlannedLevel],
    share: float,
    n_classes: int,
    sample: Sample | None,
    by_hand: tuple[float | None, float | None],
    agreement: float | None = None,
) -> PlannedRound:
    """Return a round with its forecast. The forecast chooses σ and radius unless they were chosen by hand."""
    best = propose(
        points[queries],
        points,
        levels,
        share=share,
        n_classes=n_classes,
        sample=sample,
        purity=PURITY,
        agreement=agreement,
    )
    sigma, radius_share = by_hand[0] or best.sigma, by_hand[1] or best.radius_share
    expected = best.forecast
    if (sigma, radius_share) != (best.sigma, best.radius_share):
        expected = forecast(
            points[queries],
            points,
            levels,
            radius_share=radius_share,
            sigma=sigma,
            share=share,
            n_classes=n_classes,
            sample=sample,
            purity=PURITY,
            agreement=agreement,
        )
    return PlannedRound(queries, sigma, radius_share, share, expected, agreement)


def _with_used(levels: Sequence[PlannedLevel], forecast: RoundForecast) -> list[PlannedLevel]:
    return [replace(level, used=held.spent) for level, held in zip(levels, forecast.levels, strict=True)]
