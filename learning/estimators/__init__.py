"""Estimators for a researcher's own data, with an ε for each row: the questions and accounts of a study's runs.

They need no database and no site. docs/estimators.md states what they guarantee.
"""

from learning.estimators.classifier import IndividualDPClassifier
from learning.estimators.counts import IndividualDPCounts

__all__ = ["IndividualDPClassifier", "IndividualDPCounts"]
