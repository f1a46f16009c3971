"""The mathematics of privacy costs in plain NumPy and SciPy, without Django.

docs/gaussian-accounts.md explains the promises to holders; accounting/privacy/papers/README.md, the Rényi curves.
"""

from accounting.privacy.checks import Method
from accounting.privacy.individual_accounts import (
    SMALLEST_DELTA,
    IndividualAccounts,
    available_delta,
    check_charge,
    label_charge,
    lnmax_charge,
    promise_caps,
    pure_dp_mu,
    residual_vote_charge,
)
from accounting.privacy.papers.curves import (
    DEFAULT_ORDERS,
    PAPER_ORDERS,
    Conversion,
    affordable_prefix,
    epsilon_from_rdp,
    gaussian_rdp,
    sampled_gaussian_rdp,
)
from accounting.privacy.papers.votes import gnmax_rdp, lnmax_rdp, threshold_rdp
from accounting.privacy.sampled_charge import sampled_gaussian_epsilon, sampled_gaussian_mu
from common.gaussian_dp import gdp_delta, gdp_epsilon, gdp_mu, guess_odds, record_guess_odds
