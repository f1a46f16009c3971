"""Costs of votes, compared with quadrature to thirty digits, brute force, and thousands of random vote counts."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from scipy.stats import norm

from accounting.privacy import epsilon_from_rdp, gnmax_rdp, lnmax_rdp, threshold_rdp
from accounting.privacy.checks import METHODS, Method
from accounting.privacy.papers.argmax import ArgmaxNoise, GaussianNoise, LaplaceNoise


@pytest.mark.parametrize("votes", [[30.0, 28.5, 0.0], [120.0, 9.0, 8.0, 7.0, 6.0, 5.0, 0.0]])
@pytest.mark.parametrize(("noise", "laplace"), [(GaussianNoise(12.0), False), (LaplaceNoise(9.0), True)])
def test_quadrature_keeps_its_error_bound_in_the_tails(votes: list[float], noise: ArgmaxNoise, laplace: bool) -> None:
    counts = np.array([votes])
    rule = noise.quadrature(counts, 1.0)
    offset = rule.nodes[:, None, :] - counts[:, :, None]
    log_cdf = noise.log_cdf(offset)
    integrand = log_cdf.sum(axis=1, keepdims=True) - log_cdf + noise.log_pdf(offset) + rule.log_weights[:, None, :]
    with mpmath.workdps(30):
        truth = precise_win_probabilities(votes, noise.scale, laplace)
    np.testing.assert_allclose(np.exp(integrand).sum(axis=2)[0], np.array(truth, dtype=float), rtol=1e-11)


def precise_divergence(p: Sequence[mpmath.mpf], q: Sequence[mpmath.mpf], order: float) -> mpmath.mpf:
    """Return the larger of both directions of the Rényi divergence, by its definition."""
    pairs = [list(zip(*each, strict=True)) for each in ((p, q), (q, p))]
    return max(mpmath.log(mpmath.fsum(a**order * b ** (1 - order) for a, b in pair)) for pair in pairs) / (order - 1)


@pytest.mark.parametrize("laplace", [False, True], ids=["gnmax", "lnmax"])
@pytest.mark.parametrize(
    ("votes", "scale", "weight", "order"),
    [
        ([40.0, 35.0, 25.0], 10.0, 1.0, 8.0),
        ([33.0, 33.0, 33.0], 20.0, 1.7, 1.02),
        ([12.5, 7.25, 3.0], 4.0, 0.5, 300.0),
        ([20.0, 9.0, 1.0], 3.0, 3.0, 2.5),
        ([60.0, 50.0], 10.0, 1.0, 16384.0),
    ],
    ids=["even", "tie, low order", "high order", "heavy vote", "largest order"],
)
def test_a_label_costs_the_largest_divergence(votes, scale, weight, order, laplace) -> None:
    """Both directions, with thirty digits, over every move from a class with enough votes for the weight."""
    with mpmath.workdps(30):
        moves = displacements(len(votes)) - {(0,) * len(votes)}
        moved = [[a + weight * b for a, b in zip(votes, move, strict=True)] for move in moves]
        possible = [votes, *(each for each in moved if min(each) >= 0)]
        p, *others = (precise_win_probabilities(each, scale, laplace, weight) for each in possible)
        truth = float(max(precise_divergence(p, q, order) for q in others))
    cost, noise = (lnmax_rdp, 1 / scale) if laplace else (gnmax_rdp, scale)
    assert truth <= cost([votes], noise, sensitivity=weight, orders=[order], method="exact")[0, 0] <= truth * 1.0001


@pytest.mark.parametrize("margin", [0.0, 60.0, 300.0])
def test_threshold_is_the_largest_divergence_of_two_normal_tails(margin: float) -> None:
    sigma, weight, order = 30.0, 1.5, 12.0
    with mpmath.workdps(40):
        below, at, above = (mpmath.ncdf((mpmath.mpf(margin) + change) / 30) for change in (-1.5, 0, 1.5))
        truth = float(max(precise_divergence((at, 1 - at), (q, 1 - q), order) for q in (below, above)))
    votes = [[200 + margin, 200 - 2 * margin]]
    cost = threshold_rdp(votes, 200, sigma, sensitivity=weight, orders=[order], method="exact")[0, 0]
    assert truth <= cost <= truth * 1.0001


@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0])
def test_the_cost_never_exceeds_the_data_independent_one(scale: float) -> None:
    """This holds even for noise too small to compute with, and for a label that is certain."""
    for votes in ([[250.0, 0.0], [130.0, 120.0]], [[250.0, 0.0, 0.0], [130.0, 119.0, 1.0]]):
        for cost, noise in ((gnmax_rdp, scale), (lnmax_rdp, 1 / scale)):
            exact, bound = cost(votes, noise, method="exact"), cost(votes, noise)
            assert ((exact >= 0) & (exact <= bound)).all()
            assert (np.diff(exact, axis=1) >= -1e-9 * exact[:, 1:]).all()
    certain = gnmax_rdp([[250.0, 0.0, 0.0]], 5.0, orders=[2.0, 64.0, 16384.0], method="exact")
    assert ((certain >= 0) & np.isfinite(certain)).all() and (certain[:, 0] < 1e-100).all()


@pytest.mark.parametrize("votes", [[45.0, 8.0, 7.0], [22.0, 22.0, 21.0]])
@pytest.mark.parametrize("factor", [2, 3])
def test_duplicated_holders_are_covered_wherever_their_votes_go(votes: list[float], factor: int) -> None:
    orders = np.array([1.5, 4.0, 20.0])
    truth = np.maximum(*divergences(np.array([votes]), NORMAL, 12.0, 1.0, orders, moves=factor))[0]
    cost = gnmax_rdp([votes], 12.0, sensitivity=factor, orders=orders, method="exact", teachers_per_holder=factor)[0]
    assert (truth <= cost * (1 + 1e-6)).all()
    assert (cost <= gnmax_rdp([votes], 12.0, sensitivity=factor, orders=orders)[0]).all()
    assert (cost <= truth * orders / (orders - 1) * 1.1).all()  # the proof's loss, to leading order


@pytest.mark.parametrize("threshold", [20.0, 40.0])
def test_group_votes_limit_where_a_vote_can_leave(threshold: float) -> None:
    """The neighbours are compared with a plain enumeration for both mechanisms."""
    votes = np.array([30.0, 24.0, 6.0])
    orders = np.array([2.0, 9.0])
    for mask in ([1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]):
        may_leave = np.array(mask, dtype=bool)
        forward, reverse = divergences(votes[None], NORMAL, 9.0, 1.0, orders, may_leave)
        group = 3 * np.array([mask])
        cost = gnmax_rdp(votes[None], 9.0, orders=orders, method="exact", group_votes=group)[0]
        np.testing.assert_allclose(cost, np.maximum(forward, reverse)[0], rtol=1e-5)
        maxima = [votes.max()] + [
            (votes + np.eye(3)[target] - np.eye(3)[source]).max()
            for source in np.flatnonzero(may_leave)
            for target in range(3)
            if target != source
        ]
        p = stats.norm.sf((threshold - np.array(maxima)) / 9)
        table = np.stack([p, 1 - p], axis=1)
        truth = np.zeros(2)
        for column, order in enumerate(orders):
            for q in table[1:]:
                for a, b in ((table[0], q), (q, table[0])):
                    truth[column] = max(truth[column], np.log((a**order * b ** (1 - order)).sum()) / (order - 1))
        check = threshold_rdp(votes[None], threshold, 9.0, orders=orders, method="exact", group_votes=group)[0]
        np.testing.assert_allclose(check, truth, rtol=1e-6, atol=1e-15)


ORDERS = np.array([1.05, 1.5, 3.0, 8.0, 25.0, 64.0])
ROUNDING = 1e-12  # lost in the definition of a divergence when 1 is subtracted from its moment
PLAIN_SUMS = 1e-6  # relative error of the plain computation


def votes_batches(most_teachers: int, size: int) -> st.SearchStrategy[np.ndarray]:
    """Return counts for one number of teachers, from near agreement to an even split."""
    return st.builds(
        random_votes,
        seed=st.integers(0, 2**30),
        classes=st.integers(2, 4),
        teachers=st.integers(3, most_teachers),
        concentration=st.sampled_from([0.05, 0.3, 1.0, 20.0]),
        size=st.just(size),
    )


def random_votes(seed: int, classes: int, teachers: int, concentration: float, size: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(classes, concentration), size=size)
    return generator.multinomial(teachers, shares).astype(float)


def assert_sound(costs: Mapping[Method, np.ndarray], forward: np.ndarray, reverse: np.ndarray) -> None:
    truth = np.maximum(forward, reverse)
    assert (costs["data_dependent"] >= forward * (1 - PLAIN_SUMS) - ROUNDING).all()
    assert (costs["data_dependent"] <= costs["data_independent"]).all()
    assert (costs["exact"] <= costs["data_independent"]).all()
    assert (costs["exact"] >= truth * (1 - PLAIN_SUMS) - ROUNDING).all()
    assert (costs["exact"] <= truth * 1.01 + ROUNDING).all()


spread = st.floats(0.04, 1.0)  # noise, as a share of the teachers
weights = st.floats(0.2, 2.0)
slow = settings(derandomize=True, deadline=None, max_examples=12)
quick = settings(derandomize=True, deadline=None, max_examples=20)


@slow
@given(votes_batches(250, 40), spread, weights)
def test_gnmax_costs_are_sound(votes: np.ndarray, share: float, weight: float) -> None:
    sigma = max(share * votes[0].sum(), weight)
    forward, reverse = divergences(votes, NORMAL, sigma, weight, ORDERS)
    costs = {method: gnmax_rdp(votes, sigma, sensitivity=weight, orders=ORDERS, method=method) for method in METHODS}
    assert_sound(costs, forward, reverse)


@slow
@given(votes_batches(60, 10), st.floats(2, 8), st.sampled_from([0.5, 1.0, 1.5, 2.0]))
def test_lnmax_costs_are_sound(votes: np.ndarray, scale: float, weight: float) -> None:
    forward, reverse = divergences(votes, LAPLACE, scale, weight, ORDERS)
    costs = {
        method: lnmax_rdp(votes, 1 / scale, sensitivity=weight, orders=ORDERS, method=method) for method in METHODS
    }
    assert_sound(costs, forward, reverse)


@quick
@given(votes_batches(250, 40), spread, weights, st.floats(-0.5, 1.5))
def test_threshold_costs_are_sound(votes: np.ndarray, share: float, weight: float, height: float) -> None:
    teachers = votes[0].sum()
    sigma, threshold = max(share * teachers, weight), height * teachers
    top = votes.max(axis=1)
    # Towards the less likely outcome, tails keep their digits if Pr[below] and Pr[at least] are separate.
    p, up, down = (
        np.stack([stats.norm.cdf((threshold - m) / sigma), stats.norm.sf((threshold - m) / sigma)], axis=1)
        for m in (top, top + weight, top - weight)
    )
    chosen = {"sensitivity": weight, "orders": ORDERS}
    costs = {method: threshold_rdp(votes, threshold, sigma, method=method, **chosen) for method in METHODS}
    forward = np.maximum(renyi(p, up, ORDERS), renyi(p, down, ORDERS))
    reverse = np.maximum(renyi(up, p, ORDERS), renyi(down, p, ORDERS))
    assert_sound(costs, forward, reverse)


def displacements(classes: int, moves: int = 1) -> set[tuple[int, ...]]:
    """Yield every change of the counts by at most ``moves`` votes that each go from one class to another."""
    single = [tuple(int(k == b) - int(k == a) for k in range(classes)) for a in range(classes) for b in range(classes)]
    return {tuple(map(sum, zip(*chosen, strict=True))) for chosen in itertools.product(single, repeat=moves)}


@dataclass(frozen=True)
class PlainNoise:
    """Noise of scale 1, given by two textbook formulas.

    ``nodes`` returns quadrature nodes and weights for counts from ``low`` to ``high`` with noise of a given scale.
    """

    cdf: Callable[[np.ndarray], np.ndarray]
    pdf: Callable[[np.ndarray], np.ndarray]
    nodes: Callable[[float, float, float], tuple[np.ndarray, np.ndarray]]


def _even_steps(low: float, high: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    grid = np.arange(low - 12 * scale, high + 12 * scale, scale / 10)
    return grid, np.full(grid.size, scale / 10)


def _four_in_every_half_vote(low: float, high: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes for Laplace densities, which have a kink at every count; all counts are multiples of a half."""
    points, weights = np.polynomial.legendre.leggauss(4)
    cells = np.arange(np.floor(low - 40 * scale), np.ceil(high + 40 * scale), 0.5)
    return (cells[:, None] + (points + 1) / 4).ravel(), np.tile(weights / 4, cells.size)


