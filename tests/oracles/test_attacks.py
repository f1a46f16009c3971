"""Audits stay below the promise, and find each planted defect."""

import numpy as np
import pytest
from scipy.stats import norm

from accounting.privacy import gdp_epsilon
from benchmarks.attacks.canaries import CANARIES, Canary
from benchmarks.attacks.estimate import gdp_bound, one_run_doubt, one_run_mu
from benchmarks.attacks.faults import FAULTS
from benchmarks.attacks.one_run import MECHANISMS, guesses_right

DOUBT = 1e-5
QUICK = [canary for canary in CANARIES if canary.dearer == 1]
# With half of the noise, at most one seed in 200 fails: μ is twice the promise, or 1.8 times if steps are sampled.
COUNTS = {"sgd, individual": 200, "sgd, individual, 25 records": 200, "sgd, sample": 1_500, "synthesis": 200}
SLOW = [canary for canary in CANARIES if canary.name in COUNTS]
#: Each planted fault, and canaries that find it, the quickest first.
FOUND_BY = {
    "noise-halved": ("counts", "neighbours, one round", "pate, GNMax", "pate, Confident-GNMax", "sites, together"),
    "colluders-counted": ("sites, together",),
    "records-added-up": ("counts, 25 records",),
    "charge-dropped": ("counts", "neighbours, two studies"),
    "weight-squared": ("pate, GNMax",),
}
PLANTED = [
    pytest.param(fault, name, marks=[] if fault == "charge-dropped" else pytest.mark.exhaustive)
    for fault, names in FOUND_BY.items()
    for name in names
]


def exceeds(canary: Canary, transcripts: int = 20_000) -> bool:
    """Return whether more is proven than was promised."""
    return gdp_bound(*canary.scores(transcripts), doubt=DOUBT).least > canary.promise


@pytest.mark.statistical
@pytest.mark.parametrize("canary", QUICK, ids=lambda canary: canary.name)
def test_no_bound_exceeds_its_promise(canary):
    assert not exceeds(canary)


@pytest.mark.statistical
@pytest.mark.parametrize(("fault", "name"), PLANTED)
def test_a_planted_fault_is_found(fault, name):
    canary = next(each for each in QUICK if each.name == name)
    with FAULTS[fault]():
        assert exceeds(canary, 160_000 if fault in ("weight-squared", "colluders-counted") else 20_000)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "canary",
    [
        pytest.param(each, id=each.name, marks=[] if each.name == "sgd, individual" else [pytest.mark.exhaustive])
        for each in SLOW
    ],
)
def test_steps_stay_below_their_promise_and_lose_it_with_half_of_the_noise(canary: Canary):
    """Transcripts take milliseconds each; the bound holds for all but one seed in a thousand."""
    assert gdp_bound(*canary.scores(170), doubt=1e-3).least <= canary.promise
    with FAULTS["noise-halved"]():
        assert gdp_bound(*canary.scores(COUNTS[canary.name]), doubt=DOUBT).point > 1.2 * canary.promise


@pytest.mark.statistical
def test_the_bound_is_valid_and_close():
    """100 audits of N(0, 1) against N(1, 1), each with an error probability of 1 %."""
    random = np.random.default_rng(5)
    drawn = [random.standard_normal((2, 4_000)) for _ in range(100)]
    bounds = [gdp_bound(without, 1 + within, doubt=0.01).least for without, within in drawn]
    assert sum(bound > 1 for bound in bounds) <= 4
    assert np.mean(bounds) > 0.8
    random = np.random.default_rng(6)
    assert gdp_bound(random.standard_normal(5_000), random.standard_normal(5_000), doubt=DOUBT).least == 0
    random, right = np.random.default_rng(0), norm.cdf(1.0)
    scores = [(random.random(20_000) < rate).astype(float) for rate in (1 - right, right)]
    assert 1.9 < gdp_bound(*scores, doubt=DOUBT).least < 2.0, "one bit reveals as much as a Gaussian of μ = 2"


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_guesses_about_randomised_response_are_as_likely_as_the_theorem_says(epsilon):
    """Without δ, the bound is the exact tail of randomised response, computed here from all 2^12 outcomes."""
    chance, guesses = 1 / (1 + np.exp(-epsilon)), 12
    outcomes = (np.arange(2**guesses)[:, None] >> np.arange(guesses)) & 1
    probability = np.prod(np.where(outcomes, chance, 1 - chance), axis=1)
    for right in (6, 9, 12):
        exact = probability[outcomes.sum(axis=1) >= right].sum()
        assert one_run_doubt(guesses, guesses, right, epsilon=epsilon, delta=0.0) == pytest.approx(exact)


@pytest.mark.statistical
def test_one_run_of_a_gaussian_stays_below_its_mu():
    random = np.random.default_rng(7)
    takes_part = random.random(1_000) < 0.5
    bound = one_run_mu(
        1_000, 200, guesses_right(takes_part, 2.0 * takes_part + random.standard_normal(1_000), 200), doubt=1e-3
    )
    assert 0.3 < bound < 2.0
    assert gdp_epsilon(bound, 1e-5) < gdp_epsilon(2.0, 1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_run_of_the_real_mechanisms(name):
    takes_part = np.random.default_rng(8).random(400) < 0.5
    scores = MECHANISMS[name](takes_part, 8.0, 1e-5)
    right = guesses_right(takes_part, scores, 100)
    assert right > 75
    assert one_run_mu(400, 100, right, doubt=DOUBT) < 1.6
