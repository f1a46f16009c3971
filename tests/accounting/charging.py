"""Charges as a run makes them, without a run, and caps of accounts by their definition."""

import math
from functools import cache
from uuid import uuid4

import numpy as np
from django.db import transaction

from accounting.accounts import account_balances
from accounting.caps import caps_of
from accounting.ceilings import ceiling_limits
from accounting.models import Release
from accounting.services import release_record
from accounting.shares import share_grant, share_open, share_settle
from consent.models import Study
from consent.selectors import consent_snapshot
from consent.services import study_lock


def share_charge(study: Study, share: float, part: float = 1.0) -> dict[str, float]:
    """Charge every participant ``part`` of their remaining budget under one more share, which is then used up.

    Returns:
        The charge of each of them in μ², by pseudonym.
    """
    subject = uuid4()
    share_grant(study=study, subject=subject, purpose="run", share=share, acting_user=None)
    with transaction.atomic():
        study_lock(study.pk)
        limit, snapshot = share_open(study=study, subject=subject), consent_snapshot(study)
        room = ceiling_limits(study, snapshot.holders, subject=subject)
        limits = np.minimum(limit * caps_of(snapshot.epsilons, study.delta), room)
        charges = part * np.maximum(limits - account_balances(study, snapshot.holders), 0.0)
        release_record(
            study=study,
            kind=Release.Kind.COUNTS,
            content={},
            holders=snapshot.holders,
            charges=charges,
            limits=limits,
            charge=float(charges.max(initial=0.0)),
        )
        share_settle(study=study, subject=subject, used=share)
    names = dict(study.holders.values_list("pk", "pseudonym"))
    return {names[pk]: charge for pk, charge in zip(snapshot.holders.tolist(), charges.tolist(), strict=True)}


@cache
def cap(epsilon: float, delta: float) -> float:
    """Return the μ² at which δ(ε) of a Gaussian account is ``delta``: Dong, Roth and Su 2022, Corollary 2.13."""
    from scipy.optimize import brentq  # here, because every process that collects a test of charges would load it
    from scipy.stats import norm

    def excess(mu: float) -> float:
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 1e-3, 20, xtol=1e-13) ** 2
