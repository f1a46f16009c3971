"""Votes of teachers: counts, checks, and the duplicates, weights and participation of groups in Individualized PATE.

Source: Boenisch, Mühl, Rinberg, Ihrig, Dziedzic, "Individualized PATE: Differentially Private Machine Learning with
Individual Privacy Guarantees" (PoPETs 2023), and the thesis behind it. A budget is an ε; only the ratios of budgets
matter here. The budget filter ensures that no budget is exceeded. The choices in this module determine how much of
their budgets the other groups have used when the first budget runs out.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.privacy import DEFAULT_ORDERS, gdp_mu
from accounting.privacy.checks import checked_votes
from accounting.privacy.papers.curves import Conversion, conversion_penalty

NO_VOTE = -1
"""Prediction of a teacher that does not take part in the vote, because it is retired or not drawn for this query."""


def count_votes(predictions: ArrayLike, classes: int, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return weighted vote counts: entry (i, j) is the total weight of the teachers that chose class j for query i.

    This is the weighting of Individualized PATE (Boenisch et al. 2023); with equal weights, these are the counts n_j of
    PATE (Papernot et al. 2017).

    Args:
        predictions: `(teachers, queries)` integers, `NO_VOTE` or 0 … classes - 1.
        classes: Number of classes.
        weights: `(teachers,)` weights; 1 each if None.

    Returns:
        Counts `(queries, classes)` as floats.

    Raises:
        ValueError: A shape or value is wrong.

    >>> count_votes([[0, 1], [0, 0], [1, NO_VOTE]], 2, weights=[0.5, 0.5, 2.0])
    array([[1. , 2. ],
           [0.5, 0.5]])
    """
    matrix = _require_predictions(predictions, classes)
    teachers, queries = matrix.shape
    weight = np.ones(teachers) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != (teachers,):
        raise ValueError(f"weights has the shape {weight.shape}, but there are {teachers} teachers: pass one each.")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("weights must be finite and not negative: pass the weights of the plan.")
    voted = matrix != NO_VOTE
    cell = np.arange(queries) * classes + matrix
    counts = np.bincount(cell[voted], np.broadcast_to(weight[:, None], matrix.shape)[voted], queries * classes)
    return counts.astype(np.float64).reshape(queries, classes)


def group_votes(predictions: ArrayLike, classes: int, members: ArrayLike) -> NDArray[np.float64]:
    """Return the unweighted vote counts of one group's own teachers, `(queries, classes)`.

    These counts show which classes may lose one of the group's votes, which determines the group's exact cost.

    Args:
        members: `(teachers,)` booleans, True for the group's teachers.

    >>> group_votes([[0, 1], [0, 0], [1, 1]], 2, [True, True, False])
    array([[2., 0.],
           [1., 1.]])
    """
    matrix = _require_predictions(predictions, classes)
    mask = np.asarray(members)
    if mask.dtype != np.bool_ or mask.shape != matrix.shape[:1]:
        raise ValueError(f"members must hold one boolean for each of the {len(matrix)} teachers: pass such a mask.")
    return count_votes(matrix[mask], classes)


def require_votes(votes: ArrayLike) -> NDArray[np.float64]:
    """Return `votes` as an array of unnoised counts. Raises ValueError if they are not counts.

    >>> require_votes([[3, 1]])
    array([[3., 1.]])
    """
    array = checked_votes(votes)
    if (array < 0).any():
        raise ValueError("votes must not be negative: pass the output of count_votes.")
    return array


def require_budgets(budgets: ArrayLike) -> NDArray[np.float64]:
    """Return `budgets` as a `(groups,)` float array of ε. Raises ValueError unless all are finite and above 0.

    >>> require_budgets([1, 2])
    array([1., 2.])
    """
    array = np.asarray(budgets, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"budgets must be a list of at least one ε, not of shape {array.shape}: pass one per group.")
    if not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError(f"budgets must be finite and above 0, not {array.tolist()}: leave out groups without budget.")
    return array


def _require_predictions(predictions: ArrayLike, classes: int) -> NDArray[np.int64]:
    matrix = np.asarray(predictions)
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.integer):
        raise ValueError(
            f"predictions must be integers of the shape (teachers, queries), not {matrix.dtype} of {matrix.shape}: "
            "pass one row per teacher."
        )
    if classes < 1:
        raise ValueError(f"classes must be at least 1, not {classes}: pass the number of classes of the study.")
    if matrix.size and (matrix.min() < NO_VOTE or matrix.max() >= classes):
        raise ValueError(
            f"predictions run from {matrix.min()} to {matrix.max()}, but there are {classes} classes: "
            f"pass {NO_VOTE} (no vote) or 0 … {classes - 1}."
        )
    return matrix.astype(np.int64)


