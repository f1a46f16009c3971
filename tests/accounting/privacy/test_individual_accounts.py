"""Individual accounts, compared with exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import kstest, norm

from accounting.privacy import IndividualAccounts, gdp_epsilon, gdp_mu

quick = settings(derandomize=True, deadline=None, max_examples=60)
SIGMAS = [1.0, 2.0, 3.0, 40.0, 0.7, 1e-3]


def one_by_one(caps: list[float], spent: list[float], norms: np.ndarray, sigmas: list[float]):
    """Compute accounts by definition, with exact numbers."""
    sums, allowed = [Fraction(s) for s in spent], np.zeros(norms.shape, dtype=bool)
    for q, row in enumerate(norms):
        for i, value in enumerate(row):
            cost = Fraction(max(value, 1e-100) if value else 0) / Fraction(sigmas[q]) ** 2
            if sums[i] + cost <= Fraction(caps[i]):
                sums[i] += cost
                allowed[q, i] = True
    return allowed, sums


@st.composite
def batches(draw: st.DrawFn):
    holders, rows = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    number = st.one_of(
        st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), st.floats(0, 3), st.floats(0, 1e-12), st.floats(0, 1e300)
    )
    norms = np.array(draw(st.lists(number, min_size=rows * holders, max_size=rows * holders))).reshape(rows, holders)
    kept = np.array(draw(st.lists(st.booleans(), min_size=norms.size, max_size=norms.size)), dtype=bool)
    caps = draw(st.lists(st.floats(0, 8), min_size=holders, max_size=holders))
    spent = draw(st.lists(st.sampled_from([0.0, 0.1, 3.0]), min_size=holders, max_size=holders))
    sigmas = draw(st.lists(st.sampled_from(SIGMAS), min_size=rows, max_size=rows))
    return caps, spent, norms, kept.reshape(norms.shape), sigmas


def csr(norms: np.ndarray, kept: np.ndarray, kind=sparse.csr_array):
    """Return a sparse array that stores all entries, including zeros."""
    rows, columns = np.nonzero(kept)
    pointers = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return kind((norms[rows, columns], columns, pointers), shape=norms.shape)


@quick
@given(batches(), st.integers(0, 12))
def test_any_division_into_calls_matches_the_definition_in_real_numbers(batch, cut: int) -> None:
    caps, spent, norms, kept, sigmas = batch
    expected, sums = one_by_one(caps, spent, norms, sigmas)
    dense = IndividualAccounts(caps, spent)
    allowed = np.array([dense.charge(row, sigma) for row, sigma in zip(norms, sigmas, strict=True)], dtype=bool)
    np.testing.assert_array_equal(allowed.reshape(norms.shape), expected)
    for total, said in zip(sums, dense.spent, strict=True):
        assert total <= Fraction(said) <= total * (1 + Fraction(2) ** -51)
    assert (dense.spent <= np.maximum(caps, spent)).all()

    everything = IndividualAccounts(caps, spent)
    at_once = everything.charge(csr(norms, np.ones_like(kept)), sigmas)
    np.testing.assert_array_equal(at_once.toarray(), expected)
    np.testing.assert_array_equal(everything.spent, dense.spent)

    pieces, whole = IndividualAccounts(caps, spent), IndividualAccounts(caps, spent)
    entries = csr(norms, kept)
    parts = [pieces.charge(entries[:cut], sigmas[:cut]).data, pieces.charge(entries[cut:], sigmas[cut:]).data]
    np.testing.assert_array_equal(np.concatenate(parts), whole.charge(entries, sigmas).data)
    np.testing.assert_array_equal(pieces.spent, whole.spent)

    # Entries that are not stored change nothing.
    expected, sums = one_by_one(caps, spent, np.where(kept, norms, 0), sigmas)
    np.testing.assert_array_equal(
        IndividualAccounts(caps, spent).charge(entries, sigmas).toarray()[kept], expected[kept]
    )
    assert all(total <= Fraction(said) for total, said in zip(sums, whole.spent, strict=True))


@quick
@given(
    st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=60),
    st.sampled_from(SIGMAS),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_storing_and_reading_an_account_never_lowers_it(norms, sigma, stops) -> None:
    cap, spent = 5.0 / sigma**2, np.zeros(1)
    total = Fraction(0)
    for step, value in enumerate(norms):
        if step == 0 or step in stops:
            accounts = IndividualAccounts([cap], spent)
        if accounts.charge([value], sigma)[0]:
            total += Fraction(value) / Fraction(sigma) ** 2
        spent = accounts.spent
    assert total <= Fraction(float(spent[0])) <= Fraction(cap)


def test_an_exact_fit_is_allowed() -> None:
    for cap, sigma, count in [(1.0, 1.0, 4), (1.0, 2.0, 16), (0.05, 10.0, 20)]:
        accounts = IndividualAccounts([cap], None)
        assert [bool(accounts.charge([0.25], sigma)[0]) for _ in range(count + 2)] == [True] * count + [False] * 2
        assert accounts.spent[0] == cap


def test_votes_of_norm_one_at_sigma_40_and_80() -> None:
    """114 / 402 / 827 and 459 / 1,609 / 3,309 votes at ε = 1, 2, 3; the shown ε is never above the promise."""
    caps = gdp_mu([1, 2, 3], 1e-5) ** 2
    for sigma, votes in [(40.0, [114, 402, 827]), (80.0, [459, 1609, 3309])]:
        accounts = IndividualAccounts(caps)
        allowed = accounts.charge(sparse.csr_array(np.ones((4000, 3))), sigma)
        assert allowed.sum(axis=0).tolist() == votes
        assert (gdp_epsilon(np.sqrt(accounts.spent), 1e-5) <= [1, 2, 3]).all()


def test_a_refused_contribution_costs_nothing_and_a_lowered_cap_allows_nothing_more() -> None:
    accounts = IndividualAccounts([1.0, 1.0])
    assert accounts.charge([0.75, 0.75], 1.0).all()
    assert accounts.charge([0.5, 0.125], 1.0).tolist() == [False, True]
    assert accounts.charge([0.25, np.inf], 1.0).tolist() == [True, False]
    assert accounts.spent.tolist() == [1.0, 0.875]
    accounts = IndividualAccounts([1.0, 1.0, 0.0], [1.5, 1.0, 0.0])
    assert accounts.charge([0.0, 0.0, 0.0], 1.0).tolist() == [False, True, True], "not even zero"
    assert accounts.charge([0.1, 0.1, 1e-300], 1.0).tolist() == [False, False, False]
    assert accounts.spent.tolist() == [1.5, 1.0, 0.0]


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_result_has_the_type_and_sparsity_of_the_input(kind) -> None:
    values = csr(np.array([[1.0, 0.0, 3.0], [2.0, 2.0, 2.0]]), np.array([[1, 1, 0], [1, 0, 1]], dtype=bool), kind)
    allowed = IndividualAccounts([2.0, 1.0, 1.0]).charge(values, 1.0)
    assert type(allowed) is kind
    assert (allowed.shape, allowed.dtype) == (values.shape, bool)
    assert allowed.data.tolist() == [True, True, False, False]
    assert [bool(allowed[0, 0]), bool(allowed[1, 0]), bool(allowed[1, 2])] == [True, False, False]
    values.data[~allowed.data] = 0
    assert values.toarray().tolist() == [[1, 0, 0], [0, 0, 0]]
    allowed.eliminate_zeros()
    assert values.nnz == 4


def test_indices_need_not_be_sorted_but_may_not_repeat() -> None:
    unsorted = sparse.csr_array((np.array([1.0, 5.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    assert IndividualAccounts([2.0, 2.0]).charge(unsorted, 1.0).data.tolist() == [True, False]
    twice = sparse.csr_array((np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    with pytest.raises(ValueError, match="two entries"):
        IndividualAccounts([2.0, 2.0]).charge(twice, 1.0)


def test_an_error_charges_nothing_and_returned_arrays_do_not_change() -> None:
    caps = np.ones(2)
    accounts = IndividualAccounts(caps)
    before = accounts.spent
    with pytest.raises(ValueError, match="negative"):
        accounts.charge(sparse.csr_array([[0.5, 0.5], [0.5, -1.0]]), 1.0)
    assert accounts.spent.tolist() == [0, 0]
    caps[:] = 0
    assert accounts.charge([0.5, 0.5], 1.0).all()
    assert before.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"caps": [-1.0, 1.0]}, "caps"),
        ({"caps": [1e31, 1.0]}, "caps"),
        ({"spent": [0.0]}, "spent"),
        ({"squared_norms": [[1.0, 1.0]]}, "shape"),
        ({"squared_norms": [-1.0, 1.0]}, "negative"),
        ({"squared_norms": [np.nan, 1.0]}, "NaN"),
        ({"squared_norms": sparse.csr_array([[np.nan, 1.0]])}, "NaN"),
        ({"squared_norms": sparse.csc_array([[1.0, 1.0]])}, "CSR"),
        ({"sigma": 0.0}, "sigma"),
        ({"squared_norms": sparse.csr_array([[1.0, 1.0]]), "sigma": [1.0, 2.0]}, "sigma"),
    ],
)
def test_bad_input_is_refused(wrong: dict, message: str) -> None:
    right = {"caps": [1.0, 1.0], "spent": None, "squared_norms": [1.0, 1.0], "sigma": 1.0}
    given_ = right | wrong
    with pytest.raises(ValueError, match=message):
        IndividualAccounts(given_["caps"], given_["spent"]).charge(given_["squared_norms"], given_["sigma"])


WORLDS, STEPS = 4000, 30


def log_likelihood_ratios(mu: float, takes_part: bool, charged_share: float = 1.0) -> np.ndarray:
    """Return ratios in many worlds, where an adversary chooses each query and σ from the releases so far.

    The holder's contribution is 0.2, or 1.5 if the adversary has seen evidence that the holder takes part; σ is 2 or 5,
    depending on the sign of the last release. A last step spends the rest, so that every path is charged the same.
    ``charged_share`` below 1 plants a fault: less is charged than is used.
    """
    rng = np.random.default_rng(7 + takes_part)
    accounts = IndividualAccounts(np.full(WORLDS, mu**2))
    ratio, used, last = np.zeros(WORLDS), np.zeros(WORLDS), np.zeros(WORLDS)
    for step in range(STEPS + 1):
        vector, sigma = np.where(ratio > 0.1 * mu, 1.5, 0.2), np.where(last > 0, 2.0, 5.0)
        for each in (2.0, 5.0):
            asked = sigma == each
            allowed = accounts.charge(np.where(asked, charged_share * vector**2, 0.0), each)
            vector = np.where(allowed | ~asked, vector, 0.0)
        if step == STEPS:
            vector, sigma = np.sqrt(np.maximum(mu**2 - used, 0)), np.ones(WORLDS)
        last = takes_part * vector + sigma * rng.normal(size=WORLDS)
        ratio += (vector * last - vector**2 / 2) / sigma**2
        used += (vector / sigma) ** 2
    return ratio


@pytest.mark.statistical
@pytest.mark.parametrize("takes_part", [False, True])
@pytest.mark.parametrize("mu", [0.27, 1.5])
def test_log_likelihood_ratio_at_full_spending_is_that_of_one_gaussian(mu: float, takes_part: bool) -> None:
    """It is N(±μ²/2, μ²) for any adversary: the theorem, tested by Kolmogorov and Smirnov."""
    ideal = norm((1 if takes_part else -1) * mu**2 / 2, mu).cdf
    assert kstest(log_likelihood_ratios(mu, takes_part), ideal).pvalue > 0.01
    assert kstest(log_likelihood_ratios(mu, takes_part, charged_share=0.5), ideal).pvalue < 1e-4, "a fault is noticed"
