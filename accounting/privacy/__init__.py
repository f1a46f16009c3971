"""The mathematics of privacy costs: plain NumPy and SciPy, no Django.

What is promised to holders: docs/gaussian-accounts.md. Rényi curves: docs/privacy-accounting.md.
"""

from accounting.privacy.checks import Method
from accounting.privacy.delta_reserve import SMALLEST_DELTA, available_delta
from accounting.privacy.individual_accounts import IndividualAccounts
from accounting.privacy.papers.conversion import Conversion, epsilon_from_rdp
from accounting.privacy.papers.filter import affordable_prefix
from accounting.privacy.papers.gaussian import gaussian_rdp
from accounting.privacy.papers.gnmax import gnmax_rdp
from accounting.privacy.papers.lnmax import lnmax_rdp
from accounting.privacy.papers.orders import DEFAULT_ORDERS, PAPER_ORDERS
from accounting.privacy.papers.sampled_gaussian import sampled_gaussian_rdp
from accounting.privacy.papers.threshold import threshold_rdp
from accounting.privacy.pure_dp import pure_dp_mu
from accounting.privacy.sampled_charge import sampled_gaussian_epsilon, sampled_gaussian_mu
from accounting.privacy.teacher_charges import check_charge, label_charge, lnmax_charge, residual_vote_charge
from common.gaussian_dp import gdp_delta, gdp_epsilon, gdp_mu, guess_odds, record_guess_odds

__all__ = [
    "DEFAULT_ORDERS",
    "PAPER_ORDERS",
    "SMALLEST_DELTA",
    "Conversion",
    "IndividualAccounts",
    "Method",
    "affordable_prefix",
    "available_delta",
    "check_charge",
    "epsilon_from_rdp",
    "gaussian_rdp",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "gnmax_rdp",
    "guess_odds",
    "label_charge",
    "lnmax_charge",
    "lnmax_rdp",
    "pure_dp_mu",
    "record_guess_odds",
    "residual_vote_charge",
    "sampled_gaussian_epsilon",
    "sampled_gaussian_mu",
    "sampled_gaussian_rdp",
    "threshold_rdp",
]
