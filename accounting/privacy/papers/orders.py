"""The Rényi orders α at which privacy costs are kept."""

import numpy as np

from accounting.privacy.checks import FloatArray

#: Orders used by the PATE and Individualized PATE papers. With the classic conversion they cannot express an ε below
#: ln(1/δ)/49, so they serve to reproduce published numbers, not to account for people.
PAPER_ORDERS: FloatArray = np.arange(2.0, 51.0)

#: Wide and fine enough that the best order for 0.01 ≤ ε ≤ 100 and 1e-12 ≤ δ ≤ 1e-2 lies inside: below 1.5 for large ε,
#: half steps where the papers' results lie, and steps of a tenth or so upwards for small ε.
DEFAULT_ORDERS: FloatArray = np.concatenate(
    [
        [1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4],
        np.arange(1.5, 11.0, 0.5),
        np.arange(11.0, 65.0),
        [72.0, 80.0, 88.0, 96.0, 112.0, 128.0, 160.0, 192.0, 256.0, 320.0, 384.0, 512.0],
        [640.0, 768.0, 1024.0, 1536.0, 2048.0, 3072.0, 4096.0, 6144.0, 8192.0, 16384.0],
    ]
)

for _orders in (PAPER_ORDERS, DEFAULT_ORDERS):
    _orders.flags.writeable = False
