"""Forecast of a round, based only on public points, caps and noisy head counts.

Public points stand in for records. The number of public points within each query's radius, and the number of radii that
contain each public point, are counted exactly and scaled to the number of holders. This forecasts the number of voters,
and how often a holder is asked, without private records. The assumption is that holders' records are distributed like
the public points. If it is wrong, fewer or more holders vote than expected, and the released counts show this.

Without labels, the purity of a neighbourhood is unknown. With a labelled public sample (such as a study's test data),
the class shares of each public point are estimated from its nearest labelled points. These shares determine the votes
in a labelled point's neighbourhood, and how often the right class leads after noise. Without a sample, the forecast
assumes a range for the share of voters near a query who agree with its true class. The interval for the label accuracy
is then wide, because the same share can have two causes. If classes mix, only this share of the queries gets the right
label. If classes are separate, every query gets the right label if its true class leads. `released_accuracy` replaces
the assumption once a first batch has been released.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from common.declarations import NOT_IN_API
from common.sentences import Sentence
from learning.forecasts import ASSUMED, LABELS, LABELS_FROM_SAMPLE, PURITY, Forecast, judged_forecast
from learning.mechanisms.neighbours.surrogates import LabelledSurrogates, Sample, Surrogates
from learning.mechanisms.protocol import PlannedLevel

SHARES = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
"""Radius shares that `propose` compares."""

_DRAWS = 64
_MOST_KEPT = 1 << 20  # largest number of normal variates that are kept for the next forecast
_PARTS = 8  # number of consecutive parts into which the queries are divided
_BATCH = 500
_SATURATIONS = (0.95, 0.85, 0.7, 0.5)  # compared by `propose`: shares of the requested votes for which accounts can pay
_LEAST_NOISE = 1.0  # lower bound of σ; if hardly anyone is charged, accounts could pay for almost no noise
_CLEAR = 0.95  # share of queries at which `propose` requires the right class to lead, at the assumed purity


@dataclass(frozen=True)
class LevelForecast:
    """Forecast of a round for one level.

    Votes are assumed to have norm 1 or, in a residual round, squared norm 2, because only disagreement is charged. The
    spending includes earlier rounds.
    """

    name: str
    votes_allowed: Annotated[
        int, Field(description="Number of votes that a holder can cast with the round's share of the cap.")
    ]
    votes_asked: Annotated[float, Field(description="Mean number of queries near a holder's records.")]
    votes_cast: Annotated[
        float, Field(description="Mean number of nearby queries on which the holder's budget allows a vote.")
    ]
    spent: Annotated[float, Field(description="Share of the cap that holders are expected to spend on average.")]
    share: Annotated[float, Field(description="Share of the cap that may be spent.")]


@dataclass(frozen=True)
class RoundForecast:
    """Forecast of a round.

    Attributes:
        margin: Lead of the right class in units of σ, at the estimated purity or the middle of the assumed range.
        clear: Share of queries for which the right class leads after noise, at the same purity.
        labels: Share of correct labels.
    """

    queries: int
    sigma: float
    radius_share: float
    voters: Annotated[
        tuple[float, float, float], Field(description="Number of voters per query: 10th, 50th and 90th percentile.")
    ]
    margin: Annotated[
        float, Field(description="Expected lead of the correct class, in standard deviations of the noise.")
    ]
    clear: Annotated[float, NOT_IN_API]
    labels: Annotated[Forecast, NOT_IN_API]
    levels: tuple[LevelForecast, ...]


@dataclass(frozen=True)
class Proposal:
    """σ, radius and batch proposed for a requested number of labels, with their forecast."""

    sigma: float
    radius_share: float
    batch: int
    forecast: RoundForecast


def forecast(
    queries: ArrayLike,
    public: ArrayLike,
    levels: Sequence[PlannedLevel],
    *,
    radius_share: float,
    sigma: float,
    share: float,
    n_classes: int,
    sample: Sample | None = None,
    purity: tuple[float, float] = PURITY,
    agreement: float | None = None,
) -> RoundForecast:
    """Forecast the results and charges if these queries are asked in this order.

    Args:
        queries: `(Q, d)` coordinates of the queries.
        public: `(P, d)` coordinates of the public points.
        levels: Levels with noisy or public head counts.
        radius_share: See `radii`.
        sigma: Standard deviation of the noise of each count.
        share: Share of every cap that the round may use.
        n_classes: Number of classes, at least 2.
        sample: Labelled public points; None to assume a purity.
        purity: Range of purity assumed without a sample.
        agreement: For residual votes, the expected share of voters who agree with the public guess and are not charged;
            None for plain votes.

    Raises:
        ValueError: A number is out of range.
    """
    surrogates = Surrogates(queries, public, [radius_share])
    known = None if sample is None else LabelledSurrogates(sample, public, [radius_share], n_classes)
    return _forecast(surrogates, known, levels, radius_share, sigma, share, n_classes, purity, agreement)


def _forecast(
    surrogates: Surrogates,
    known: LabelledSurrogates | None,
    levels: Sequence[PlannedLevel],
    radius_share: float,
    sigma: float,
    share: float,
    n_classes: int,
    purity: tuple[float, float],
    agreement: float | None,
) -> RoundForecast:
    _require(sigma > 0 and 0 < share <= 1, f"sigma must be above 0 and share in (0, 1], not {sigma} and {share}.")
    _require(agreement is None or 0 <= agreement <= 1, f"agreement must lie in [0, 1], not {agreement}.")
    _require(n_classes >= 2 and bool(levels), "A forecast needs at least 2 classes and one level.")
    voters, described = _turnout(surrogates, levels, radius_share, sigma, share, agreement)
    if known is None:
        few, many = (assumed_purity(one, radius_share, n_classes) for one in purity)
        middle = (few + many) / 2
        clear = _right(voters, middle, n_classes, sigma)
        low, high = _assumed_right(voters, few, many, n_classes, sigma)
        noiseless = sum(_assumed_right(voters, few, many, n_classes, 0.0)) / 2
        labels = Forecast(LABELS, (low + high) / 2, low, high, noiseless, 0, Sentence(ASSUMED))
        gap = middle - (1 - middle) / (n_classes - 1)
    else:
        clear, gap = _right_by_sample(known, radius_share, voters, sigma)
        noiseless, _gap = _right_by_sample(known, radius_share, voters, 0.0)
        points = len(known.labels)
        basis = Sentence(LABELS_FROM_SAMPLE, points=points)
        labels = judged_forecast(LABELS, clear, noiseless, judged=points, surrogates=points, rests_on=basis)
    tenth, median, ninetieth = (float(value) for value in np.percentile(voters, [10, 50, 90]))
    return RoundForecast(
        queries=surrogates.queries,
        sigma=sigma,
        radius_share=radius_share,
        voters=(tenth, median, ninetieth),
        margin=float(np.mean(voters)) * gap / sigma,
        clear=clear,
        labels=labels,
        levels=tuple(described),
    )


def propose(
    queries: ArrayLike,
    public: ArrayLike,
    levels: Sequence[PlannedLevel],
    *,
    share: float,
    n_classes: int,
    sample: Sample | None = None,
    purity: tuple[float, float] = PURITY,
    agreement: float | None = None,
) -> Proposal:
    """Propose σ and radius for these queries, by a public rule.

    For each of `SHARES`, σ is the smallest noise for which the accounts allow nearly all requested votes. An even
    smaller σ is chosen if the right class leads more often with it, although accounts then allow only some of the
    votes. This can happen if caps are unequal, because people with larger caps then vote more often. With a labelled
    sample, the rule chooses the radius share with the largest expected label accuracy. Without a sample, it assumes the
    middle of the purity range and chooses the smallest radius share at which the right class leads after noise in 95 of
    100 queries, because near neighbours are purer than far ones. If there is no such radius share, it chooses the one
    at which the right class leads most often.

    Args:
        queries: `(Q, d)` coordinates, one query for each requested label.
        public: `(P, d)` coordinates of the public points.
        levels, share, n_classes, sample, purity, agreement: See `forecast`.
    """
    smallest = 1.0 / max(len(np.asarray(public)), 1)
    compared = [radius_share for radius_share in SHARES if radius_share >= smallest] or [1.0]
    surrogates = Surrogates(queries, public, compared)
    known = None if sample is None else LabelledSurrogates(sample, public, compared, n_classes)
    forecasts = []
    for radius_share in compared:
        votes = [_demand(surrogates, radius_share, level, agreement) for level in levels]
        proposals = [
            _forecast(surrogates, known, levels, radius_share, sigma, share, n_classes, purity, agreement)
            for sigma in _noise(votes, levels, share, agreement)
        ]
        forecasts.append(max(proposals, key=lambda one: one.clear))
    if sample is not None:
        best = max(forecasts, key=lambda one: one.labels.noisy)
    else:
        clear = [one for one in forecasts if one.clear >= _CLEAR]
        best = clear[0] if clear else max(forecasts, key=lambda one: one.clear)
    return Proposal(best.sigma, best.radius_share, min(best.queries, _BATCH), best)


def assumed_purity(purity: float, radius_share: float, n_classes: int) -> float:
    """Return the assumed purity within a radius.

    The difference between purity and chance shrinks linearly as the number of neighbours grows. It reaches 0 when the
    number of neighbours is twice the number of points of the class.

    >>> round(assumed_purity(0.7, 0.05, 10), 2), round(assumed_purity(0.7, 0.05, 2), 2)
    (0.55, 0.69)
    """
    chance = 1.0 / n_classes
    return chance + (purity - chance) * max(0.0, 1.0 - radius_share * n_classes / 2.0)


def expected_voters(
    queries: ArrayLike,
    public: ArrayLike,
    levels: Sequence[PlannedLevel],
    *,
    radius_share: float,
    sigma: float,
    share: float,
    agreement: float | None = None,
    most: int | None = None,
) -> NDArray[np.float64]:
    """Return the expected number of voters at each query `(Q,)`, not counting refused votes.

    After plain votes, pass the result to `expected_agreement`. For residual votes, multiply it by the factor that
    `expected_agreement` returned, and pass it to `read_counts`.

    Args:
        queries, public, levels, radius_share, sigma, share, agreement: See `forecast`.
        most: Maximum number of queries used (see `surrogates.evenly`); None for all.
    """
    return _turnout(Surrogates(queries, public, [radius_share], most), levels, radius_share, sigma, share, agreement)[0]


def released_accuracy(counts: ArrayLike, sigma: float) -> tuple[float, float]:
    """Return bounds on the share of correct labels, from released noisy counts.

    The lower bound is the average share of the voters near a query who agree with its label. This bound is accurate if
    classes mix, because a query is then like any of its neighbours. It is too low if classes are separate and
    neighbourhoods extend into the next class. The upper bound is the probability that a second draw of noise gives the
    same label. A label must not be judged by the counts that determined it, so the noise is split: for a standard
    normal z, counts + σz/2 and counts - 2σz are independent (Rasines & Young 2023). The first sum determines the label,
    and the second is used to judge it.

    Args:
        counts: `(Q, C)` released counts of plain votes.
    """
    released = np.asarray(counts, np.float64)
    fresh = np.random.default_rng(0).normal(0.0, sigma, released.shape)
    chosen = (released + fresh / 2.0).argmax(axis=1)
    judging = released - 2.0 * fresh
    agree = judging[np.arange(len(chosen)), chosen].sum() / max(judging.sum(), 1.0)
    again = np.random.default_rng(1).normal(0.0, sigma, (_DRAWS, *released.shape))
    stable = float(np.mean((released + again).argmax(axis=2) == released.argmax(axis=1)))
    low = float(np.clip(agree, 1.0 / released.shape[1], 1.0))
    return low, max(low, stable)


def _turnout(
    surrogates: Surrogates,
    levels: Sequence[PlannedLevel],
    radius_share: float,
    sigma: float,
    share: float,
    agreement: float | None,
) -> tuple[NDArray[np.float64], list[LevelForecast]]:
    """Return the expected number of voters at every query `(Q,)`, and the forecast for each level."""
    voters = np.zeros(surrogates.looked_at)
    described = []
    for level in levels:
        allowed = _votes_allowed(level, share, sigma, agreement)
        near = surrogates.near(radius_share, level.records)
        charged = _charged(near, agreement)
        refused = charged & (np.cumsum(charged, axis=0, dtype=np.int32) > allowed / surrogates.each)
        voters += (near & ~refused).mean(axis=1) * level.holders
        votes_asked = surrogates.each * float(charged.mean(axis=1).sum())
        votes_cast = votes_asked - surrogates.each * float(refused.mean(axis=1).sum())
        spent = level.used + votes_cast * _norm(agreement) / sigma**2 / level.cap
        described.append(LevelForecast(level.name, allowed, votes_asked, votes_cast, spent, share))
    return voters, described


def _norm(agreement: float | None) -> float:
    """Return the squared norm that is charged for a vote."""
    return 1.0 if agreement is None else 2.0


def _charged(near: NDArray[np.bool_], agreement: float | None) -> NDArray[np.bool_]:
    """Return a mask of the charged holders: all near the query or, in residual votes, a fixed sample that disagrees."""
    if agreement is None:
        return near
    return near & (np.random.default_rng(1).random(near.shape, np.float32) >= agreement)


def _votes_allowed(level: PlannedLevel, share: float, sigma: float, agreement: float | None) -> int:
    """Return the number of votes for which the remaining share of the cap can pay."""
    left = max(0.0, share - level.used) * level.cap
    return math.floor(left * sigma**2 / _norm(agreement) * (1 + 1e-12))


def _demand(
    surrogates: Surrogates, radius_share: float, level: PlannedLevel, agreement: float | None
) -> NDArray[np.float64]:
    """Return the number of charged votes requested from each stand-in, `(S,)`."""
    charged = _charged(surrogates.near(radius_share, level.records), agreement)
    return surrogates.each * charged.sum(axis=0)


def _noise(
    votes: Sequence[NDArray[np.float64]], levels: Sequence[PlannedLevel], share: float, agreement: float | None
) -> list[float]:
    """Return, for each share in `_SATURATIONS`, the smallest σ at which accounts can pay for that share of the votes.

    σ is rounded to three digits.
    """
    total = sum(level.holders * some.sum() for level, some in zip(levels, votes, strict=True))

    def cast(sigma: float) -> float:
        return sum(
            level.holders * np.minimum(some, _votes_allowed(level, share, sigma, agreement)).sum()
            for level, some in zip(levels, votes, strict=True)
        )

    smallest = []
    for saturation in _SATURATIONS:
        low, high = _LEAST_NOISE, 1e6
        while high / low > 1.001:
            sigma = math.sqrt(low * high)
            low, high = (low, sigma) if cast(sigma) >= saturation * total else (sigma, high)
        smallest.append(float(f"{high:.3g}"))
    return smallest


def _assumed_right(
    voters: NDArray[np.float64], few: float, many: float, n_classes: int, sigma: float
) -> tuple[float, float]:
    """Return bounds on the share of correct labels if `few` to `many` of the voters agree with the right class."""
    high = _right(voters, many, n_classes, sigma)
    return min(high, few * _right(voters, few, n_classes, sigma)), high


def _right(voters: NDArray[np.float64], agreement: float, n_classes: int, sigma: float) -> float:
    """Return the probability that the right class leads if its share is ``agreement`` and the others share the rest."""
    shares = np.full(n_classes, (1 - agreement) / (n_classes - 1))
    shares[0] = agreement
    return _leading(voters[:, None] * shares, np.zeros(len(voters), np.int64), sigma)


def _leading(votes: NDArray[np.float64], right: NDArray[np.int64], sigma: float, draws: int = _DRAWS) -> float:
    """Return the share of draws with the right class leading, given expected votes, random participation and noise."""
    spread = np.sqrt(sigma**2 + np.maximum(votes, 0.0))
    led = [(votes + spread * drawn).argmax(axis=1) == right for drawn in _drawn(draws, *votes.shape)]
    return float(np.mean(led))


def _drawn(draws: int, points: int, n_classes: int) -> Iterable[NDArray[np.float64]]:
    """Yield standard normals `(points, n_classes)` for every draw, always the same so that forecasts are comparable.

    Many draws are made one by one to save memory.
    """
    if draws * points * n_classes <= _MOST_KEPT:
        return _kept_draws(draws, points, n_classes)
    rng = np.random.default_rng(0)
    return (rng.standard_normal((points, n_classes)) for _ in range(draws))


@lru_cache(maxsize=1)
def _kept_draws(draws: int, points: int, n_classes: int) -> NDArray[np.float64]:
    normals = np.random.default_rng(0).standard_normal((draws, points, n_classes))
    normals.flags.writeable = False
    return normals


def _right_by_sample(
    known: LabelledSurrogates, radius_share: float, voters: NDArray[np.float64], sigma: float
) -> tuple[float, float]:
    """Return the expected share of correct labels at the sample's points, and the mean lead of the right class's share.

    Later queries have fewer voters, because some accounts are used up by then. The forecast therefore places each point
    in every eighth of the query order in turn, and averages the results.
    """
    labels, shares = known.labels, known.votes(radius_share)
    right = shares[np.arange(len(labels)), labels]
    others = np.where(np.arange(shares.shape[1]) == labels[:, None], -np.inf, shares).max(axis=1)
    parts = [float(part.mean()) for part in np.array_split(voters, min(_PARTS, len(voters)))]
    leading = [_leading(shares * part, labels, sigma, _DRAWS // _PARTS) for part in parts]
    return float(np.mean(leading)), float((right - others).mean())


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
