"""The mathematics of privacy costs: plain NumPy and SciPy, no Django. See docs/privacy-accounting.md."""

from accounting.privacy.checks import Method
from accounting.privacy.conversion import Conversion, epsilon_from_rdp
from accounting.privacy.filter import Prefix, affordable_prefix
from accounting.privacy.gaussian import gaussian_rdp
from accounting.privacy.gnmax import gnmax_rdp
from accounting.privacy.lnmax import lnmax_rdp
from accounting.privacy.orders import DEFAULT_ORDERS, PAPER_ORDERS
from accounting.privacy.remaining import gaussian_rate, remaining_epsilon
from accounting.privacy.sampled_gaussian import sampled_gaussian_rdp
from accounting.privacy.threshold import threshold_rdp

__all__ = [
    "DEFAULT_ORDERS",
    "PAPER_ORDERS",
    "Conversion",
    "Method",
    "Prefix",
    "affordable_prefix",
    "epsilon_from_rdp",
    "gaussian_rate",
    "gaussian_rdp",
    "gnmax_rdp",
    "lnmax_rdp",
    "remaining_epsilon",
    "sampled_gaussian_rdp",
    "threshold_rdp",
]
