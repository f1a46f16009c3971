"""Estimators for a researcher's own data, with an ε for each row, using the same questions and accounts as runs.

They need no database and no site. docs/estimators.md states what they guarantee.
"""

from learning.estimators.classifier import IndividualDPClassifier
from learning.estimators.counts import IndividualDPCounts

__all__ = ["IndividualDPClassifier", "IndividualDPCounts"]