NORMAL = PlainNoise(special.ndtr, lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), _even_steps)
LAPLACE = PlainNoise(
    lambda x: np.where(x < 0, np.exp(-np.abs(x)) / 2, 1 - np.exp(-np.abs(x)) / 2),
    lambda x: np.exp(-np.abs(x)) / 2,
    _four_in_every_half_vote,
)


def win_probabilities(votes: np.ndarray, noise: PlainNoise, scale: float) -> np.ndarray:
    """Return Pr[class wins] for counts of shape (rows, classes), by one plain sum after the other."""
    grid, weights = noise.nodes(votes.min(), votes.max(), scale)
    offset = (grid[:, None, None] - votes) / scale
    cdf, pdf = noise.cdf(offset), noise.pdf(offset) / scale
    others = [[j for j in range(votes.shape[1]) if j != k] for k in range(votes.shape[1])]
    return np.stack([weights @ (pdf[..., k] * cdf[..., rest].prod(axis=2)) for k, rest in enumerate(others)], axis=1)


def renyi(p: np.ndarray, q: np.ndarray, orders: float | np.ndarray) -> np.ndarray:
    """Return D_α(p‖q) over the last axis by definition, in logarithms; several orders (R,) form the last axis."""
    order = np.asarray(orders, np.float64)[..., None]
    p, q = (np.expand_dims(np.log(each), tuple(range(-order.ndim, -1))) for each in (p, q))
    return special.logsumexp(order * p + (1 - order) * q, axis=-1) / (order[..., 0] - 1)


