"""Plausible deniability: rows made from seed records, released where many records could have been the seed.

V. Bindschaedler, R. Shokri, C. A. Gunter: Plausible Deniability for Privacy-Preserving Data Synthesis, PVLDB 2017. For
rehearsal studies alone: each released row has an (ε, δ) of its own, which no account of a holder counts.
"""

from learning.mechanisms.deniability.network import RowNetwork, fit_network, network_learn
from learning.mechanisms.deniability.rows import Candidates, DeniabilityTest, synthesise

__all__ = ["Candidates", "DeniabilityTest", "RowNetwork", "fit_network", "network_learn", "synthesise"]