WEIGHT_SCHEMES = ("proportional", "calibrated", "gdp")


def upsampling_factors(budgets: ArrayLike, precision: int = 1) -> NDArray[np.int64]:
    """Return each group's number of duplicates per holder: the smallest integers in the ratio of the budgets.

    This is Algorithm 1 of Individualized PATE: the budgets, rounded to `precision` decimals, are divided by their
    greatest common divisor.

    Args:
        budgets: `(groups,)` ε values.
        precision: Number of decimals to which budgets are rounded.

    Returns:
        Integers `(groups,)`, at least 1.

    Raises:
        ValueError: A budget rounds to 0.

    >>> upsampling_factors([0.5, 1.0, 1.5])
    array([1, 2, 3])
    """
    scaled = np.rint(require_budgets(budgets) * 10.0**precision).astype(np.int64)
    if (scaled == 0).any():
        raise ValueError(
            f"A budget of {np.min(np.asarray(budgets))} is 0 when rounded to {precision} decimals: raise precision."
        )
    return scaled // np.gcd.reduce(scaled)


def factors_for_most_labels(mu: ArrayLike, holders: ArrayLike) -> NDArray[np.int64]:
    """Return the numbers of duplicates per group that make the most labels affordable (1 for the strictest group).

    A label is charged 2f²/(σG)² to a holder with f duplicates, and the noise is G = Σ n·f / Σ n times as large. The
    accounts with the smallest t = μ/f run out first, and pay for a number of labels proportional to (t·G)². For a given
    t, the best f are ⌊μ/t⌋, and only t = μ/k for a group's μ and an integer k can be optimal. f = 1 for all groups is
    among the candidates, so larger promises never reduce the number of labels. Ratios rounded to the nearest integer do
    not ensure this: if a few people with μ 2.7 times as large get f = 3, their accounts run out after 4/5 of the
    labels.

    Args:
        mu: `(groups,)` μ of the promises.
        holders: `(groups,)` counts, at least one in total.

    Returns:
        Integers `(groups,)`.

    Raises:
        ValueError: A value is out of range.

    >>> factors_for_most_labels([0.27, 0.5, 0.72], [340, 430, 230]), factors_for_most_labels([0.27, 0.72], [999, 1])
    (array([1, 2, 3]), array([1, 2]))
    """
    values, sizes = require_budgets(mu), np.asarray(holders)
    least = values.min()
    # ordered from the largest t, so that the choice with the fewest duplicates is kept if several are equally good
    ends = np.unique(np.concatenate([values / k for k in range(1, int(values.max() / least) + 2)]))[::-1]
    ends = ends[(ends <= least) & (ends > least / 2)]
    factors = np.floor(values / ends[:, None] * (1 + 1e-12)).astype(np.int64)
    return factors[np.argmax(ends * (factors @ sizes))]


