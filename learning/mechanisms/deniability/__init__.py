"""Plausible deniability: rows made from seed records and released if many records could have been the seed.

V. Bindschaedler, R. Shokri, C. A. Gunter: Plausible Deniability for Privacy-Preserving Data Synthesis, PVLDB 2017. Only
for rehearsal studies, because each released row has its own (ε, δ), which is charged to no account.
"""

from learning.mechanisms.deniability.network import RowNetwork, fit_network, network_learn
from learning.mechanisms.deniability.rows import DeniabilityTest, synthesise
