"""The ceiling: the most, in μ², that all studies of the installation together may charge the person of one account.

In a study such a person's account may go no further than the ceiling leaves after all that their *other* studies can
have charged anybody: their :func:`reach`, a public number. So what is left to a person follows from the studies that
their account is linked to and from public numbers, never from what they decided, own or were charged elsewhere: no
release of one study tells whether somebody takes part in another.

In the study itself, an open share may still be charged without another look at the ceiling (a vote of teachers), so
everything else that is charged meanwhile has to leave room for it: :func:`share_held`. See "Several studies" in
docs/gaussian-accounts.md.
"""

from collections import defaultdict
from uuid import UUID

import numpy as np
from django.conf import settings
from django.db.models import F, QuerySet

from accounting.accounts import caps_largest, floors
from accounting.book import balances_load
from accounting.caps import caps_of
from accounting.models import EndedReach, Release
from accounting.restores import missing_rows
from accounting.shares import Share, opened_share, shares
from consent.models import DataHolder, Study
from consent.selectors import epsilon_promised_largest

#: A query may name so many holders; beyond that it asks for all of a study.
_FEW = 500


def reach(study: Study) -> float:
    """The most that any account of a study can have been charged by what has been opened so far, in μ².

    Public: the part of every cap that was opened, of the largest cap that any approved policy has ever promised.
    """
    # Of a restored database nobody knows what else was opened.
    opened = 1.0 if missing_rows(study) else opened_share(study)
    # Of policies that a restored database has forgotten, too.
    largest = max([epsilon_promised_largest(study), *(floor.epsilon for floor in floors(study))])
    return opened * float(caps_of(largest, study.delta)) if largest else 0.0


def ceilings_left(study: Study, holders: np.ndarray) -> np.ndarray:
    """Return what the ceiling leaves to a study in all, after what the person's other studies can have charged.

    Args:
        study: the study that charges.
        holders: (H,) ids of its holders.

    Returns:
        μ², (H,); infinite without a ceiling, and for holders without an account.
    """
    left = np.full(len(holders), np.inf)
    if settings.PERSON_CEILING is None:
        return left
    linked = DataHolder.objects.filter(study=study, user__isnull=False)
    if len(holders) <= _FEW:
        linked = linked.filter(pk__in=holders.tolist())
    elsewhere = _reached_elsewhere(study, linked)
    people = linked.order_by("pk").values_list("pk", "user_id").iterator(chunk_size=10_000)
    own = np.fromiter(
        ((pk, settings.PERSON_CEILING - elsewhere.get(user, 0.0)) for pk, user in people),
        dtype=[("holder", np.int64), ("left", np.float64)],
    )
    own = own[np.isin(own["holder"], holders)]
    order = np.argsort(holders)
    left[order[np.searchsorted(holders, own["holder"], sorter=order)]] = np.maximum(own["left"], 0.0)
    return left


def rooms(study: Study, holders: np.ndarray, *, subject: UUID) -> np.ndarray:
    """Return how far accounts may go by the ceiling when ``subject`` charges them, whatever their caps.

    To be asked in the transaction that charges, or that opens the share which is charged, after consents were read.

    Args:
        study: the study that charges.
        holders: (H,) ids of its holders.
        subject: whose share is charged.

    Returns:
        μ², (H,): the ceiling, less what other studies can have charged and what other open shares of this study still
        hold; infinite without a ceiling, and for holders without an account.
    """
    room = ceilings_left(study, holders)
    under = np.flatnonzero(np.isfinite(room))
    if len(under):
        for other, share in shares(study).items():
            if other != subject and share.is_open:
                room[under] -= share_held(study, share, holders[under])
    return np.maximum(room, 0.0)


def share_held(study: Study, share: Share, holders: np.ndarray) -> np.ndarray:
    """Return what may still be charged to ``holders`` (H,) under an open share of their study, (H,) μ². Secret."""
    charged = np.zeros(len(holders))
    for name in Release.objects.filter(study=study, run=share.subject).exclude(charges="").values_list("charges"):
        charged += balances_load(*name).of(holders)
    return np.maximum(share.granted * caps_largest(study, holders) - charged, 0.0)


def _reached_elsewhere(study: Study, linked: QuerySet[DataHolder]) -> dict[int, float]:
    """Account → what other studies can have charged the person of a holder; who is in no other is not listed."""
    totals: dict[int, float] = defaultdict(float)
    users = linked.values("user")
    totals.update(EndedReach.objects.filter(user__in=users).values_list("user_id", "mu_squared"))
    others = DataHolder.objects.exclude(study=study).filter(user__in=users).order_by("study_id", "pk")
    pairs = list(others.values_list("user_id", "study_id").iterator(chunk_size=10_000))
    reaches = {each.pk: reach(each) for each in Study.objects.filter(pk__in={study_id for _user, study_id in pairs})}
    for user, study_id in pairs:
        totals[user] += reaches[study_id]
    return totals


def reach_keep(study: Study) -> None:
    """Note for every account of a study whose links are about to end what it can have charged; its lock is held."""
    if settings.PERSON_CEILING is None or not (reached := reach(study)):
        return
    users = DataHolder.objects.filter(study=study, user__isnull=False).values_list("user_id", flat=True)
    EndedReach.objects.bulk_create([EndedReach(user_id=user) for user in users], ignore_conflicts=True)
    EndedReach.objects.filter(user__holdings__study=study).update(mu_squared=F("mu_squared") + reached)