def divergences(
    votes: np.ndarray,
    noise: PlainNoise,
    scale: float,
    weight: float,
    orders: np.ndarray,
    may_leave: np.ndarray | None = None,
    moves: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest forward and reverse divergence over every move from a class with enough votes (queries, R)."""
    p = win_probabilities(votes, noise, scale)
    forward, reverse = np.zeros((2, len(votes), len(orders)))
    for change in map(np.array, displacements(votes.shape[1], moves)):
        moved = votes + weight * change
        possible = (moved >= 0).all(axis=1) & (may_leave is None or bool(np.all(may_leave | (change >= 0))))
        q = win_probabilities(moved, noise, scale)
        forward[possible] = np.maximum(forward, renyi(p, q, orders))[possible]
        reverse[possible] = np.maximum(reverse, renyi(q, p, orders))[possible]
    return forward, reverse


def precise_win_probabilities(
    votes: Sequence[float], scale: float, laplace: bool = False, reach: float = 0.0
) -> list[mpmath.mpf]:
    """Return Pr[class wins] by Gauss–Legendre quadrature with 24 nodes for every six standard deviations or less.

    ``reach`` makes neighbouring counts share the nodes.
    """
    cdf, pdf = (_laplace_cdf, _laplace_pdf) if laplace else (_normal_cdf, _normal_pdf)
    counts = [mpmath.mpf(v) / mpmath.mpf(scale) for v in votes]
    outside = (90 if laplace else 12) + reach / scale
    low, high = mpmath.floor(min(counts) - outside), mpmath.ceil(max(counts) + outside)
    breaks = [low + 6 * i for i in range(int((high - low) / 6) + 2)]
    if laplace:
        breaks = sorted({*breaks, *(c + d * mpmath.mpf(reach) / mpmath.mpf(scale) for c in counts for d in (-1, 0, 1))})
    found = [mpmath.mpf(0)] * len(counts)
    for start, end in itertools.pairwise(breaks):
        for t, width in _LEGENDRE.get_nodes(start, end, degree=4, prec=mpmath.mp.prec):
            below = [cdf(t - c) for c in counts]
            for k, c in enumerate(counts):
                found[k] += width * pdf(t - c) * mpmath.fprod(below[:k] + below[k + 1 :])
    return found


_LEGENDRE = mpmath.calculus.quadrature.GaussLegendre(mpmath.mp)


@cache
def _normal_cdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.ncdf(x)


@cache
def _normal_pdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.npdf(x)


def _laplace_cdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2


def _laplace_pdf(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(-abs(x)) / 2


PUBLISHED_ORDERS = np.concatenate([np.arange(1.5, 11.0, 0.5), np.arange(11.0, 65.0)])


def published(name: str) -> np.ndarray:
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("IPATE_DATA_DIR", default)) / "pate_votes" / f"{name}.npy"
    if not path.exists():
        pytest.skip(f"needs the published vote counts: {path} is missing, set IPATE_DATA_DIR")
    return np.load(path, allow_pickle=False)


def confident_cost(method: Method, sensitivity: float) -> np.ndarray:
    votes = published("mnist_250_teachers")[:640].astype(float)
    answered = norm.sf((200 - votes.max(axis=1)) / 150)
    check = threshold_rdp(votes, 200, 150, sensitivity=sensitivity, orders=PUBLISHED_ORDERS, method=method)
    label = gnmax_rdp(votes, 40, sensitivity=sensitivity, orders=PUBLISHED_ORDERS, method=method)
    return (check + answered[:, None] * label).sum(axis=0)


def test_expected_number_of_answers_is_the_published_one() -> None:
    votes = published("mnist_250_teachers")[:640]
    assert norm.sf((200 - votes.max(axis=1)) / 150).sum() == pytest.approx(282.72, abs=0.005)


@pytest.mark.parametrize(
    ("method", "conversion", "sensitivity", "epsilon", "order"),
    [
        ("data_independent", "classic", 1.0, 3.157, 9),
        ("data_dependent", "classic", 1.0, 1.9988, 14),
        ("data_dependent", "improved", 1.0, 1.7123, 13),
        ("exact", "classic", 1.0, 1.1733, 19),
        ("exact", "improved", 1.0, 0.9462, 17),
        ("data_dependent", "classic", 1.7, 3.4674, 8.5),
        ("exact", "improved", 1.7, 1.7056, 10.5),
    ],
)
def test_confident_gnmax_on_mnist(method, conversion, sensitivity, epsilon, order) -> None:
    got, best = epsilon_from_rdp(confident_cost(method, sensitivity), 1e-5, PUBLISHED_ORDERS, conversion)
    digits = 3 if method == "data_independent" else 4
    assert round(float(got), digits) == epsilon
    assert best == order


@pytest.mark.parametrize(("gamma", "epsilon"), [(0.1, 2.0486), (0.05, 1.9587)])
def test_lnmax_on_the_queries_of_the_mnist_student(gamma: float, epsilon: float) -> None:
    votes = published("mnist_250_teachers")[published("mnist_250_teachers_100_indices_used_by_student")]
    orders = np.arange(2.0, 10.0)  # the moments 1 to 8
    cost = lnmax_rdp(votes, gamma, orders=orders, method="data_dependent").sum(axis=0)
    with pytest.warns(UserWarning, match="order lies at an end"):
        got, _ = epsilon_from_rdp(cost, 1e-5, orders, "classic")
    assert round(float(got), 4) == epsilon
