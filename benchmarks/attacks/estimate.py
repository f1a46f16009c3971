"""Lower bounds on a mechanism's privacy loss, from guesses of participation, with a stated confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, binom, norm

from accounting.privacy import gdp_epsilon

Floats = NDArray[np.float64]
DELTAS = tuple(10.0**-power for power in range(3, 11))
"""Values of δ at which an audit of one run evaluates ε."""


@dataclass(frozen=True)
class Bound:
    """Lower bound on μ (``least``, 0 if nothing can be inferred), and an estimate without uncertainty (``point``)."""

    least: float
    point: float


def gdp_bound(without: Floats, taking_part: Floats, *, doubt: float) -> Bound:
    """Return a lower bound on μ from scores of transcripts. Larger scores make participation likelier.

    For a μ-GDP mechanism every test has μ ≥ Φ⁻¹(1 − a) − Φ⁻¹(b), with the probabilities a of a wrong "took part" and b
    of a wrong "did not" (Dong, Roth, Su 2022, Definition 3). The threshold is chosen on the first half of the scores;
    on the second half, a and b are bounded by Clopper and Pearson (1934), each with half of ``doubt``.

    Args:
        without, taking_part: `(n,)` scores of independent transcripts.
        doubt: the maximum probability that the bound exceeds the true μ.

    >>> draws = np.random.default_rng(0).standard_normal((2, 20_000))
    >>> bound = gdp_bound(draws[0], draws[1] + 0.5, doubt=1e-3)
    >>> bound.least < 0.5 < bound.point + 0.05, round(bound.least, 1)
    (True, 0.4)
    """
    half = len(without) // 2
    threshold = _best_threshold(without[:half], taking_part[:half])
    false_alarms = int((without[half:] > threshold).sum())
    misses = int((taking_part[half:] <= threshold).sum())
    count = len(without) - half
    limits = [_at_most(events, count, doubt / 2) for events in (false_alarms, misses)]
    least = float(norm.isf(limits[0]) - norm.ppf(limits[1]))
    rates = [(events + 0.5) / (count + 1) for events in (false_alarms, misses)]
    return Bound(max(0.0, least), float(norm.isf(rates[0]) - norm.ppf(rates[1])))


def _best_threshold(without: Floats, taking_part: Floats) -> float:
    """Return the most informative threshold that leaves a thousandth of both kinds of scores on each side."""
    candidates = np.unique(np.quantile(np.concatenate([without, taking_part]), np.linspace(0.01, 0.99, 99)))
    least = 1e-3
    a = np.clip([(without > each).mean() for each in candidates], least, 1 - least)
    b = np.clip([(taking_part <= each).mean() for each in candidates], least, 1 - least)
    distance = norm.isf(a) - norm.ppf(b)
    # more extreme thresholds give less certain estimates
    spread = sum(np.sqrt(rate * (1 - rate)) / norm.pdf(norm.ppf(rate)) for rate in (a, b))
    return float(candidates[np.argmax(distance - 3 * spread / np.sqrt(len(without)))])


def _at_most(events: int, trials: int, doubt: float) -> float:
    """Return the upper confidence limit of a probability."""
    return 1.0 if events == trials else float(beta.ppf(1 - doubt, events + 1, trials - events))


def one_run_mu(canaries: int, guesses: int, right: int, *, doubt: float) -> float:
    """Return a lower bound on μ from one run that included every canary with probability ½.

    If the mechanism is μ-GDP, it is (ε(δ), δ)-DP for every δ, and each of `DELTAS` gives a bound on the probability of
    this many right guesses. The smallest bound applies.

    Args:
        canaries: number of canaries.
        guesses: number of canaries with a guess.
        right: number of right guesses.
        doubt: as in `gdp_bound`.

    >>> one_run_mu(1000, 200, 190, doubt=1e-3) > 0.5
    True
    >>> one_run_mu(1000, 200, 100, doubt=1e-3)
    0.0
    """

    def excess(mu: float) -> float:
        epsilons = [max(0.0, float(gdp_epsilon(mu, delta))) for delta in DELTAS]
        found = [
            one_run_doubt(canaries, guesses, right, epsilon=epsilon, delta=delta)
            for epsilon, delta in zip(epsilons, DELTAS, strict=True)
        ]
        return min(found) - doubt

    least, most = 1e-3, 20.0
    return 0.0 if excess(least) >= 0 else float(brentq(excess, least, most, xtol=1e-4))


def one_run_doubt(canaries: int, guesses: int, right: int, *, epsilon: float, delta: float) -> float:
    """Return the largest probability that at least ``right`` guesses are right for an (ε, δ)-DP mechanism.

    Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run" (2023), Theorem 5.2 and Appendix D.
    """
    chance = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    counts = np.arange(1, right + 1)
    steepest = float(np.max(np.cumsum(binom.pmf(right - counts, guesses, chance)) / counts, initial=0.0))
    return min(1.0, tail + 2 * canaries * delta * steepest)