def teacher_weights(
    budgets: ArrayLike,
    teachers_per_group: ArrayLike,
    scheme: str = "proportional",
    delta: float | None = None,
    conversion: Conversion = "classic",
) -> NDArray[np.float64]:
    """Return the vote weight w_g of each group's teachers, normalised to a mean of 1 over all teachers.

    "proportional": w_g = ε_g / (mean of ε over the teachers), as in Individualized PATE, Appendix C, and the thesis,
    section 6.2.2. Algorithm 2 of the paper also multiplies each ε_g by the group's number of teachers n_g. The
    additional factor cannot be intended, because a holder's cost depends on the weight of the one teacher that learned
    from them, not on the number of other teachers. With budgets 1, 2, 3 and 85, 107, 58 teachers the weights would be
    0.53, 1.33, 1.08: the group with ε = 2 would outvote the group with ε = 3, and pay more.

    "calibrated": the weights for which all groups reach their budgets at the same query under the data-independent
    cost. That cost is the RDP ρ_g·α with ρ_g proportional to w_g², whose classic conversion, minimised over α, is ε_g =
    ρ_g + 2·√(ρ_g·L) with L = ln(1/δ). This gives √ρ_g = √(L + ε_g) - √L, to which w_g is proportional. For the improved
    conversion, ρ_g is the largest value that fits at one of the `DEFAULT_ORDERS`. The two schemes agree for small ε.
    For larger ε, proportional weights make the group with the largest ε run out first: with ε = 1, 2, 3 and the classic
    conversion, the others have spent 0.96 and 1.96 by then; with ε = 1, 2, 8, they have spent 0.88 and 1.80.

    "gdp": w_g is proportional to μ_g, the μ of (ε_g, δ) in Gaussian differential privacy. A label costs 2w²/σ² of the
    account's cap μ², so all groups reach the same share of their caps at the same query.

    Args:
        budgets: `(groups,)` ε values.
        teachers_per_group: `(groups,)` integers, at least one in total.
        delta: δ, for "calibrated" and "gdp".
        conversion: How ε is derived from RDP, for "calibrated" only.

    Returns:
        Weights `(groups,)`.

    Raises:
        ValueError: A value is wrong, or the scheme is unknown.

    >>> teacher_weights([1.0, 2.0, 3.0], [85, 107, 58]).round(4)
    array([0.5285, 1.0571, 1.5856])
    >>> teacher_weights([1.0, 2.0, 3.0], [85, 107, 58], scheme="calibrated", delta=1e-5).round(4)
    array([0.5409, 1.0605, 1.5613])
    >>> teacher_weights([1.0, 2.0, 3.0], [85, 107, 58], scheme="gdp", delta=1e-5).round(4)
    array([0.5671, 1.0612, 1.5215])
    """
    epsilons = require_budgets(budgets)
    teachers = np.asarray(teachers_per_group)
    if teachers.shape != epsilons.shape or (teachers < 0).any() or teachers.sum() < 1:
        raise ValueError(
            f"teachers_per_group must hold a count for each of the {len(epsilons)} groups, at least one teacher in "
            f"all, not {teachers.tolist()}: pass the counts of the plan."
        )
    if scheme == "proportional":
        raw = epsilons
    elif scheme == "gdp":
        raw = np.asarray(gdp_mu(epsilons, require_delta(delta)))
    elif scheme == "calibrated":
        raw = _largest_gaussian_weight(epsilons, require_delta(delta), conversion)
    else:
        raise ValueError(f"There is no weight scheme {scheme!r}: choose one of {', '.join(WEIGHT_SCHEMES)}.")
    return raw * teachers.sum() / (raw @ teachers)


def participation_frequencies(budgets: ArrayLike, exponent: float = 2.0) -> NDArray[np.float64]:
    """Return the share of the votes that each group's teachers take part in: (ε_g / ε_max)^exponent.

    This is the vanishing variant; the papers use an exponent of 1, 2 or 4. Under RDP, the costs of Gaussian votes add
    up, and a small ε grows with the square root of the sum. Shares proportional to ε², the default, therefore make the
    groups run out together.

    Args:
        budgets: `(groups,)` ε values.
        exponent: 1, 2 or 4 in the papers.

    Returns:
        Shares `(groups,)`, at most 1.

    Raises:
        ValueError: A value is out of range.

    >>> participation_frequencies([0.5, 1.0, 2.0])
    array([0.0625, 0.25  , 1.    ])
    """
    epsilons = require_budgets(budgets)
    if not math.isfinite(exponent) or exponent <= 0:
        raise ValueError(f"exponent must be a finite number above 0, not {exponent!r}: the papers use 1, 2 or 4.")
    return (epsilons / epsilons.max()) ** exponent


def _largest_gaussian_weight(
    epsilons: NDArray[np.float64], delta: float, conversion: Conversion
) -> NDArray[np.float64]:
    """Return √ρ for the largest ρ such that the RDP curve ρ·α converts to at most ε."""
    if conversion == "classic":
        log_inverse_delta = -math.log(delta)
        # √(L + ε) - √L, without cancellation for small ε
        return epsilons / (np.sqrt(log_inverse_delta + epsilons) + math.sqrt(log_inverse_delta))
    penalty = conversion_penalty(delta, DEFAULT_ORDERS, conversion)
    rho = ((epsilons[:, None] - penalty) / DEFAULT_ORDERS).max(axis=1)
    if (rho <= 0).any():
        raise ValueError(
            f"A budget of {epsilons.min()} is too small to distinguish from 0 at δ = {delta}: use a larger one."
        )
    return np.sqrt(rho)


def require_delta(delta: float | None) -> float:
    """Return `delta`. Raises ValueError unless it lies strictly between 0 and 1.

    >>> require_delta(1e-5)
    1e-05
    """
    if delta is None or not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie between 0 and 1, not {delta!r}: pass the study's δ, such as 1e-5.")
    return float(delta)
