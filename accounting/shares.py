"""Shares: the parts of every holder's cap that runs may use. They are public and add up to at most 1.

A holder's limit in a run is (public cumulative share) · μ_i². It applies to the holder's whole account, so unused parts
of earlier shares can be used later.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounting.models import ShareRecord
from accounting.restores import lock_check, missing_rows
from common.journal import note
from consent.models import Study
from consent.services import study_lock, study_open_check

#: Tolerance for comparing shares, because sums of decimal fractions are not exact.
ROUNDING = 1e-9
#: Key of the PostgreSQL advisory lock of :func:`openings_lock`; any number not used elsewhere in the installation.
_OPENINGS = 0x69504154
#: Purpose of a share that settles a gap.
GAP = gettext_noop("gap after a restore")
#: Share suggested for a run if enough is free, and share used for planning if almost none is free.
SUGGESTED, _LEAST = 0.25, 0.01
#: Error message for a share larger than the ``free`` one.
NOT_FREE = gettext_noop(
    "Only a share of %(free).4g is still available: the rest has been used or is reserved for other runs. Ask for a "
    "smaller share, or wait until a run ends and returns the part it did not need."
)


@dataclass(frozen=True)
class Share:
    """A subject's share: the part ``granted``, its ``limit`` once spendable, and the part ``used`` once settled."""

    subject: UUID
    purpose: str
    granted: float
    limit: float | None = None
    used: float | None = None

    @property
    def committed(self) -> float:
        """Part of the caps that is not available to other subjects."""
        return self.granted if self.used is None else self.used

    @property
    def is_open(self) -> bool:
        """Whether charges under this share are possible now."""
        return self.limit is not None and self.used is None


def shares(study: Study) -> dict[UUID, Share]:
    """Return every share of a study by its subject, in the order in which they were granted."""
    by_subject: dict[UUID, Share] = {}
    rows = ShareRecord.chain(study.pk).values_list("subject", "purpose", "kind", "share", "limit")
    for subject, purpose, kind, share, limit in rows:
        if kind == ShareRecord.Kind.GRANTED:
            by_subject[subject] = Share(subject, purpose, share)
        elif kind == ShareRecord.Kind.OPENED:
            by_subject[subject] = replace(by_subject[subject], limit=limit)
        else:
            by_subject[subject] = replace(by_subject[subject], used=share)
    return by_subject


def decimal_sum(*numbers: float) -> float:
    """Return the exact sum of decimal fractions, without binary rounding errors.

    >>> 1 - (0.95 + 0.01), decimal_sum(1, -0.95, -0.01)
    (0.040000000000000036, 0.04)
    """
    return float(sum(Decimal(repr(float(number))) for number in numbers))


def committed_share(study: Study) -> float:
    """Return the share of every cap that has been used or is reserved."""
    return decimal_sum(*(share.committed for share in shares(study).values()))


def share_free(study: Study) -> float:
    """Return the share of every cap that is neither used nor reserved."""
    return free_share(shares(study))


def free_share(all_shares: Mapping[UUID, Share]) -> float:
    """Return the share of every cap that the given shares leave free."""
    return max(0.0, decimal_sum(1.0, *(-share.committed for share in all_shares.values())))


def suggested_share(study: Study) -> float:
    """Return the share suggested for a run: enough to learn from, while leaving some for later (all in a rehearsal)."""
    return 1.0 if study.rehearsal else max(min(SUGGESTED, share_free(study)), _LEAST)


def opened_share(study: Study) -> float:
    """Return the largest share of its cap that any account could have used so far."""
    return min(1.0, decimal_sum(*(share.committed for share in shares(study).values() if share.limit is not None)))


def share_check(share: float) -> None:
    """Raise ValidationError unless ``share`` is above 0 and at most 1."""
    if not 0 < share <= 1:
        raise ValidationError(
            {"share": _("Enter a share above 0 and at most 1. A share of 1 uses everything that is left.")}
        )


@transaction.atomic
def share_grant(
    *, study: Study, subject: UUID, purpose: str, share: float, acting_user: AbstractBaseUser | None
) -> None:
    """Grant ``share`` of every cap to ``subject``. Raises ValidationError if less is free."""
    study_open_check(study_lock(study.pk))
    lock_check(study)
    share_check(share)
    free = share_free(study)
    if share > free + ROUNDING:
        raise ValidationError({"share": _(NOT_FREE) % {"free": free}})
    _append(study, subject, purpose, ShareRecord.Kind.GRANTED, min(share, free), acting_user=acting_user)


def share_limit(study: Study, subject: UUID) -> float:
    """Return the share of its cap that an account may use in total if ``subject`` begins to spend now.

    This is the sum of the shares opened so far and the share of ``subject``.
    """
    all_shares = shares(study)
    others = (share.committed for other, share in all_shares.items() if share.limit is not None and other != subject)
    return min(1.0, decimal_sum(*others, all_shares[subject].granted))


def openings_lock() -> None:
    """Prevent other studies from opening a share until the transaction ends.

    Opening a share depends on charges in a person's other studies (:mod:`accounting.ceilings`), so if two studies open
    shares at the same time, one of them must take the other's into account. Take this lock after a study's lock and
    before any other. On SQLite the immediate transaction already locks the whole database.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_OPENINGS])


@transaction.atomic
def share_open(*, study: Study, subject: UUID) -> float:
    """Open the share of ``subject`` for spending; record and return its :func:`share_limit`."""
    study_lock(study.pk)
    mine = shares(study)[subject]
    if mine.limit is not None:
        return mine.limit
    openings_lock()
    limit = share_limit(study, subject)
    _append(study, subject, mine.purpose, ShareRecord.Kind.OPENED, mine.granted, limit=limit)
    return limit


@transaction.atomic
def share_settle(*, study: Study, subject: UUID, used: float = 0.0) -> None:
    """End spending by ``subject``, freeing all of its share except ``used``, a public number.

    This has no effect without a grant, or if the share is already settled.
    """
    study_lock(study.pk)
    mine = shares(study).get(subject)
    if mine is None or mine.used is not None:
        return
    kept = 0.0 if mine.limit is None else min(used, mine.granted)
    _append(study, subject, mine.purpose, ShareRecord.Kind.SETTLED, kept)


def _append(
    study: Study,
    subject: UUID,
    purpose: str,
    kind: str,
    share: float,
    *,
    limit: float | None = None,
    acting_user: AbstractBaseUser | None = None,
) -> None:
    ShareRecord.append(
        [
            ShareRecord(
                study_id=study.pk,
                subject=subject,
                purpose=purpose,
                kind=kind,
                share=share,
                limit=limit,
                recorded_by_id=acting_user.pk if acting_user else None,
            )
        ]
    )
    # The journal must keep events that a restored database lacks until the gap is charged.
    if not missing_rows(study):
        note(study.pk, facts={"share": committed_share(study)})
